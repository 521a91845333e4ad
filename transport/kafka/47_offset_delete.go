package kafka

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/internal/kerr"
)

// OffsetDelete, version 0: offsets of topics that no member is subscribed to. Needs
// Delete on the group and Read on the topics.
func (c *call) offsetDelete(q *kmsg.OffsetDeleteRequest) kmsg.Response {
	r := q.ResponseKind().(*kmsg.OffsetDeleteResponse)
	if !c.mayUse(kmsg.ACLOperationDelete, q.Group) {
		r.ErrorCode = groupDenied
		return r
	}
	part := *q
	part.Topics = only(q.Topics, func(t *kmsg.OffsetDeleteRequestTopic) bool { return c.mayTopic(kmsg.ACLOperationRead, t.Topic) })
	answer := c.coordinate(&part).(*kmsg.OffsetDeleteResponse)
	if answer.ErrorCode != kerr.NONE {
		return answer
	}
	taken := answer.Topics
	for i := range q.Topics {
		t := &q.Topics[i]
		if len(taken) > 0 && c.mayTopic(kmsg.ACLOperationRead, t.Topic) {
			r.Topics, taken = append(r.Topics, taken[0]), taken[1:]
			continue
		}
		denied := kmsg.NewOffsetDeleteResponseTopic()
		denied.Topic = t.Topic
		for j := range t.Partitions {
			p := kmsg.NewOffsetDeleteResponseTopicPartition()
			p.Partition, p.ErrorCode = t.Partitions[j].Partition, kerr.TOPIC_AUTHORIZATION_FAILED
			denied.Partitions = append(denied.Partitions, p)
		}
		r.Topics = append(r.Topics, denied)
	}
	return r
}
