package billet

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/billetlog/billet/replication"
)

// producerRig is a producer on one fake topic "t".
type producerRig struct {
	t    testing.TB
	ctx  context.Context
	cat  *fakeCatalog
	logs []*fakeLog
	p    *Producer

	mu      sync.Mutex
	results map[string]error
	offsets map[string]Offset
	order   []string
}

func newProducerRig(t testing.TB, partitions int, config ProducerConfig) *producerRig {
	t.Helper()
	r := &producerRig{t: t, ctx: testContext(t), cat: newFakeCatalog(),
		results: map[string]error{}, offsets: map[string]Offset{}}
	r.logs = r.cat.topic("t", partitions, 1<<20)
	if config.RetryBackoff == 0 {
		config.RetryBackoff, config.RetryBackoffMax = 100*time.Microsecond, time.Millisecond
	}
	if config.CloseTimeout == 0 {
		config.CloseTimeout = -1
	}
	var err error
	if r.p, err = newProducer(r.cat, config, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = r.p.shut()
		for _, f := range r.logs {
			f.release()
		}
	})
	return r
}

func (r *producerRig) record(value string) Record {
	return Record{Topic: "t", Value: []byte(value)}
}

// produce sends a value and notes its result.
func (r *producerRig) produce(value string) {
	r.t.Helper()
	if err := r.p.Produce(r.ctx, r.record(value), func(o Offset, err error) { r.note(value, o, err) }); err != nil {
		r.t.Fatalf("produce %.20q: %v", value, err)
	}
}

func (r *producerRig) note(value string, o Offset, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, twice := r.results[value]; twice {
		r.t.Errorf("two results for %.20q", value)
	}
	r.results[value], r.offsets[value] = err, o
	r.order = append(r.order, value)
}

func (r *producerRig) flush() {
	r.t.Helper()
	if err := r.p.Flush(r.ctx); err != nil {
		r.t.Fatalf("flush: %v", err)
	}
}

func (r *producerRig) result(value string) error {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	err, ok := r.results[value]
	if !ok {
		r.t.Errorf("no result for %.20q", value)
	}
	return err
}

// big returns a value of which three make a full batch of 1 KiB.
func big(i int) string { return fmt.Sprintf("%06d", i) + strings.Repeat("x", 290) }

// burst sends n values so that several batches are in flight at once.
func (r *producerRig) burst(n int) []string {
	r.t.Helper()
	var values []string
	for i := range n {
		values = append(values, big(i))
		r.produce(big(i))
	}
	return values
}

func TestProducerSendsLoneRecordAtOnce(t *testing.T) {
	r := newProducerRig(t, 1, ProducerConfig{})
	r.produce("a")
	if n := r.logs[0].appends.Load(); n != 1 {
		t.Fatalf("%d appends when Produce returned, want 1", n)
	}
	r.flush()
	if o := r.offsets["a"]; o != (Offset{0, 0}) || r.result("a") != nil {
		t.Fatalf("result %+v, %v", o, r.result("a"))
	}
}

func TestProducerGathersWhileInFlight(t *testing.T) {
	r := newProducerRig(t, 1, ProducerConfig{})
	r.logs[0].play(answerHeld)
	for i := range 100 {
		r.produce(fmt.Sprint(i))
	}
	if n := r.logs[0].appends.Load(); n != 1 {
		t.Fatalf("%d appends with one in flight, want 1", n)
	}
	r.logs[0].release()
	r.flush()
	if got := r.logs[0].batchSizes(); !slices.Equal(got, []int{1, 99}) {
		t.Fatalf("batches of %v records", got)
	}
}

