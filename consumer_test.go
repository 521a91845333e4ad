package billet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/billetlog/billet/internal/batch"
	"github.com/billetlog/billet/replication"
	"github.com/billetlog/billet/segment"
)

// consumerRig is a consumer on a fake topic "t".
type consumerRig struct {
	t    testing.TB
	ctx  context.Context
	cat  *fakeCatalog
	logs []*fakeLog
	c    *Consumer
}

// newConsumerRig makes a topic whose partition n has records n:0, n:1 and so on.
func newConsumerRig(t testing.TB, partitions, batches, each int, config ConsumerConfig) *consumerRig {
	t.Helper()
	r := &consumerRig{t: t, ctx: testContext(t), cat: newFakeCatalog()}
	r.logs = r.cat.topic("t", partitions, 1<<20)
	for n := range partitions {
		for range batches {
			r.fill(n, each, batch.None)
		}
	}
	if config.Assign == nil && config.Topics == nil {
		config.Topics = []string{"t"}
	}
	var err error
	if r.c, err = newConsumer(r.cat, nil, config, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.c.Close() })
	return r
}

func (r *consumerRig) fill(partition, records int, codec batch.Codec) {
	f := r.logs[partition]
	base := f.HighWatermark()
	f.fill(r.t, records, func(i int) []byte { return fmt.Appendf(nil, "%d:%d", partition, base+int64(i)) }, codec)
}

func (r *consumerRig) poll() []Record {
	r.t.Helper()
	records, err := r.c.Poll(r.ctx)
	if err != nil {
		r.t.Fatalf("poll: %v", err)
	}
	r.check(records)
	return records
}

// check wants each record to be what its place says.
func (r *consumerRig) check(records []Record) {
	r.t.Helper()
	for _, rec := range records {
		if want := fmt.Sprintf("%d:%d", rec.Partition, rec.Offset); string(rec.Value) != want || rec.Topic != "t" {
			r.t.Fatalf("%s/%d offset %d has %q", rec.Topic, rec.Partition, rec.Offset, rec.Value)
		}
	}
}

// drain polls n records and wants each partition in order.
func (r *consumerRig) drain(n int) {
	r.t.Helper()
	next := map[int32]int64{}
	for n > 0 {
		records := r.poll()
		for _, rec := range records {
			if at, seen := next[rec.Partition]; seen && rec.Offset != at {
				r.t.Fatalf("partition %d: offset %d where %d was due", rec.Partition, rec.Offset, at)
			}
			next[rec.Partition] = rec.Offset + 1
		}
		n -= len(records)
	}
	if n != 0 {
		r.t.Fatalf("%d records too many", -n)
	}
}

func TestConsumerReadsAll(t *testing.T) {
	for _, config := range []ConsumerConfig{
		{}, {MaxPollRecords: 1}, {MaxPollRecords: 7}, {MaxPollBytes: 1024}, {MaxPollBytes: 1024, MaxPollRecords: 3},
	} {
		r := newConsumerRig(t, 3, 20, 10, config)
		r.drain(600)
		for n := range int32(3) {
			if at, err := r.c.Position("t", n); at != 200 || err != nil {
				t.Errorf("position %d, %v", at, err)
			}
			if lag, err := r.c.Lag("t", n); lag != 0 || err != nil {
				t.Errorf("lag %d, %v", lag, err)
			}
		}
	}
}

func TestConsumerCodecs(t *testing.T) {
	for _, limit := range []int{7, 60, 0} {
		r := newConsumerRig(t, 2, 0, 0, ConsumerConfig{MaxPollRecords: limit})
		for i := range 30 {
			r.fill(i%2, 50, batch.Codec(i%5))
		}
		r.drain(1500)
	}
	r := newConsumerRig(t, 1, 0, 0, ConsumerConfig{})
	for i := range 30 {
		r.fill(0, 50, batch.Codec(i%5))
	}
	_ = r.c.SeekToBeginning("t")
	// All records of one Poll are valid together.
	r.check(r.poll())
}

