package kafka

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/internal/kerr"
)

// OffsetDelete, version 0: offsets of topics that no member is subscribed to. Partitions
// that do not exist are refused each by itself. Needs Delete on the group and Read on the
// topics.
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
			c.refuseMissing(&taken[0])
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

// refuseMissing says of partitions that there are none. No offsets of such are kept.
func (c *call) refuseMissing(t *kmsg.OffsetDeleteResponseTopic) {
	known, _ := c.broker().Topic(t.Topic)
	for i := range t.Partitions {
		p := &t.Partitions[i]
		if p.ErrorCode == kerr.NONE && (p.Partition < 0 || int(p.Partition) >= len(known.Partitions)) {
			p.ErrorCode = kerr.UNKNOWN_TOPIC_OR_PARTITION
		}
	}
}