func TestProducerLinger(t *testing.T) {
	r := newProducerRig(t, 1, ProducerConfig{Linger: time.Minute, BatchBytes: 1024})
	r.produce("a")
	r.produce("b")
	if n := r.logs[0].appends.Load(); n != 0 {
		t.Fatalf("%d appends while the batch lingers", n)
	}
	r.burst(4) // fills the batch
	if n := r.logs[0].appends.Load(); n == 0 {
		t.Fatal("a full batch was not sent")
	}
	r.flush()
	short := newProducerRig(t, 1, ProducerConfig{Linger: time.Millisecond})
	done := make(chan error, 1)
	if err := short.p.Produce(short.ctx, short.record("a"), func(_ Offset, err error) { done <- err }); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// TestProducerRetries plays refusals that pass, and wants every record once, in
// order, with its true offset.
func TestProducerRetries(t *testing.T) {
	busy, notLeader, full := refuse(replication.ErrBusy), refuse(replication.ErrNotLeader), refuse(replication.ErrDiskFull)
	held := answerHeld
	for name, script := range map[string][]fakeAnswer{
		"none":               {},
		"not leader":         {notLeader},
		"busy":               {busy, busy},
		"disk full":          {full},
		"lost":               {answerLost},
		"dial timed out":     {refuse(fmt.Errorf("%w: dial: %w", replication.ErrNotLeader, context.DeadlineExceeded))},
		"too few in sync":    {refuse(replication.ErrNotEnoughReplicas)},
		"kept by too few":    {{store: true, err: replication.ErrNotEnoughReplicasAfterAppend}, refuse(replication.ErrNotEnoughReplicas)},
		"kept":               {answerKept},
		"kept then refused":  {answerKept, notLeader, notLeader},
		"second":             {held, notLeader},
		"second lost":        {held, answerLost},
		"second kept":        {held, answerKept},
		"third of three":     {held, held, answerKept},
		"all kept":           {answerKept, answerKept, answerKept, answerKept, answerKept},
		"all lost":           {answerLost, answerLost, answerLost, answerLost, answerLost},
		"kept, lost, kept":   {answerKept, answerLost, answerKept},
		"again and again":    {answerKept, answerKept, busy, answerKept, full, answerKept, notLeader, answerKept},
		"first of many held": {held, held, held, held, answerLost, held, answerKept},
	} {
		t.Run(name, func(t *testing.T) {
			r := newProducerRig(t, 1, ProducerConfig{BatchBytes: 1024})
			r.logs[0].play(script...)
			values := r.burst(30)
			for r.logs[0].release(); ; r.logs[0].release() {
				ctx, cancel := context.WithTimeout(r.ctx, time.Millisecond)
				err := r.p.Flush(ctx)
				cancel()
				if err == nil {
					break
				}
				if r.ctx.Err() != nil {
					t.Fatal(err)
				}
			}
			r.wantExactly(values)
		})
	}
}

// wantExactly wants the log to have these values in this order, and all results
// to say so.
func (r *producerRig) wantExactly(values []string) {
	r.t.Helper()
	if got := r.logs[0].values(); !slices.Equal(got, values) {
		r.t.Fatalf("%d records in the log, want %d", len(got), len(values))
	}
	for i, v := range values {
		if err := r.result(v); err != nil {
			r.t.Errorf("record %d: %v", i, err)
		}
		if o := r.offsets[v]; o.Offset != int64(i) {
			r.t.Errorf("record %d has offset %d", i, o.Offset)
		}
	}
	if !slices.Equal(r.order, values) {
		r.t.Error("callbacks out of order")
	}
}

func TestProducerRetriesProperty(t *testing.T) {
	answers := []fakeAnswer{{store: true}, {store: true}, answerHeld, answerLost, answerKept,
		refuse(replication.ErrBusy), refuse(replication.ErrNotLeader)}
	rapid.Check(t, func(rt *rapid.T) {
		r := newProducerRig(t, 1, ProducerConfig{BatchBytes: 1024,
			MaxInFlight: rapid.IntRange(1, 16).Draw(rt, "inFlight"),
			Compression: Compression(rapid.IntRange(0, 4).Draw(rt, "codec"))})
		defer func() { _ = r.p.shut() }()
		for _, i := range rapid.SliceOfN(rapid.IntRange(0, len(answers)-1), 0, 30).Draw(rt, "script") {
			r.logs[0].play(answers[i])
		}
		var values []string
		for i := range rapid.IntRange(1, 60).Draw(rt, "records") {
			v := big(i)[:rapid.IntRange(6, 296).Draw(rt, "size")]
			values = append(values, v)
			r.produce(v)
			if rapid.IntRange(0, 9).Draw(rt, "release") == 0 {
				r.logs[0].release()
			}
		}
		for r.logs[0].release(); ; r.logs[0].release() {
			ctx, cancel := context.WithTimeout(r.ctx, time.Millisecond)
			err := r.p.Flush(ctx)
			cancel()
			if err == nil {
				break
			}
		}
		r.wantExactly(values)
	})
}

// TestProducerFatal lets one batch fail for good: its records say so, all others
// are written once and in order under another identity.
func TestProducerFatal(t *testing.T) {
	for _, c := range []struct {
		name   string
		script []fakeAnswer
		want   error
		failed int // batches
	}{
		{"too large", []fakeAnswer{refuse(replication.ErrTooLarge)}, ErrRecordTooLarge, 1},
		{"invalid", []fakeAnswer{{store: true}, refuse(replication.ErrInvalidBatch)}, ErrInvalidRecord, 1},
		{"timestamp", []fakeAnswer{refuse(replication.ErrInvalidTimestamp)}, ErrInvalidRecord, 1},
		{"fenced", []fakeAnswer{{store: true}, {store: true}, refuse(replication.ErrProducerFenced)}, ErrProducerFenced, 1},
		{"out of order", []fakeAnswer{{store: true}, refuse(replication.ErrOutOfOrderSequence)}, ErrOutOfOrderSequence, 1},
		{"after an unknown outcome", []fakeAnswer{answerLost, refuse(replication.ErrInvalidBatch)}, ErrAmbiguous, 1},
		{"two", []fakeAnswer{refuse(replication.ErrTooLarge), {store: true}, refuse(replication.ErrTooLarge)}, ErrRecordTooLarge, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newProducerRig(t, 1, ProducerConfig{BatchBytes: 1024})
			r.logs[0].play(c.script...)
			values := r.burst(30)
			r.flush()
			var want, failed []string
			for _, v := range values {
				if err := r.result(v); err == nil {
					want = append(want, v)
				} else if failed = append(failed, v); !errors.Is(err, c.want) {
					t.Errorf("error %v, want %v", err, c.want)
				} else if !strings.Contains(err.Error(), "t/0") {
					t.Errorf("error %q does not name the partition", err)
				}
			}
			if got := r.logs[0].values(); !slices.Equal(got, want) {
				t.Errorf("%d records in the log, %d acknowledged", len(got), len(want))
			}
			if len(failed) == 0 || len(failed) > 3*c.failed {
				t.Errorf("%d records failed, want %d batches of at most 3", len(failed), c.failed)
			}
			if !slices.Equal(r.order, values) {
				t.Error("callbacks out of order")
			}
		})
	}
}