func TestConsumerHeaders(t *testing.T) {
	cat := newFakeCatalog()
	cat.topic("t", 1, 1<<20)
	p, err := newProducer(cat, ProducerConfig{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	ctx := testContext(t)
	want := []Record{
		{Key: nil, Value: nil},
		{Key: []byte{}, Value: []byte{}, Headers: []Header{{"a", nil}, {"a", []byte{}}}},
		{Key: []byte("k"), Value: []byte("v"), Timestamp: time.UnixMilli(12345), Headers: []Header{{"b", []byte("x")}, {"", []byte("y")}}},
	}
	for _, r := range want {
		r.Topic = "t"
		if err := p.Produce(ctx, r, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	c, err := newConsumer(cat, nil, ConsumerConfig{Topics: []string{"t"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	got, err := c.Poll(ctx)
	if err != nil || len(got) != len(want) {
		t.Fatalf("%d records, %v", len(got), err)
	}
	var kept []Record
	for i := range got {
		kept = append(kept, got[i].Clone())
	}
	for i, w := range want {
		g := kept[i]
		if (g.Key == nil) != (w.Key == nil) || (g.Value == nil) != (w.Value == nil) ||
			string(g.Key) != string(w.Key) || string(g.Value) != string(w.Value) || len(g.Headers) != len(w.Headers) {
			t.Errorf("record %d: %+v, want %+v", i, g, w)
			continue
		}
		for j, h := range w.Headers {
			if k := g.Headers[j]; k.Key != h.Key || string(k.Value) != string(h.Value) || (k.Value == nil) != (h.Value == nil) {
				t.Errorf("record %d header %d: %+v", i, j, k)
			}
		}
		if !w.Timestamp.IsZero() && !g.Timestamp.Equal(w.Timestamp) {
			t.Errorf("record %d: timestamp %v", i, g.Timestamp)
		}
		if w.Timestamp.IsZero() && time.Since(g.Timestamp) > time.Minute {
			t.Errorf("record %d: timestamp %v", i, g.Timestamp)
		}
	}
}

func TestConsumerIsFair(t *testing.T) {
	r := newConsumerRig(t, 3, 100, 10, ConsumerConfig{MaxPollBytes: 1024})
	seen := map[int32]bool{}
	for range 9 {
		for _, rec := range r.poll() {
			seen[rec.Partition] = true
		}
	}
	if len(seen) != 3 {
		t.Fatalf("nine polls read partitions %v", seen)
	}
}

func TestConsumerWaits(t *testing.T) {
	r := newConsumerRig(t, 2, 0, 0, ConsumerConfig{})
	got := make(chan error)
	go func() {
		_, err := r.c.Poll(r.ctx)
		got <- err
	}()
	waitFor(t, func() bool { return polling(r.c) })
	if _, err := r.c.Poll(r.ctx); !errors.Is(err, ErrConcurrentPoll) {
		t.Fatal(err)
	}
	r.fill(1, 1, batch.None)
	if err := <-got; err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(r.ctx)
	go func() {
		_, err := r.c.Poll(ctx)
		got <- err
	}()
	cancel()
	if err := <-got; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	r.fill(1, 1, batch.None)
	if _, err := r.c.Poll(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("with an ended context: %v", err)
	}
	r.poll()
	go func() {
		_, err := r.c.Poll(r.ctx)
		got <- err
	}()
	waitFor(t, func() bool { return polling(r.c) })
	_ = r.c.Close()
	if err := <-got; !errors.Is(err, ErrClosed) {
		t.Fatal(err)
	}
	if n := r.logs[0].subscribers(); n != 0 {
		t.Errorf("%d subscriptions left", n)
	}
}

// polling tells whether a goroutine is in Poll.
func polling(c *Consumer) bool {
	if c.poll.TryLock() {
		c.poll.Unlock()
		return false
	}
	return true
}

func TestConsumerSeeks(t *testing.T) {
	r := newConsumerRig(t, 2, 10, 10, ConsumerConfig{MaxPollRecords: 5})
	r.poll()
	for _, offset := range []int64{0, 1, 9, 10, 55, 99} {
		_ = r.c.Pause("t", 1)
		if err := r.c.Seek("t", 0, offset); err != nil {
			t.Fatal(err)
		}
		if got := r.poll()[0]; got.Offset != offset {
			t.Fatalf("offset %d after seeking %d", got.Offset, offset)
		}
	}
	// Batches of a fake have timestamps 1000 to 1009.
	if err := r.c.SeekToTime(r.ctx, "t", 0, time.UnixMilli(1004)); err != nil {
		t.Fatal(err)
	}
	if at, _ := r.c.Position("t", 0); at != 4 {
		t.Fatalf("position %d after seeking a time", at)
	}
	if err := r.c.SeekToTime(r.ctx, "t", 0, time.UnixMilli(9999)); err != nil {
		t.Fatal(err)
	}
	if at, _ := r.c.Position("t", 0); at != 100 {
		t.Fatalf("position %d after seeking a time that is not there", at)
	}
	_ = r.c.SeekToEnd("t", 0)
	r.fill(0, 1, batch.None)
	if got := r.poll(); len(got) != 1 || got[0].Offset != 100 {
		t.Fatalf("after the end: %d records from %d", len(got), got[0].Offset)
	}
	for name, err := range map[string]error{
		"seek": r.c.Seek("t", 7, 0), "pause": r.c.Pause("u"), "resume": r.c.Resume("t", 2),
		"begin": r.c.SeekToBeginning("u"), "end": r.c.SeekToEnd("t", 9),
		"time":     r.c.SeekToTime(r.ctx, "u", 0, time.Now()),
		"position": second(r.c.Position("u", 0)), "lag": second(r.c.Lag("u", 0)),
	} {
		if !errors.Is(err, ErrNotAssigned) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestConsumerPauses(t *testing.T) {
	r := newConsumerRig(t, 2, 10, 10, ConsumerConfig{MaxPollRecords: 5})
	first := r.poll()[0].Partition
	if err := r.c.Pause("t", first); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if got := r.poll()[0]; got.Partition == first {
			t.Fatal("a paused partition was read")
		}
	}
	ctx, cancel := context.WithTimeout(r.ctx, time.Millisecond)
	defer cancel()
	if got, err := r.c.Poll(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("%d records, %v", len(got), err)
	}
	if err := r.c.Resume("t"); err != nil {
		t.Fatal(err)
	}
	if got := r.poll()[0]; got.Partition != first || got.Offset != 5 {
		t.Fatalf("after Resume: partition %d offset %d", got.Partition, got.Offset)
	}
}

func TestConsumerOutOfRange(t *testing.T) {
	for _, c := range []struct {
		policy OnOutOfRange
		seek   int64
		want   int64 // -1: an error
	}{
		{FailOutOfRange, 3, -1}, {FailOutOfRange, 101, -1}, {FailOutOfRange, -1, -1},
		{ResetToEarliest, 3, 20}, {ResetToEarliest, 500, 20}, {ResetToLatest, 3, 100},
	} {
		r := newConsumerRig(t, 1, 10, 10, ConsumerConfig{OnOutOfRange: c.policy})
		r.logs[0].setStart(20)
		_ = r.c.Seek("t", 0, c.seek)
		if c.policy == ResetToLatest {
			go func() { // when it has been reset
				for at, _ := r.c.Position("t", 0); at != 100; at, _ = r.c.Position("t", 0) {
					time.Sleep(50 * time.Microsecond)
				}
				r.fill(0, 1, batch.None)
			}()
		}
		got, err := r.c.Poll(r.ctx)
		var out *OffsetError
		switch {
		case c.want < 0 && (!errors.As(err, &out) || !errors.Is(err, ErrOffsetOutOfRange) ||
			out.Topic != "t" || out.Start != 20 || out.End != 100 || out.Offset != c.seek):
			t.Errorf("%+v: %v", c, err)
		case c.want >= 0 && (err != nil || got[0].Offset != c.want):
			t.Errorf("%+v: %v", c, err)
		}
		if c.want < 0 {
			// It is told once; a seek makes it good.
			ctx, cancel := context.WithTimeout(r.ctx, time.Millisecond)
			if _, err := r.c.Poll(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%+v: second poll: %v", c, err)
			}
			cancel()
			_ = r.c.SeekToBeginning("t")
			if got := r.poll(); got[0].Offset != 20 {
				t.Errorf("after a seek: %d", got[0].Offset)
			}
		}
	}
}

func TestConsumerStartAtLatest(t *testing.T) {
	r := newConsumerRig(t, 1, 1, 10, ConsumerConfig{StartAt: Latest})
	r.fill(0, 1, batch.None)
	if got := r.poll(); got[0].Offset != 10 {
		t.Fatalf("first record is %d", got[0].Offset)
	}
}

func TestConsumerDamage(t *testing.T) {
	r := newConsumerRig(t, 2, 3, 10, ConsumerConfig{})
	r.logs[0].mu.Lock()
	b := r.logs[0].mu.batches[1]
	b[len(b)-1] ^= 1
	r.logs[0].mu.Unlock()
	seen, told := 0, 0
	for seen < 40 || told == 0 {
		records, err := r.c.Poll(r.ctx)
		if err != nil {
			told++
			if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "t/0 at 10") {
				t.Fatal(err)
			}
		}
		r.check(records)
		seen += len(records)
	}
	if told != 1 || seen != 40 {
		t.Fatalf("%d records and %d errors", seen, told)
	}
	if at, _ := r.c.Position("t", 0); at != 10 {
		t.Fatalf("position %d", at)
	}
	if got := r.logs[0].mu.suspected; !slices.Equal(got, []int64{10}) || len(r.logs[1].mu.suspected) > 0 {
		t.Fatalf("the replica was told of %v, the other one of %v", got, r.logs[1].mu.suspected)
	}
	_ = r.c.Seek("t", 0, 20)
	if got := r.poll(); got[0].Offset != 20 {
		t.Fatalf("after the damage: %d", got[0].Offset)
	}
}

func TestConsumerReadError(t *testing.T) {
	r := newConsumerRig(t, 1, 1, 10, ConsumerConfig{})
	r.logs[0].setReadErr(&segment.CorruptionError{File: "f", Reason: "r"})
	if _, err := r.c.Poll(r.ctx); !errors.Is(err, ErrCorrupt) {
		t.Fatal(err)
	}
	r.logs[0].setReadErr(nil)
	_ = r.c.Resume("t")
	r.drain(10)
}

func TestConsumerQuarantined(t *testing.T) {
	r := newConsumerRig(t, 2, 1, 10, ConsumerConfig{Assign: map[string][]int32{"t": {1}}})
	r.logs[0].setState(replication.StateQuarantined, fmt.Errorf("%w: bad bytes", replication.ErrQuarantined))
	if err := r.c.Assign("t", 0); err != nil {
		t.Fatal(err)
	}
	if _, err := r.c.Poll(r.ctx); !errors.Is(err, ErrQuarantined) {
		t.Fatal(err)
	}
	r.drain(10)
}

func TestConsumerFollowsTopics(t *testing.T) {
	r := newConsumerRig(t, 1, 1, 10, ConsumerConfig{StartAt: Latest})
	if err := r.cat.AddPartitions(r.ctx, "t", 2); err != nil {
		t.Fatal(err)
	}
	r.logs = r.cat.mu.logs["t"]
	r.fill(1, 3, batch.None)
	if got := r.poll(); len(got) != 3 || got[0].Partition != 1 {
		t.Fatalf("%d records of a new partition", len(got))
	}
	got := make(chan error)
	go func() {
		_, err := r.c.Poll(r.ctx)
		got <- err
	}()
	if err := r.cat.DeleteTopic(r.ctx, "t"); err != nil {
		t.Fatal(err)
	}
	if err := <-got; !errors.Is(err, ErrUnknownTopic) || !strings.Contains(err.Error(), `"t"`) {
		t.Fatal(err)
	}
	if n := len(r.c.Assignment()); n != 0 {
		t.Fatalf("%d partitions still assigned", n)
	}
	ctx, cancel := context.WithTimeout(r.ctx, time.Millisecond)
	defer cancel()
	if _, err := r.c.Poll(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("told twice: %v", err)
	}
}

func TestConsumerAssigns(t *testing.T) {
	r := newConsumerRig(t, 3, 1, 10, ConsumerConfig{Assign: map[string][]int32{"t": {0, 2}}})
	if got := r.c.Assignment(); !slices.Equal(got, []TopicPartition{{"t", 0}, {"t", 2}}) {
		t.Fatalf("%v", got)
	}
	r.drain(20)
	r.c.Unassign("t", 2, 1)
	if got := r.c.Assignment(); !slices.Equal(got, []TopicPartition{{"t", 0}}) {
		t.Fatalf("%v", got)
	}
	if err := r.c.Assign("t"); err != nil {
		t.Fatal(err)
	}
	r.drain(20) // 0 stays where it was
	r.c.Unassign("t")
	if got := r.c.Assignment(); len(got) != 0 {
		t.Fatalf("%v", got)
	}
	for name, err := range map[string]error{
		"topic": r.c.Assign("none"), "partition": r.c.Assign("t", 3), "below": r.c.Assign("t", -1),
	} {
		if !errors.Is(err, ErrUnknownTopic) {
			t.Errorf("%s: %v", name, err)
		}
	}
	_ = r.c.Close()
	if err := r.c.Assign("t"); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

func TestConsumerRecords(t *testing.T) {
	r := newConsumerRig(t, 2, 10, 10, ConsumerConfig{})
	seen := map[int32]int64{}
	total := 0
	for total < 200 {
		n := 0
		for rec, err := range r.c.Records(r.ctx) {
			if err != nil {
				t.Fatal(err)
			}
			r.check([]Record{rec})
			if rec.Offset != seen[rec.Partition] {
				t.Fatalf("partition %d: offset %d where %d was due", rec.Partition, rec.Offset, seen[rec.Partition])
			}
			seen[rec.Partition]++
			n++
			total++
			if n == 17 || total == 200 {
				break // the rest comes again
			}
		}
	}
	ctx, cancel := context.WithTimeout(r.ctx, time.Millisecond)
	defer cancel()
	errs := 0
	for _, err := range r.c.Records(ctx) {
		errs++
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
	}
	if errs != 1 {
		t.Fatalf("%d errors", errs)
	}
}

func TestConsumerConfig(t *testing.T) {
	for _, c := range []ConsumerConfig{
		{Topics: []string{"t"}, Assign: map[string][]int32{"t": {0}}},
		{StartAt: 5}, {OnOutOfRange: 5}, {MaxPollRecords: -1}, {MaxPollBytes: 1}, {MaxPollBytes: 1 << 40},
	} {
		if _, err := newConsumer(newFakeCatalog(), nil, c, nil); !errors.Is(err, ErrInvalidConfig) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if _, err := newConsumer(newFakeCatalog(), nil, ConsumerConfig{Topics: []string{"none"}}, nil); !errors.Is(err, ErrUnknownTopic) {
		t.Error(err)
	}
}
