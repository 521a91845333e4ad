package kafka

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/internal/kerr"
)

// ConsumerGroupHeartbeat, versions 0 and 1. Needs Read on the group and Describe on the
// topics that the member names. Topics that an expression finds are not checked here:
// reading them is.
func (c *call) consumerGroupHeartbeat(q *kmsg.ConsumerGroupHeartbeatRequest) kmsg.Response {
	r := q.ResponseKind().(*kmsg.ConsumerGroupHeartbeatResponse)
	if !c.mayUse(kmsg.ACLOperationRead, q.Group) {
		r.ErrorCode = groupDenied
		return r
	}
	for _, topic := range q.SubscribedTopicNames {
		if !c.mayTopic(kmsg.ACLOperationDescribe, topic) {
			r.ErrorCode = kerr.TOPIC_AUTHORIZATION_FAILED
			return r
		}
	}
	return c.coordinate(q)
}