// A first batch that is out of order fails, and is not sent for ever because one behind it waits to be sent again.
func TestProducerFirstOutOfOrder(t *testing.T) {
	r := newProducerRig(t, 1, ProducerConfig{BatchBytes: 1024, MaxInFlight: 2})
	r.logs[0].play(fakeAnswer{err: replication.ErrOutOfOrderSequence, hold: true}, refuse(replication.ErrBusy))
	values := r.burst(6)
	for r.logs[0].appends.Load() < 2 {
		runtime.Gosched()
	}
	r.logs[0].release()
	r.flush()
	if err := r.result(values[0]); !errors.Is(err, ErrOutOfOrderSequence) {
		t.Error(err)
	}
	if err := r.result(values[len(values)-1]); err != nil {
		t.Error(err)
	}
}

func TestProducerPartitionFailed(t *testing.T) {
	r := newProducerRig(t, 1, ProducerConfig{})
	r.logs[0].playAlways(&fakeAnswer{err: replication.ErrFailed})
	r.produce("a")
	r.flush()
	if err := r.result("a"); !errors.Is(err, ErrPartitionFailed) || Retriable(err) {
		t.Fatal(err)
	}
}

func TestProducerWithoutIdempotence(t *testing.T) {
	r := newProducerRig(t, 1, ProducerConfig{DisableIdempotence: true, MaxInFlight: 1})
	r.logs[0].play(refuse(replication.ErrNotLeader), answerKept)
	r.produce("a")
	r.flush()
	if err := r.result("a"); !errors.Is(err, ErrAmbiguous) || !Retriable(err) {
		t.Fatal(err)
	}
	r.produce("b")
	r.flush()
	if err := r.result("b"); err != nil {
		t.Fatal(err)
	}
	if n := r.cat.ids.Load(); n != 0 {
		t.Fatalf("%d producer ids taken", n)
	}
}

