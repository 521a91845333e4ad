package kafka

import (
	"context"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/internal/kerr"
)

// Offsets are found by what every version can ask for.
func TestListOffsets(t *testing.T) {
	p, moved := newDataPartition(), newDataPartition()
	p.at = Offsets{Start: 4, LastStable: 8, HighWatermark: 9, End: 12, Epoch: 5, Leading: true}
	moved.at.Leading = false
	s := serveAdmin(t, oneTopic(p, moved))
	versionsOf(t, kmsg.ListOffsets, func(t *testing.T, version int16) {
		for name, c := range map[string]struct {
			at           int64
			epoch        int32
			since        int16 // the first version that can
			isolation    int8
			code         int16
			offset, time int64
			found        int32 // epoch
		}{
			"latest":              {at: -1, epoch: -1, offset: 9, time: -1, found: 5},
			"latest, committed":   {at: -1, epoch: -1, since: 2, isolation: 1, offset: 8, time: -1, found: 5},
			"earliest":            {at: -2, epoch: 5, offset: 4, time: -1, found: 4},
			"time":                {at: 6, epoch: -1, offset: 12, time: 7, found: 12},
			"time, none":          {at: 100, epoch: -1, offset: -1, time: -1, found: -1},
			"latest time":         {at: -3, epoch: -1, since: 7, offset: 3, time: 33, found: 3},
			"earliest local":      {at: -4, epoch: -1, since: 8, offset: 4, time: -1, found: 4},
			"unknown":             {at: -9, epoch: -1, since: 1, code: kerr.UNSUPPORTED_VERSION, offset: -1, time: -1, found: -1},
			"older epoch":         {at: -1, epoch: 4, since: 4, code: kerr.FENCED_LEADER_EPOCH, offset: -1, time: -1, found: -1},
			"epoch of the future": {at: -1, epoch: 6, since: 4, code: kerr.UNKNOWN_LEADER_EPOCH, offset: -1, time: -1, found: -1},
		} {
			if version < c.since || version == 0 && c.offset < 0 {
				continue
			}
			q := kmsg.NewPtrListOffsetsRequest()
			q.ReplicaID, q.IsolationLevel = -1, c.isolation
			q.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: "t", Partitions: []kmsg.ListOffsetsRequestTopicPartition{
				{Partition: 0, Timestamp: c.at, CurrentLeaderEpoch: c.epoch, MaxNumOffsets: 1}, {Partition: 1, Timestamp: -1, CurrentLeaderEpoch: -1}, {Partition: 2, CurrentLeaderEpoch: -1},
			}}}
			r := askAdmin[*kmsg.ListOffsetsResponse](t, s, q, version).Topics[0].Partitions
			got := r[0]
			if version == 0 {
				if len(got.OldStyleOffsets) != 1 || got.OldStyleOffsets[0] != c.offset {
					t.Errorf("%s: %+v", name, got)
				}
				continue
			}
			if got.ErrorCode != c.code || got.Offset != c.offset || got.Timestamp != c.time || version >= 4 && got.LeaderEpoch != c.found {
				t.Errorf("%s: %+v, want %+v", name, got, c)
			}
			if r[1].ErrorCode != kerr.NOT_LEADER_OR_FOLLOWER || r[2].ErrorCode != kerr.UNKNOWN_TOPIC_OR_PARTITION {
				t.Errorf("%s: codes %d and %d", name, r[1].ErrorCode, r[2].ErrorCode)
			}
		}
	})
}

// A partition that is asked for twice is answered once.
func TestListOffsetsTwice(t *testing.T) {
	s := serveAdmin(t, oneTopic(newDataPartition(), newDataPartition()))
	q := kmsg.NewPtrListOffsetsRequest()
	ask := func(n int32) kmsg.ListOffsetsRequestTopicPartition {
		return kmsg.ListOffsetsRequestTopicPartition{Partition: n, Timestamp: -1, CurrentLeaderEpoch: -1}
	}
	q.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: "t", Partitions: []kmsg.ListOffsetsRequestTopicPartition{ask(0), ask(1), ask(0)}}}
	got := askAdmin[*kmsg.ListOffsetsResponse](t, s, q, 6).Topics[0].Partitions
	if len(got) != 2 || got[0].ErrorCode != kerr.INVALID_REQUEST || got[1].ErrorCode != kerr.NONE {
		t.Errorf("%+v", got)
	}
}

