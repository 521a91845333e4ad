package kafka

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/internal/kerr"
)

// ConsumerGroupDescribe, versions 0 and 1. Needs Describe on each group, and on every
// topic of which a member has a partition: a group with another one is shown without its
// members.
func (c *call) consumerGroupDescribe(q *kmsg.ConsumerGroupDescribeRequest) kmsg.Response {
	r := q.ResponseKind().(*kmsg.ConsumerGroupDescribeResponse)
	part := *q
	part.Groups = only(q.Groups, func(name *string) bool { return c.mayUse(kmsg.ACLOperationDescribe, *name) })
	taken := c.coordinate(&part).(*kmsg.ConsumerGroupDescribeResponse).Groups
	for _, name := range q.Groups {
		one := kmsg.NewConsumerGroupDescribeResponseGroup()
		one.Group, one.ErrorCode = name, groupDenied
		if len(taken) > 0 && c.mayUse(kmsg.ACLOperationDescribe, name) {
			one, taken = taken[0], taken[1:]
			if q.IncludeAuthorizedOperations && one.ErrorCode == kerr.NONE {
				one.AuthorizedOperations = c.operations(kmsg.ACLResourceTypeGroup, name)
			}
			if !c.mayDescribeAll(one.Members) {
				one.ErrorCode, one.Members = kerr.TOPIC_AUTHORIZATION_FAILED, nil
				one.ErrorMessage = kmsg.StringPtr("a member has a topic that this client may not describe")
			}
		}
		r.Groups = append(r.Groups, one)
	}
	return r
}

// mayDescribeAll says whether the client may describe all topics that members have.
func (c *call) mayDescribeAll(members []kmsg.ConsumerGroupDescribeResponseGroupMember) bool {
	seen := map[string]bool{}
	for i := range members {
		for _, a := range []*kmsg.Assignment{&members[i].Assignment, &members[i].TargetAssignment} {
			for j := range a.TopicPartitions {
				topic := a.TopicPartitions[j].Topic
				if !seen[topic] && !c.mayTopic(kmsg.ACLOperationDescribe, topic) {
					return false
				}
				seen[topic] = true
			}
		}
	}
	return true
}