func TestProducerAcksNone(t *testing.T) {
	r := newProducerRig(t, 1, ProducerConfig{Acks: AcksNone})
	r.logs[0].play(fakeAnswer{store: true}, refuse(replication.ErrBusy))
	r.produce("a")
	r.flush()
	if o := r.offsets["a"]; r.result("a") != nil || o.Offset != UnknownOffset {
		t.Fatalf("%+v, %v", o, r.result("a"))
	}
	r.produce("b")
	r.flush()
	if err := r.result("b"); !errors.Is(err, ErrBusy) {
		t.Fatal(err)
	}
}

// In virtual time: what is written within the timeout does not depend on the machine.
func TestProducerDeliveryTimeout(t *testing.T) {
	t.Run("refused", func(t *testing.T) { synctest.Test(t, deliveryTimeoutRefused) })
	t.Run("in flight", func(t *testing.T) { synctest.Test(t, deliveryTimeoutInFlight) })
}

func deliveryTimeoutRefused(t *testing.T) {
	r := newProducerRig(t, 1, ProducerConfig{DeliveryTimeout: 20 * time.Millisecond})
	r.logs[0].playAlways(&fakeAnswer{err: replication.ErrNotLeader})
	r.produce("a")
	r.flush()
	err := r.result("a")
	if !errors.Is(err, ErrTimeout) || !errors.Is(err, ErrNotLeader) || errors.Is(err, ErrAmbiguous) || Retriable(err) {
		t.Fatal(err)
	}
	r.logs[0].playAlways(nil)
	r.produce("b")
	r.flush()
	if err := r.result("b"); err != nil {
		t.Fatal(err)
	}
}

func deliveryTimeoutInFlight(t *testing.T) {
	r := newProducerRig(t, 1, ProducerConfig{DeliveryTimeout: 20 * time.Millisecond, BatchBytes: 1024})
	r.logs[0].play(answerHeld)
	values := r.burst(9)
	r.flush()
	for i, v := range values {
		err := r.result(v)
		if i == 0 && (!errors.Is(err, ErrTimeout) || !errors.Is(err, ErrAmbiguous)) {
			t.Errorf("record %d: %v", i, err)
		}
	}
	if !slices.Equal(r.order, values) {
		t.Error("callbacks out of order")
	}
	r.logs[0].release()
	r.produce("z")
	r.flush()
	if err := r.result("z"); err != nil {
		t.Fatal(err)
	}
	if used := r.p.Buffered(); used != 0 {
		t.Errorf("%d bytes still in the buffer", used)
	}
}

