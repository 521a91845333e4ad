package kafka

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/internal/kerr"
)

// OffsetCommit, versions 0 to 10. Version 0, which Kafka kept elsewhere, is taken like
// version 1. From version 10 on topics are given by id, so that nothing is committed for
// another topic of the same name. Partitions that do not exist are refused each by itself.
// Needs Read on the group and on the topics.
func (c *call) offsetCommit(q *kmsg.OffsetCommitRequest) kmsg.Response {
	r := q.ResponseKind().(*kmsg.OffsetCommitResponse)
	denied := !c.mayUse(kmsg.ACLOperationRead, q.Group)
	codes := make([]int16, len(q.Topics))
	part := *q
	part.Topics = make([]kmsg.OffsetCommitRequestTopic, 0, len(q.Topics))
	for i := range q.Topics {
		t := &q.Topics[i]
		c.nameFor(q.Version, &t.Topic, t.TopicID)
		if codes[i] = c.refuses(kmsg.ACLOperationRead, q.Version, t.Topic); denied {
			codes[i] = groupDenied
		}
		if codes[i] == kerr.NONE {
			part.Topics = append(part.Topics, *t)
		}
	}
	if len(part.Topics) == len(q.Topics) && !denied {
		return c.coordinate(q)
	}
	var taken []kmsg.OffsetCommitResponseTopic
	if len(part.Topics) > 0 {
		taken = c.coordinate(&part).(*kmsg.OffsetCommitResponse).Topics
	}
	for i := range q.Topics {
		t := &q.Topics[i]
		if codes[i] == kerr.NONE {
			r.Topics, taken = append(r.Topics, taken[0]), taken[1:]
			continue
		}
		refused := kmsg.NewOffsetCommitResponseTopic()
		refused.Topic, refused.TopicID = t.Topic, t.TopicID
		for j := range t.Partitions {
			p := kmsg.NewOffsetCommitResponseTopicPartition()
			p.Partition, p.ErrorCode = t.Partitions[j].Partition, codes[i]
			refused.Partitions = append(refused.Partitions, p)
		}
		r.Topics = append(r.Topics, refused)
	}
	return r
}

// only returns those that are wanted. A nil list stays nil.
func only[T any](all []T, wanted func(*T) bool) []T {
	if all == nil {
		return nil
	}
	kept := make([]T, 0, len(all))
	for i := range all {
		if wanted(&all[i]) {
			kept = append(kept, all[i])
		}
	}
	return kept
}
