package group

import (
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/internal/kerr"
)

// The types of groups, as clients know them.
const (
	typeClassic  = "classic"
	typeConsumer = "consumer"
)

// kind returns the group's type, state and protocol type.
func (g *group) kind() (kind, state, protocolType string) {
	if g.consumer != nil {
		return typeConsumer, g.consumer.state(), consumerProtocolType
	}
	return typeClassic, g.classic.state.String(), g.classic.protocolType
}

// listGroups tells all groups, or those in some states and of some types.
func (c *Core) listGroups(r *Request, body *kmsg.ListGroupsRequest) {
	response := body.ResponseKind().(*kmsg.ListGroupsResponse)
	among := func(list []string, value string) bool {
		return len(list) == 0 || slices.ContainsFunc(list, func(s string) bool { return strings.EqualFold(s, value) })
	}
	for _, id := range sortedKeys(c.groups) {
		one := kmsg.NewListGroupsResponseGroup()
		one.Group = id
		one.GroupType, one.GroupState, one.ProtocolType = c.groups[id].kind()
		if among(body.StatesFilter, one.GroupState) && among(body.TypesFilter, one.GroupType) {
			response.Groups = append(response.Groups, one)
		}
	}
	c.respond(nil, r, response)
}

// describeGroups tells all about classic groups. One that does not exist is dead.
func (c *Core) describeGroups(r *Request, body *kmsg.DescribeGroupsRequest) {
	response := body.ResponseKind().(*kmsg.DescribeGroupsResponse)
	for _, id := range body.Groups {
		one := kmsg.NewDescribeGroupsResponseGroup()
		one.Group, one.State = id, "Dead"
		switch g := c.groups[id]; {
		case g != nil && g.classic != nil:
			g.classic.describe(&one)
		case body.Version >= 6:
			one.ErrorCode, one.ErrorMessage = kerr.GROUP_ID_NOT_FOUND, kmsg.StringPtr("there is no classic group of that id")
		}
		response.Groups = append(response.Groups, one)
	}
	c.respond(nil, r, response)
}

// describe leaves out what members say while that is about to change.
func (k *classicGroup) describe(one *kmsg.DescribeGroupsResponseGroup) {
	one.State, one.ProtocolType = k.state.String(), k.protocolType
	if k.state == stateStable {
		one.Protocol = k.protocol
	}
	for _, m := range k.sorted() {
		member := kmsg.NewDescribeGroupsResponseGroupMember()
		member.MemberID, member.InstanceID, member.ClientID, member.ClientHost = m.id, m.instance, m.clientID, m.clientHost
		member.ProtocolMetadata, member.MemberAssignment = []byte{}, []byte{}
		if k.state == stateStable {
			member.ProtocolMetadata = m.metadata(k.protocol)
		}
		if m.assignment != nil { // of the generation before while the next one is not settled
			member.MemberAssignment = m.assignment
		}
		one.Members = append(one.Members, member)
	}
}

// consumerGroupDescribe tells all about consumer groups.
func (c *Core) consumerGroupDescribe(r *Request, body *kmsg.ConsumerGroupDescribeRequest) {
	response := body.ResponseKind().(*kmsg.ConsumerGroupDescribeResponse)
	for _, id := range body.Groups {
		one := kmsg.NewConsumerGroupDescribeResponseGroup()
		one.Group = id
		switch g := c.groups[id]; {
		case id == "":
			one.ErrorCode = kerr.INVALID_GROUP_ID
		case g == nil || g.consumer == nil:
			one.ErrorCode, one.ErrorMessage = kerr.GROUP_ID_NOT_FOUND, kmsg.StringPtr("there is no consumer group of that id")
		default:
			g.consumer.describe(&one, c)
		}
		response.Groups = append(response.Groups, one)
	}
	c.respond(nil, r, response)
}

func (k *consumerGroup) describe(one *kmsg.ConsumerGroupDescribeResponseGroup, c *Core) {
	one.State, one.Epoch, one.AssignmentEpoch, one.AssignorName = k.state(), k.epoch, k.assignmentEpoch, k.assignor(c.opts.Assignor)
	for _, id := range sortedKeys(k.members) {
		m := k.members[id]
		member := kmsg.NewConsumerGroupDescribeResponseGroupMember()
		member.MemberID, member.InstanceID, member.RackID, member.MemberEpoch = m.id, m.instance, m.rack, m.epoch
		member.ClientID, member.ClientHost = m.clientID, m.clientHost
		member.SubscribedTopics, member.SubscribedTopicRegex = m.topics, m.regex
		if m.regex == nil {
			member.SubscribedTopicRegex = new(string) // there may be null, but in Kafka there is not
		}
		member.Assignment = c.describePartitions(m.assigned)
		member.TargetAssignment = c.describePartitions(k.target[id])
		member.MemberType = 1
		one.Members = append(one.Members, member)
	}
}

// describePartitions leaves out topics that exist no more, since they have no name.
func (c *Core) describePartitions(has owned) kmsg.Assignment {
	a := kmsg.NewAssignment()
	for _, t := range has.byTopic() {
		topic := c.topics.byID[t.id]
		if topic == nil {
			continue
		}
		one := kmsg.NewAssignmentTopicPartition()
		one.TopicID, one.Topic, one.Partitions = t.id, topic.Name, t.partitions
		a.TopicPartitions = append(a.TopicPartitions, one)
	}
	return a
}

// deleteGroups removes empty groups with their offsets.
func (c *Core) deleteGroups(r *Request, body *kmsg.DeleteGroupsRequest) {
	response := body.ResponseKind().(*kmsg.DeleteGroupsResponse)
	for _, id := range body.Groups {
		one := kmsg.NewDeleteGroupsResponseGroup()
		one.Group = id
		switch g := c.groups[id]; {
		case id == "":
			one.ErrorCode = kerr.INVALID_GROUP_ID
		case g == nil:
			one.ErrorCode = kerr.GROUP_ID_NOT_FOUND
		case !g.isEmpty():
			one.ErrorCode = kerr.NON_EMPTY_GROUP
		default:
			c.delete(g)
		}
		response.Groups = append(response.Groups, one)
	}
	c.respond(nil, r, response)
}

func (c *Core) delete(g *group) {
	var records []Record
	for _, topic := range sortedKeys(g.offsets) {
		for _, p := range sortedKeys(g.offsets[topic]) {
			records = append(records, Record{Key: offsetKey(g.id, topic, p)})
		}
	}
	c.write(g, append(records, g.tombstones()...)...)
	c.drop(g)
}
