package kafka

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/internal/kerr"
)

// groupAPIs are those of coordinators.
func groupAPIs() []api {
	return []api{
		serve(kmsg.OffsetCommit, 0, 10, (*call).offsetCommit),
		serve(kmsg.OffsetFetch, 0, 10, (*call).offsetFetch),
		serve(kmsg.FindCoordinator, 0, 6, (*call).findCoordinator),
		serve(kmsg.JoinGroup, 0, 9, (*call).joinGroup),
		serve(kmsg.Heartbeat, 0, 4, (*call).heartbeat),
		serve(kmsg.LeaveGroup, 0, 5, (*call).leaveGroup),
		serve(kmsg.SyncGroup, 0, 5, (*call).syncGroup),
		serve(kmsg.DescribeGroups, 0, 6, (*call).describeGroups),
		serve(kmsg.ListGroups, 0, 5, (*call).listGroups),
		serve(kmsg.DeleteGroups, 0, 2, (*call).deleteGroups),
		serve(kmsg.OffsetDelete, 0, 0, (*call).offsetDelete),
		serve(kmsg.ConsumerGroupHeartbeat, 0, 1, (*call).consumerGroupHeartbeat),
		serve(kmsg.ConsumerGroupDescribe, 0, 1, (*call).consumerGroupDescribe),
	}
}

// coordinate has the node answer, or its coordinators.
func (c *call) coordinate(q kmsg.Request) kmsg.Response {
	return c.broker().Coordinate(c.ctx, c.client, q)
}

// mayUse says whether the client may do something with a group.
func (c *call) mayUse(op kmsg.ACLOperation, group string) bool {
	return c.allowed(op, kmsg.ACLResourceTypeGroup, group)
}

// mayTopic says whether the client may do something with a topic.
func (c *call) mayTopic(op kmsg.ACLOperation, topic string) bool {
	return c.allowed(op, kmsg.ACLResourceTypeTopic, topic)
}

// offsetsByID is the first version of requests about offsets that gives topics by id.
const offsetsByID = 10

// nameFor finds the name of a topic that is given by id; none is empty.
func (c *call) nameFor(version int16, name *string, id TopicID) {
	if version >= offsetsByID {
		*name, _ = c.broker().TopicName(id)
	}
}

// refuses is why the client gets nothing of a topic.
func (c *call) refuses(op kmsg.ACLOperation, version int16, name string) int16 {
	switch {
	case version >= offsetsByID && name == "":
		return kerr.UNKNOWN_TOPIC_ID
	case !c.mayTopic(op, name):
		return kerr.TOPIC_AUTHORIZATION_FAILED
	}
	return kerr.NONE
}

// groupDenied is the code for a group that the client must not use.
const groupDenied = kerr.GROUP_AUTHORIZATION_FAILED
