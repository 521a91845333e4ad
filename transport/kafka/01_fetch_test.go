package kafka

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/internal/kerr"
)

// fetchRequest reads partitions of topic "t" from offset 0.
func fetchRequest(partitions int) *kmsg.FetchRequest {
	q := kmsg.NewPtrFetchRequest()
	q.ReplicaID, q.MinBytes, q.MaxBytes = -1, 1, 1<<20
	t := kmsg.FetchRequestTopic{Topic: "t", TopicID: TopicID{1}}
	for i := range partitions {
		p := kmsg.NewFetchRequestTopicPartition()
		p.Partition, p.PartitionMaxBytes = int32(i), 1<<20
		t.Partitions = append(t.Partitions, p)
	}
	q.Topics = append(q.Topics, t)
	return q
}

// Every version gives what is there, and tells of every partition where it stands.
func TestFetch(t *testing.T) {
	full, empty, moved := newDataPartition(), newDataPartition(), newDataPartition()
	for i := range int64(3) {
		full.add(dataBatch(t, i, 1, 100))
	}
	empty.at.Start, empty.at.HighWatermark, empty.at.LastStable, empty.at.End = 4, 6, 6, 8
	moved.leader, moved.at.Leading, moved.at.Epoch = dataOther, false, 9
	b := oneTopic(full, empty, moved, empty)
	s := serveAdmin(t, b)
	want := bytes.Join([][]byte{full.batches[1], full.batches[2]}, nil)
	versionsOf(t, kmsg.Fetch, func(t *testing.T, version int16) {
		q := fetchRequest(5)
		q.IsolationLevel = int8(version & 1)
		at := q.Topics[0].Partitions
		at[0].FetchOffset, at[0].CurrentLeaderEpoch = 1, 5
		at[1].FetchOffset = 8
		at[2].CurrentLeaderEpoch = 5
		at[3].FetchOffset = 9
		q.Topics = append(q.Topics, kmsg.FetchRequestTopic{Topic: "nobody", TopicID: TopicID{2}, Partitions: at[:1]})
		r := askAdmin[*kmsg.FetchResponse](t, s, q, version)
		if len(r.Topics) != 2 || r.ErrorCode != 0 || r.SessionID != 0 || version < 13 && r.Topics[0].Topic != "t" || version >= 13 && r.Topics[0].TopicID != (TopicID{1}) {
			t.Fatalf("%+v", r)
		}
		unknown := int16(kerr.UNKNOWN_TOPIC_OR_PARTITION)
		if version >= fetchByID {
			unknown = kerr.UNKNOWN_TOPIC_ID
		}
		if code := r.Topics[1].Partitions[0].ErrorCode; code != unknown {
			t.Errorf("unknown topic: code %d, want %d", code, unknown)
		}
		fenced := int16(kerr.NONE)
		if version >= 9 {
			fenced = kerr.FENCED_LEADER_EPOCH
		} else {
			fenced = kerr.NOT_LEADER_OR_FOLLOWER
		}
		for i, x := range []struct {
			code           int16
			hw, start, end int64
		}{{0, 3, 0, 3}, {0, 6, 4, 6}, {fenced, -1, -1, -1}, {kerr.OFFSET_OUT_OF_RANGE, -1, -1, -1}, {kerr.UNKNOWN_TOPIC_OR_PARTITION, -1, -1, -1}} {
			p := r.Topics[0].Partitions[i]
			if p.ErrorCode != x.code || p.HighWatermark != x.hw || p.LastStableOffset != x.end || version >= 5 && p.LogStartOffset != x.start || p.PreferredReadReplica != -1 {
				t.Errorf("partition %d: %+v, want %+v", i, p, x)
			}
			if (p.AbortedTransactions == nil) != (q.IsolationLevel == 0 && x.code != kerr.UNKNOWN_TOPIC_OR_PARTITION) || p.RecordBatches == nil {
				t.Errorf("partition %d: aborted %v, records %v", i, p.AbortedTransactions, p.RecordBatches)
			}
		}
		if got := r.Topics[0].Partitions[0].RecordBatches; !bytes.Equal(got, want) {
			t.Errorf("%d bytes of records, want %d", len(got), len(want))
		}
		hint := r.Topics[0].Partitions[2].CurrentLeader
		if version >= 12 && (hint.LeaderID != dataOther || hint.LeaderEpoch != 9) || version >= 16 && (len(r.Brokers) != 1 || r.Brokers[0].Host != "eight") {
			t.Errorf("leader %+v, nodes %+v", hint, r.Brokers)
		}
	})
}

