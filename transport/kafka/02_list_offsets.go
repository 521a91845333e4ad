package kafka

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/internal/kerr"
)

// What a ListOffsets request can ask for in the place of a time.
const (
	latestOffset        = -1
	earliestOffset      = -2
	maxTimestampOffset  = -3 // from version 7 on (KIP-734)
	earliestLocalOffset = -4 // from version 8 on; the same, since nothing is elsewhere
)

// ListOffsets, versions 0 to 8, where a partition is led. A time finds the first record
// that is as late or later, inside a compressed batch too. There are no transactions, so
// that both isolation levels see up to the high watermark. Version 0 lists the end and
// the start, or what a time finds.
func (c *call) listOffsets(q *kmsg.ListOffsetsRequest) kmsg.Response {
	r := q.ResponseKind().(*kmsg.ListOffsetsResponse)
	for i := range q.Topics {
		topic := kmsg.NewListOffsetsResponseTopic()
		topic.Topic = q.Topics[i].Topic
		allowed := c.allowed(kmsg.ACLOperationDescribe, kmsg.ACLResourceTypeTopic, topic.Topic)
		twice := repeated(q.Topics[i].Partitions, func(p *kmsg.ListOffsetsRequestTopicPartition) int32 { return p.Partition })
		for j := range q.Topics[i].Partitions {
			if again, ok := twice[q.Topics[i].Partitions[j].Partition]; ok && !again {
				continue // it was answered
			}
			l := offsetLookup{q: &q.Topics[i].Partitions[j], version: q.Version, isolation: q.IsolationLevel}
			l.r = kmsg.NewListOffsetsResponseTopicPartition()
			l.r.Partition = l.q.Partition
			l.r.OldStyleOffsets = []int64{}
			switch {
			case !allowed:
				l.r.ErrorCode = kerr.TOPIC_AUTHORIZATION_FAILED
			case twice[l.q.Partition]:
				l.r.ErrorCode, twice[l.q.Partition] = kerr.INVALID_REQUEST, false
			default:
				l.r.ErrorCode, _ = c.code(l.look(c.broker(), topic.Topic))
			}
			topic.Partitions = append(topic.Partitions, l.r)
		}
		r.Topics = append(r.Topics, topic)
	}
	return r
}

// offsetLookup answers for one partition.
type offsetLookup struct {
	q         *kmsg.ListOffsetsRequestTopicPartition
	r         kmsg.ListOffsetsResponseTopicPartition
	version   int16
	isolation int8
}

func (l *offsetLookup) look(b Broker, topic string) error {
	p, err := b.Partition(topic, l.q.Partition)
	if err != nil {
		return err
	}
	at := p.Offsets()
	if err := at.led(l.q.CurrentLeaderEpoch); err != nil {
		return err
	}
	end := at.HighWatermark
	if l.isolation == readCommitted {
		end = at.LastStable
	}
	if l.version == 0 {
		return l.lookOld(p, at.Start, end)
	}
	switch {
	case l.q.Timestamp == latestOffset:
		l.r.Offset, l.r.LeaderEpoch = end, at.Epoch
	case l.q.Timestamp == earliestOffset, l.q.Timestamp == earliestLocalOffset && l.version >= 8:
		l.r.Offset, l.r.LeaderEpoch = at.Start, p.EpochAt(at.Start)
	case l.q.Timestamp == maxTimestampOffset && l.version >= 7:
		return l.found(p, p.MaxTimestamp)
	case l.q.Timestamp < 0:
		return kerr.Errorf(kerr.UNSUPPORTED_VERSION, "no offset is known by %d", l.q.Timestamp)
	default:
		return l.found(p, func() (int64, int64, bool, error) { return p.OffsetForTime(l.q.Timestamp) })
	}
	return nil
}

// found answers with what a search brings: -1 when that is nothing.
func (l *offsetLookup) found(p Partition, search func() (offset, timestamp int64, ok bool, err error)) error {
	offset, timestamp, ok, err := search()
	if err != nil || !ok {
		return err
	}
	l.r.Offset, l.r.Timestamp, l.r.LeaderEpoch = offset, timestamp, p.EpochAt(offset)
	return nil
}

// lookOld answers as version 0 does: with offsets, newest first.
func (l *offsetLookup) lookOld(p Partition, start, end int64) error {
	offsets := []int64{end}
	switch {
	case l.q.Timestamp == earliestOffset:
		offsets = []int64{start}
	case l.q.Timestamp != latestOffset:
		offset, _, ok, err := p.OffsetForTime(l.q.Timestamp)
		if err != nil {
			return err
		}
		if ok {
			offsets = []int64{offset}
		}
	}
	if last := offsets[len(offsets)-1]; last > start {
		offsets = append(offsets, start)
	}
	l.r.OldStyleOffsets = offsets[:min(len(offsets), max(int(l.q.MaxNumOffsets), 0))]
	return nil
}