func TestProducerBuffer(t *testing.T) {
	t.Run("fail fast", func(t *testing.T) {
		r := newProducerRig(t, 1, ProducerConfig{BatchBytes: 1024, BufferBytes: 8192, FailFast: true})
		r.logs[0].playAlways(&answerHeld)
		var err error
		for i := 0; err == nil && i < 1000; i++ {
			err = r.p.Produce(r.ctx, r.record(big(i)), nil)
		}
		if !errors.Is(err, ErrBufferFull) || !Retriable(err) {
			t.Fatal(err)
		}
		if used := r.p.Buffered(); used > 8192 {
			t.Errorf("%d bytes used of 8192", used)
		}
	})
	t.Run("wait", func(t *testing.T) {
		r := newProducerRig(t, 1, ProducerConfig{BatchBytes: 1024, BufferBytes: 4096})
		r.logs[0].playAlways(&answerHeld)
		ctx, cancel := context.WithCancel(r.ctx)
		blocked := make(chan error)
		var sent atomic.Int64
		go func() {
			for i := 0; ; i++ {
				if err := r.p.Produce(ctx, r.record(big(i)), nil); err != nil {
					blocked <- err
					return
				}
				sent.Add(1)
			}
		}()
		waitFor(t, func() bool {
			r.p.budget.mu.Lock()
			defer r.p.budget.mu.Unlock()
			return len(r.p.budget.mu.waiters) == 1
		})
		cancel()
		if err := <-blocked; !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		r.logs[0].playAlways(nil)
		r.logs[0].release()
		r.flush()
		if got := int64(len(r.logs[0].values())); got != sent.Load() {
			t.Errorf("%d records in the log, %d produced", got, sent.Load())
		}
		if used := r.p.Buffered(); used != 0 {
			t.Errorf("%d bytes still in the buffer", used)
		}
	})
	t.Run("lingering batches give way", func(t *testing.T) {
		r := newProducerRig(t, 64, ProducerConfig{BatchBytes: 8192, BufferBytes: 16384, Linger: time.Minute, Partitioner: ManualPartitioner})
		for i := range 64 {
			rec := r.record(big(i))
			rec.Partition = int32(i)
			if err := r.p.Produce(r.ctx, rec, nil); err != nil {
				t.Fatal(err)
			}
		}
		r.flush()
	})
}

// waitFor waits for what other goroutines are about to do.
func waitFor(t testing.TB, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !cond(); {
		if time.Now().After(end) {
			t.Fatal("it does not happen")
		}
		time.Sleep(50 * time.Microsecond)
	}
}