// Where an epoch ends is told where the partition is led.
func TestOffsetForLeaderEpoch(t *testing.T) {
	p, moved := newDataPartition(), newDataPartition()
	p.at.Start, moved.at.Leading = 4, false
	s := serveAdmin(t, oneTopic(p, moved))
	versionsOf(t, kmsg.OffsetForLeaderEpoch, func(t *testing.T, version int16) {
		q := kmsg.NewPtrOffsetForLeaderEpochRequest()
		topic := kmsg.OffsetForLeaderEpochRequestTopic{Topic: "t"}
		for _, x := range [][3]int32{{0, 5, 3}, {0, -1, 0}, {0, -1, 6}, {0, -1, -1}, {0, 4, 3}, {1, -1, 3}, {2, -1, 3}} {
			topic.Partitions = append(topic.Partitions, kmsg.OffsetForLeaderEpochRequestTopicPartition{Partition: x[0], CurrentLeaderEpoch: x[1], LeaderEpoch: x[2]})
		}
		q.Topics = append(q.Topics, topic)
		got := askAdmin[*kmsg.OffsetForLeaderEpochResponse](t, s, q, version).Topics[0].Partitions
		for i, want := range []kmsg.OffsetForLeaderEpochResponseTopicPartition{
			{Partition: 0, LeaderEpoch: 2, EndOffset: 30}, {Partition: 0, LeaderEpoch: 0, EndOffset: 4},
			{Partition: 0, LeaderEpoch: -1, EndOffset: -1}, {Partition: 0, LeaderEpoch: -1, EndOffset: -1},
			{Partition: 0, LeaderEpoch: -1, EndOffset: -1, ErrorCode: kerr.FENCED_LEADER_EPOCH},
			{Partition: 1, LeaderEpoch: -1, EndOffset: -1, ErrorCode: kerr.NOT_LEADER_OR_FOLLOWER},
			{Partition: 2, LeaderEpoch: -1, EndOffset: -1, ErrorCode: kerr.UNKNOWN_TOPIC_OR_PARTITION},
		} {
			if g := got[i]; g.Partition != want.Partition || g.LeaderEpoch != want.LeaderEpoch || g.EndOffset != want.EndOffset || g.ErrorCode != want.ErrorCode {
				t.Errorf("%d: %+v, want %+v", i, g, want)
			}
		}
	})
}

func (b *dataBroker) DeleteRecords(_ context.Context, topic string, number int32, before int64) (start int64, err error) {
	if before > 100 {
		return 0, kerr.Errorf(kerr.OFFSET_OUT_OF_RANGE, "too far")
	}
	return before + 1, nil
}

// Records are deleted where the partition is led, and clients may.
func TestDeleteRecords(t *testing.T) {
	internal, moved := newDataPartition(), newDataPartition()
	internal.internal, moved.at.Leading = true, false
	s := serveAdmin(t, oneTopic(newDataPartition(), internal, moved))
	versionsOf(t, kmsg.DeleteRecords, func(t *testing.T, version int16) {
		q := kmsg.NewPtrDeleteRecordsRequest()
		topic := kmsg.DeleteRecordsRequestTopic{Topic: "t"}
		for _, x := range [][2]int64{{0, 7}, {0, -1}, {0, -2}, {0, 101}, {1, 7}, {2, 7}, {3, 7}} {
			topic.Partitions = append(topic.Partitions, kmsg.DeleteRecordsRequestTopicPartition{Partition: int32(x[0]), Offset: x[1]})
		}
		q.Topics = append(q.Topics, topic)
		got := askAdmin[*kmsg.DeleteRecordsResponse](t, s, q, version).Topics[0].Partitions
		for i, want := range []struct {
			code int16
			low  int64
		}{
			{0, 8}, {0, 0}, {kerr.OFFSET_OUT_OF_RANGE, -1}, {kerr.OFFSET_OUT_OF_RANGE, -1}, {kerr.INVALID_TOPIC_EXCEPTION, -1},
			{kerr.NOT_LEADER_OR_FOLLOWER, -1}, {kerr.UNKNOWN_TOPIC_OR_PARTITION, -1},
		} {
			if got[i].ErrorCode != want.code || got[i].LowWatermark != want.low {
				t.Errorf("%d: %+v, want %+v", i, got[i], want)
			}
		}
	})
}

// Each idempotent producer gets an id; there are no transactions.
func TestInitProducerID(t *testing.T) {
	b := oneTopic()
	s := serveAdmin(t, b)
	versionsOf(t, kmsg.InitProducerID, func(t *testing.T, version int16) {
		ask := func(id *string, producer int64, epoch int16) (code int16, got int64) {
			q := kmsg.NewPtrInitProducerIDRequest()
			q.TransactionalID, q.ProducerID, q.ProducerEpoch = id, producer, epoch
			r := askAdmin[*kmsg.InitProducerIDResponse](t, s, q, version)
			return r.ErrorCode, r.ProducerID
		}
		text := "x"
		if code, id := ask(nil, -1, -1); code != 0 || id != 77 {
			t.Errorf("code %d, id %d", code, id)
		}
		if code, id := ask(&text, -1, -1); code != kerr.UNSUPPORTED_VERSION || id != -1 {
			t.Errorf("transactional: code %d, id %d", code, id)
		}
		if code, _ := ask(nil, 5, -1); version >= 3 && code != kerr.INVALID_REQUEST {
			t.Errorf("half an identity: code %d", code)
		}
		if code, id := ask(nil, 5, 3); code != 0 || id != 77 {
			t.Errorf("again: code %d, id %d", code, id)
		}
	})
	b = oneTopic()
	b.failed = context.DeadlineExceeded
	s = serveAdmin(t, b)
	if code := askAdmin[*kmsg.InitProducerIDResponse](t, s, kmsg.NewPtrInitProducerIDRequest(), 4).ErrorCode; code != kerr.COORDINATOR_LOAD_IN_PROGRESS {
		t.Errorf("without the cluster: code %d", code)
	}
}
