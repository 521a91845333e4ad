package kafka

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/internal/kerr"
)

// OffsetCommit, versions 0 to 9. Version 0, which Kafka kept elsewhere, is taken like
// version 1. Partitions that do not exist are refused each by itself. Needs Read on the
// group and on the topics.
func (c *call) offsetCommit(q *kmsg.OffsetCommitRequest) kmsg.Response {
	r := q.ResponseKind().(*kmsg.OffsetCommitResponse)
	code := kerr.TOPIC_AUTHORIZATION_FAILED
	part := *q
	if c.mayUse(kmsg.ACLOperationRead, q.Group) {
		part.Topics = only(q.Topics, func(t *kmsg.OffsetCommitRequestTopic) bool { return c.mayTopic(kmsg.ACLOperationRead, t.Topic) })
	} else {
		code, part.Topics = groupDenied, nil
	}
	if len(part.Topics) == len(q.Topics) && code != groupDenied {
		return c.coordinate(q)
	}
	var taken []kmsg.OffsetCommitResponseTopic
	if len(part.Topics) > 0 {
		taken = c.coordinate(&part).(*kmsg.OffsetCommitResponse).Topics
	}
	for i := range q.Topics {
		t := &q.Topics[i]
		if len(taken) > 0 && code != groupDenied && c.mayTopic(kmsg.ACLOperationRead, t.Topic) {
			r.Topics, taken = append(r.Topics, taken[0]), taken[1:]
			continue
		}
		refused := kmsg.NewOffsetCommitResponseTopic()
		refused.Topic = t.Topic
		for j := range t.Partitions {
			p := kmsg.NewOffsetCommitResponseTopicPartition()
			p.Partition, p.ErrorCode = t.Partitions[j].Partition, code
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