func TestProducerRefuses(t *testing.T) {
	r := newProducerRig(t, 2, ProducerConfig{Partitioner: ManualPartitioner})
	small := r.cat.topic("small", 1, 1024)
	ended, cancel := context.WithCancel(r.ctx)
	cancel()
	produce := func(ctx context.Context, rec Record) func() error {
		return func() error { return r.p.Produce(ctx, rec, func(Offset, error) { t.Error("a callback came") }) }
	}
	for name, c := range map[string]struct {
		call func() error
		want error
	}{
		"no topic":      {produce(r.ctx, Record{Topic: "none"}), ErrUnknownTopic},
		"empty topic":   {produce(r.ctx, Record{}), ErrUnknownTopic},
		"no partition":  {produce(r.ctx, Record{Topic: "t", Partition: 2}), ErrUnknownTopic},
		"below 0":       {produce(r.ctx, Record{Topic: "t", Partition: -1}), ErrUnknownTopic},
		"too large":     {produce(r.ctx, Record{Topic: "small", Value: make([]byte, 1024)}), ErrRecordTooLarge},
		"large headers": {produce(r.ctx, Record{Topic: "small", Headers: []Header{{Key: strings.Repeat("h", 1024)}}}), ErrRecordTooLarge},
		"ended":         {produce(ended, Record{Topic: "t"}), context.Canceled},
		"ended sync":    {func() error { _, err := r.p.ProduceSync(ended, Record{Topic: "t"}); return err }, context.Canceled},
		"ended flush":   {func() error { return r.p.Flush(ended) }, context.Canceled},
		"sync no topic": {func() error { _, err := r.p.ProduceSync(r.ctx, Record{}); return err }, ErrUnknownTopic},
		"sync too large": {func() error {
			_, err := r.p.ProduceSync(r.ctx, Record{Topic: "small", Value: make([]byte, 1024)})
			return err
		}, ErrRecordTooLarge},
		"sync wrong part": {func() error { _, err := r.p.ProduceSync(r.ctx, Record{Topic: "t", Partition: 9}); return err }, ErrUnknownTopic},
	} {
		if err := c.call(); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	// The largest record there can be.
	fits := Record{Topic: "small", Value: make([]byte, 1024)}
	for singleSize(&fits) > 1024 {
		fits.Value = fits.Value[1:]
	}
	if _, err := r.p.ProduceSync(r.ctx, fits); err != nil {
		t.Error(err)
	}
	if n := small[0].appends.Load(); n != 1 {
		t.Errorf("%d appends", n)
	}
}

// Programs test themselves in virtual time, one producer after the other: none may get a channel that another one's test made.
func TestProducersShareNoChannels(t *testing.T) {
	sync := func(t *testing.T) {
		r := newProducerRig(t, 1, ProducerConfig{})
		for range 100 {
			if _, err := r.p.ProduceSync(r.ctx, r.record("a")); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range 10 {
		synctest.Test(t, sync)
		sync(t)
	}
}

func TestProducerSyncCancelled(t *testing.T) {
	r := newProducerRig(t, 1, ProducerConfig{})
	r.logs[0].play(answerHeld)
	ctx, cancel := context.WithCancel(r.ctx)
	done := make(chan error)
	go func() {
		_, err := r.p.ProduceSync(ctx, r.record("a"))
		done <- err
	}()
	waitFor(t, func() bool { return r.logs[0].appends.Load() == 1 })
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) || !errors.Is(err, ErrAmbiguous) || Retriable(err) {
		t.Fatal(err)
	}
	r.logs[0].release()
	if o, err := r.p.ProduceSync(r.ctx, r.record("b")); err != nil || o.Offset != 1 {
		t.Fatalf("%+v, %v", o, err)
	}
}

func TestProducerTopicChanges(t *testing.T) {
	r := newProducerRig(t, 1, ProducerConfig{Partitioner: ManualPartitioner})
	r.produce("a")
	if err := r.cat.AddPartitions(r.ctx, "t", 2); err != nil {
		t.Fatal(err)
	}
	if _, err := r.p.ProduceSync(r.ctx, Record{Topic: "t", Partition: 1}); err != nil {
		t.Fatalf("new partition: %v", err)
	}
	if err := r.cat.AlterTopic(r.ctx, "t", map[string]string{"max.message.bytes": "1024"}, nil); err != nil {
		t.Fatal(err)
	}
	if err := r.p.Produce(r.ctx, Record{Topic: "t", Value: make([]byte, 1024)}, nil); !errors.Is(err, ErrRecordTooLarge) {
		t.Fatalf("after lowering max.message.bytes: %v", err)
	}
	r.logs[0].playAlways(&answerHeld)
	r.produce("b")
	r.produce("c")
	if err := r.cat.DeleteTopic(r.ctx, "t"); err != nil {
		t.Fatal(err)
	}
	if err := r.p.Produce(r.ctx, r.record("d"), nil); !errors.Is(err, ErrUnknownTopic) {
		t.Fatalf("after deletion: %v", err)
	}
	r.logs[0].release()
	r.flush()
	if err := r.result("c"); !errors.Is(err, ErrUnknownTopic) {
		t.Fatalf("waiting record of a deleted topic: %v", err)
	}
	logs := r.cat.topic("t", 1, 1<<20)
	if o, err := r.p.ProduceSync(r.ctx, r.record("e")); err != nil || o.Offset != 0 {
		t.Fatalf("topic of the same name: %+v, %v", o, err)
	}
	if got := logs[0].values(); !slices.Equal(got, []string{"e"}) {
		t.Fatalf("it has %q", got)
	}
}

// TestProducerLimitFalls lowers max.message.bytes below what an open batch may
// grow to.
func TestProducerLimitFalls(t *testing.T) {
	r := newProducerRig(t, 1, ProducerConfig{Linger: time.Minute})
	r.produce("a")
	if err := r.cat.AlterTopic(r.ctx, "t", map[string]string{"max.message.bytes": "1024"}, nil); err != nil {
		t.Fatal(err)
	}
	values := append([]string{"a"}, r.burst(9)...)
	r.flush()
	r.wantExactly(values)
	for _, n := range r.logs[0].batchSizes() {
		if n > 3 {
			t.Errorf("a batch of %d records", n)
		}
	}
}

func TestProducerPartitions(t *testing.T) {
	r := newProducerRig(t, 4, ProducerConfig{})
	for i := range 100 {
		key := fmt.Append(nil, i)
		o, err := r.p.ProduceSync(r.ctx, Record{Topic: "t", Key: key})
		if err != nil || int(o.Partition) != PartitionForKey(key, 4) {
			t.Fatalf("key %q in %+v, %v", key, o, err)
		}
	}
	seen := map[int32]int{}
	for range 40 {
		o, err := r.p.ProduceSync(r.ctx, Record{Topic: "t"})
		if err != nil {
			t.Fatal(err)
		}
		seen[o.Partition]++
	}
	if len(seen) != 4 {
		t.Fatalf("records without a key in %v", seen)
	}
}

// A partition that does not take records is passed by.
func TestProducerPassesRefusingBy(t *testing.T) { synctest.Test(t, producerPassesRefusingBy) }

func producerPassesRefusingBy(t *testing.T) {
	r := newProducerRig(t, 4, ProducerConfig{RetryBackoff: time.Millisecond, RetryBackoffMax: time.Minute})
	r.logs[2].playAlways(&fakeAnswer{err: replication.ErrNotLeader})
	for i := range 40 {
		r.produce(fmt.Sprint(i))
		ctx, cancel := context.WithTimeout(r.ctx, 2*time.Millisecond)
		_ = r.p.Flush(ctx)
		cancel()
	}
	if n := r.logs[2].batchSizes(); n[len(n)-1] > 1 {
		t.Errorf("a refusing partition got %v", n)
	}
	if n := len(r.logs[3].values()) + len(r.logs[1].values()) + len(r.logs[0].values()); n < 30 {
		t.Errorf("the others got %d records of 40", n)
	}
}

func TestProducerPassesQuarantinedBy(t *testing.T) {
	cat := newFakeCatalog()
	logs := cat.topic("t", 3, 1<<20)
	for _, f := range logs[:2] {
		f.setState(replication.StateQuarantined, replication.ErrQuarantined)
		f.playAlways(&fakeAnswer{err: replication.ErrQuarantined})
	}
	p, err := newProducer(cat, ProducerConfig{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	l := newFakeTestLog(t, cat)
	for range 10 {
		if o, err := p.ProduceSync(testContext(t), Record{Topic: "t"}); err != nil || o.Partition != 2 {
			t.Fatalf("%+v, %v", o, err)
		}
		if o, err := l.Produce(testContext(t), Record{Topic: "t"}); err != nil || o.Partition != 2 {
			t.Fatalf("%+v, %v", o, err)
		}
	}
}

func TestProducerStickyKeepsABatchTogether(t *testing.T) {
	r := newProducerRig(t, 4, ProducerConfig{Linger: time.Minute})
	for range 50 {
		if err := r.p.Produce(r.ctx, r.record("v"), nil); err != nil {
			t.Fatal(err)
		}
	}
	r.flush()
	batches := 0
	for _, f := range r.logs {
		batches += len(f.batchSizes())
	}
	if batches != 1 {
		t.Fatalf("50 records in %d batches, want 1", batches)
	}
}

func TestProducerFlushReportsUnheard(t *testing.T) {
	r := newProducerRig(t, 1, ProducerConfig{})
	r.logs[0].play(refuse(replication.ErrInvalidBatch))
	if err := r.p.Produce(r.ctx, r.record("a"), nil); err != nil {
		t.Fatal(err)
	}
	if err := r.p.Flush(r.ctx); !errors.Is(err, ErrInvalidRecord) {
		t.Fatalf("flush: %v", err)
	}
	r.flush()
}

func TestProducerClose(t *testing.T) {
	r := newProducerRig(t, 1, ProducerConfig{CloseTimeout: time.Minute})
	for i := range 100 {
		r.produce(fmt.Sprint(i))
	}
	if err := r.p.Close(); err != nil {
		t.Fatal(err)
	}
	if n := len(r.logs[0].values()); n != 100 || len(r.order) != 100 {
		t.Fatalf("%d written, %d called back", n, len(r.order))
	}
	if err := r.p.Close(); err != nil {
		t.Fatalf("second close: %v", err)
	}
	if err := r.p.Produce(r.ctx, r.record("a"), nil); !errors.Is(err, ErrClosed) {
		t.Fatalf("produce: %v", err)
	}
	if _, err := r.p.ProduceSync(r.ctx, r.record("a")); !errors.Is(err, ErrClosed) {
		t.Fatalf("produce: %v", err)
	}
	if err := r.p.Flush(r.ctx); err != nil {
		t.Fatalf("flush: %v", err)
	}
}

func TestProducerCloseGivesUp(t *testing.T) { synctest.Test(t, producerCloseGivesUp) }

func producerCloseGivesUp(t *testing.T) {
	r := newProducerRig(t, 1, ProducerConfig{CloseTimeout: time.Millisecond, BatchBytes: 1024, MaxInFlight: 5})
	r.logs[0].playAlways(&answerHeld)
	values := r.burst(30)
	if err := r.p.Close(); !errors.Is(err, ErrClosed) || !strings.Contains(err.Error(), "30 records") {
		t.Fatalf("close: %v", err)
	}
	for i, v := range values {
		err := r.result(v)
		if !errors.Is(err, ErrClosed) || errors.Is(err, ErrAmbiguous) != (i < 1+4*3) {
			t.Errorf("record %d: %v", i, err)
		}
	}
	r.logs[0].release() // late answers do no harm
	if !slices.Equal(r.order, values) {
		t.Error("callbacks out of order")
	}
}

func TestProducerIdentityUnavailable(t *testing.T) {
	r := newProducerRig(t, 1, ProducerConfig{})
	r.cat.mu.Lock()
	r.cat.mu.idErr = replication.ErrNotLeader
	r.cat.mu.Unlock()
	if err := r.p.Produce(r.ctx, r.record("a"), nil); !errors.Is(err, ErrNotLeader) {
		t.Fatal(err)
	}
	r.cat.mu.Lock()
	r.cat.mu.idErr = nil
	r.cat.mu.Unlock()
	r.produce("b")
	r.flush()
}

// TestProducerConcurrent has several goroutines produce through refusals.
func TestProducerConcurrent(t *testing.T) {
	const workers, each = 8, 500
	r := newProducerRig(t, 3, ProducerConfig{BatchBytes: 2048, BufferBytes: 16384})
	for i := range 60 {
		for _, f := range r.logs {
			f.play([]fakeAnswer{{store: true}, answerKept, refuse(replication.ErrBusy), answerLost, refuse(replication.ErrNotLeader)}[i%5])
		}
	}
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range each {
				key := fmt.Appendf(nil, "%d", w)
				value := fmt.Sprintf("%d:%d", w, i)
				var err error
				if i%50 == 0 {
					_, err = r.p.ProduceSync(r.ctx, Record{Topic: "t", Key: key, Value: []byte(value)})
				} else {
					err = r.p.Produce(r.ctx, Record{Topic: "t", Key: key, Value: []byte(value)},
						func(o Offset, err error) { r.note(value, o, err) })
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	r.flush()
	next := map[string]int{}
	for _, f := range r.logs {
		for _, v := range f.values() {
			worker, i, _ := strings.Cut(v, ":")
			if fmt.Sprint(next[worker]) != i {
				t.Fatalf("worker %s: record %s where %d was due", worker, i, next[worker])
			}
			next[worker]++
		}
	}
	for w := range workers {
		if next[fmt.Sprint(w)] != each {
			t.Errorf("worker %d: %d records", w, next[fmt.Sprint(w)])
		}
	}
}

func TestProducerConfig(t *testing.T) {
	for name, c := range map[string]ProducerConfig{
		"BatchBytes":       {BatchBytes: 10},
		"Linger":           {Linger: time.Hour},
		"MaxInFlight":      {MaxInFlight: 17},
		"BufferBytes":      {BufferBytes: 1024},
		"Compression":      {Compression: 9},
		"CompressionLevel": {Compression: Gzip, CompressionLevel: 99},
		"Acks":             {Acks: 7},
		"DeliveryTimeout":  {DeliveryTimeout: 1},
		"RetryBackoff":     {RetryBackoff: -1},
		"RetryBackoffMax":  {RetryBackoff: 2, RetryBackoffMax: 1},
		"Partitioner":      {Partitioner: 5},
	} {
		_, err := newProducer(newFakeCatalog(), c, nil)
		if !errors.Is(err, ErrInvalidConfig) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
