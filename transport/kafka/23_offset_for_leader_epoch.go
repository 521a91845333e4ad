package kafka

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/internal/kerr"
)

// OffsetForLeaderEpoch, versions 2 to 4, where a partition is led: the largest epoch with
// records that is not above the given one, and where it ends. A client whose position is
// behind that end has read what was never committed (KIP-320). An epoch before all that
// are known ends at the start; one that is not there yet is -1.
func (c *call) offsetForLeaderEpoch(q *kmsg.OffsetForLeaderEpochRequest) kmsg.Response {
	r := q.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
	for i := range q.Topics {
		t := kmsg.NewOffsetForLeaderEpochResponseTopic()
		t.Topic = q.Topics[i].Topic
		allowed := c.allowed(kmsg.ACLOperationDescribe, kmsg.ACLResourceTypeTopic, t.Topic)
		for j := range q.Topics[i].Partitions {
			given := &q.Topics[i].Partitions[j]
			p := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			p.Partition, p.LeaderEpoch, p.EndOffset = given.Partition, noEpoch, -1
			p.ErrorCode = kerr.TOPIC_AUTHORIZATION_FAILED
			if allowed {
				p.ErrorCode, _ = c.code(c.epochEnd(t.Topic, given, &p))
			}
			t.Partitions = append(t.Partitions, p)
		}
		r.Topics = append(r.Topics, t)
	}
	return r
}

func (c *call) epochEnd(topic string, q *kmsg.OffsetForLeaderEpochRequestTopicPartition, r *kmsg.OffsetForLeaderEpochResponseTopicPartition) error {
	p, err := c.broker().Partition(topic, q.Partition)
	if err != nil {
		return err
	}
	at := p.Offsets()
	if err := at.led(q.CurrentLeaderEpoch); err != nil {
		return err
	}
	r.LeaderEpoch, r.EndOffset = epochEnd(p, &at, q.LeaderEpoch)
	return nil
}