// The first batch comes whole, whatever the bounds; others only where they fit.
func TestFetchBounds(t *testing.T) {
	parts := []*dataPartition{newDataPartition(), newDataPartition(), newDataPartition()}
	for i := range int64(4) {
		parts[1].add(dataBatch(t, i, 1, 1000))
		parts[2].add(dataBatch(t, i, 1, 300<<10))
	}
	s := serveAdmin(t, oneTopic(parts...))
	small, large := len(parts[1].batches[0]), len(parts[2].batches[0])
	for name, c := range map[string]struct {
		all, each int
		want      [3]int
	}{
		"nothing fits":          {0, 1, [3]int{0, small, 0}},
		"one of a partition":    {1 << 30, 10, [3]int{0, small, 0}},
		"all of the first":      {small*4 + 100, 1 << 30, [3]int{0, small * 4, 0}},
		"a bound of partitions": {1 << 30, small * 2, [3]int{0, small * 2, 0}},
		"all":                   {1 << 30, 1 << 30, [3]int{0, small * 4, large * 4}},
		"part of the second":    {large*2 + small*5, 1 << 30, [3]int{0, small * 4, large * 2}},
	} {
		t.Run(name, func(t *testing.T) {
			q := fetchRequest(3)
			q.MaxBytes = int32(c.all)
			for i := range q.Topics[0].Partitions {
				q.Topics[0].Partitions[i].PartitionMaxBytes = int32(c.each)
			}
			r := askAdmin[*kmsg.FetchResponse](t, s, q, 12)
			for i, p := range r.Topics[0].Partitions {
				if len(p.RecordBatches) != c.want[i] {
					t.Errorf("partition %d: %d bytes, want %d", i, len(p.RecordBatches), c.want[i])
				}
			}
		})
	}
	ctx, cancel := context.WithTimeout(t.Context(), askTimeout)
	defer cancel()
	if err := s.fetchMemory.Acquire(ctx, s.opts.FetchMemoryMax); err != nil {
		t.Error("memory of answers that were sent is still charged")
	}
}

// A fetch waits for records, and only for as many as it wants.
func TestFetchWaits(t *testing.T) {
	p, other := newDataPartition(), newDataPartition()
	one := dataBatch(t, 0, 1, 100)
	p.add(one)
	c := dialData(t, serveAdmin(t, oneTopic(p, other)))
	q := fetchRequest(2)
	q.MaxWaitMillis, q.MinBytes = int32(askTimeout/time.Millisecond), int32(len(one)*2)
	c.send(q, 12)
	eventually(t, other.waits)
	other.add(dataBatch(t, 0, 1, 100))
	r := kmsg.NewPtrFetchResponse()
	r.SetVersion(12)
	if err := c.receive(r); err != nil || len(r.Topics[0].Partitions[0].RecordBatches) != len(one) || len(r.Topics[0].Partitions[1].RecordBatches) != len(one) {
		t.Fatalf("%+v %v", r, err)
	}
	if n := p.subscribers() + other.subscribers(); n != 0 {
		t.Errorf("%d are told of what comes", n)
	}
	q.MinBytes, q.MaxWaitMillis = 1<<20, 10
	c.send(q, 12)
	if err := c.receive(r); err != nil || len(r.Topics[0].Partitions[0].RecordBatches) != len(one) {
		t.Errorf("after MaxWait: %+v %v", r, err)
	}
}

// Clients that name their rack are sent to a replica there.
func TestFetchPreferredReplica(t *testing.T) {
	p := newDataPartition()
	p.add(dataBatch(t, 0, 1, 100))
	p.preferred = dataOther
	s := serveAdmin(t, oneTopic(p))
	versionsOf(t, kmsg.Fetch, func(t *testing.T, version int16) {
		q := fetchRequest(1)
		q.Rack = "r"
		got := askAdmin[*kmsg.FetchResponse](t, s, q, version).Topics[0].Partitions[0]
		if there := version >= fetchFollower; there != (got.PreferredReadReplica == dataOther) || there == (len(got.RecordBatches) > 0) {
			t.Errorf("%+v", got)
		}
	})
	p.set(func() { p.at.Leading = false }) // a follower serves itself
	q := fetchRequest(1)
	q.Rack = "r"
	if got := askAdmin[*kmsg.FetchResponse](t, s, q, 12).Topics[0].Partitions[0]; got.PreferredReadReplica != -1 || len(got.RecordBatches) == 0 {
		t.Errorf("follower: %+v", got)
	}
}

// A client whose last record is of an epoch that ended before is told where.
func TestFetchDiverging(t *testing.T) {
	p := newDataPartition() // of which epoch n+1 ends at 10n, with records of epoch n
	p.add(dataBatch(t, 0, 1, 100))
	p.at.End, p.at.HighWatermark = 40, 40
	s := serveAdmin(t, oneTopic(p))
	for _, c := range []struct {
		last, code int16
		diverges   bool
	}{{-1, kerr.NONE, false}, {3, kerr.NONE, true}, {6, kerr.OFFSET_OUT_OF_RANGE, false}} {
		q := fetchRequest(1)
		q.Topics[0].Partitions[0].LastFetchedEpoch = int32(c.last)
		got := askAdmin[*kmsg.FetchResponse](t, s, q, 12).Topics[0].Partitions[0]
		if got.ErrorCode != c.code || (got.DivergingEpoch.Epoch == 2 && got.DivergingEpoch.EndOffset == 30) != c.diverges || (len(got.RecordBatches) > 0) != (c.last == -1) {
			t.Errorf("last epoch %d: %+v", c.last, got)
		}
	}
}
