package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/internal/kerr"
)

// DeleteRecords, versions 0 to 2, where a partition is led: its start moves to the given
// offset, or to the high watermark if that is -1. The answer has the new start. Other
// replicas follow by themselves.
func (c *call) deleteRecords(q *kmsg.DeleteRecordsRequest) kmsg.Response {
	r := q.ResponseKind().(*kmsg.DeleteRecordsResponse)
	ctx, cancel := c.within(q.TimeoutMillis)
	defer cancel()
	var work []func()
	r.Topics = make([]kmsg.DeleteRecordsResponseTopic, len(q.Topics))
	for i := range q.Topics {
		t := &r.Topics[i]
		t.Topic = q.Topics[i].Topic
		t.Partitions = make([]kmsg.DeleteRecordsResponseTopicPartition, len(q.Topics[i].Partitions))
		for j := range t.Partitions {
			given, p := &q.Topics[i].Partitions[j], &t.Partitions[j]
			p.Partition, p.LowWatermark = given.Partition, -1
			work = append(work, func() {
				start, err := c.deleteBefore(ctx, t.Topic, given.Partition, given.Offset)
				if p.ErrorCode, _ = c.code(err); err == nil {
					p.LowWatermark = start
				}
			})
		}
	}
	each(len(work), func(i int) { work[i]() })
	return r
}

func (c *call) deleteBefore(ctx context.Context, topic string, number int32, before int64) (start int64, err error) {
	if !c.allowed(kmsg.ACLOperationDelete, kmsg.ACLResourceTypeTopic, topic) {
		return 0, notForYou()
	}
	p, err := c.broker().Partition(topic, number)
	switch {
	case err != nil:
		return 0, err
	case p.Internal():
		return 0, kerr.Errorf(kerr.INVALID_TOPIC_EXCEPTION, "topic %q is internal: clients do not delete its records", topic)
	case before < -1:
		return 0, kerr.Errorf(kerr.OFFSET_OUT_OF_RANGE, "offset %d: it is 0 or more, or -1 for the high watermark", before)
	}
	at := p.Offsets()
	if err := at.led(noEpoch); err != nil {
		return 0, err
	}
	return c.broker().DeleteRecords(ctx, topic, number, before)
}
