package billet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/billetlog/billet/internal/batch"
	"github.com/billetlog/billet/internal/vfs"
	"github.com/billetlog/billet/replication"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testContext ends with the test, or when that hangs.
func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func openTest(t testing.TB, config Config) *Log {
	t.Helper()
	l, err := Open(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return l
}

func TestLogEndToEnd(t *testing.T) {
	ctx := testContext(t)
	dir := t.TempDir()
	l := openTest(t, Config{Dir: dir})
	if err := l.CreateTopic(ctx, Topic{Name: "t", Partitions: 2}); err != nil {
		t.Fatal(err)
	}
	at, err := l.Produce(ctx, Record{Topic: "t", Key: []byte("k"), Value: []byte("v")})
	if err != nil {
		t.Fatal(err)
	}
	if at.Offset != 0 || int(at.Partition) != PartitionForKey([]byte("k"), 2) {
		t.Fatalf("produced at %+v", at)
	}
	p, err := l.NewProducer(ProducerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	const n = 10_000
	got := make(chan error, n)
	for i := range n {
		err := p.Produce(ctx, Record{Topic: "t", Key: fmt.Appendf(nil, "%d", i), Value: []byte("value")},
			func(_ Offset, err error) { got <- err })
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	for range n {
		if err := <-got; err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	c, err := l.NewConsumer(ConsumerConfig{Topics: []string{"t"}})
	if err != nil {
		t.Fatal(err)
	}
	next := map[int32]int64{}
	for total := 0; total < n+1; {
		records, err := c.Poll(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range records {
			if r.Offset != next[r.Partition] {
				t.Fatalf("partition %d: offset %d where %d was due", r.Partition, r.Offset, next[r.Partition])
			}
			next[r.Partition]++
		}
		total += len(records)
	}
	if _, err := Open(Config{Dir: dir}); !errors.Is(err, ErrLocked) {
		t.Fatalf("second open: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Poll(ctx); !errors.Is(err, ErrClosed) {
		t.Fatalf("poll after close: %v", err)
	}
	again := openTest(t, Config{Dir: dir})
	info, err := again.Topic(ctx, "t")
	if err != nil {
		t.Fatal(err)
	}
	total := info.Partitions[0].HighWatermark + info.Partitions[1].HighWatermark
	if total != n+1 {
		t.Fatalf("%d records after reopening, want %d", total, n+1)
	}
}

func TestLogClosed(t *testing.T) {
	ctx := testContext(t)
	cat := newFakeCatalog()
	cat.topic("t", 1, 1<<20)
	l := newFakeTestLog(t, cat)
	p, err := l.NewProducer(ProducerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := l.NewConsumer(ConsumerConfig{Topics: []string{"t"}})
	if err != nil {
		t.Fatal(err)
	}
	part, err := l.Partition(ctx, "t", 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"produce":   second(l.Produce(ctx, Record{Topic: "t"})),
		"batch":     second(l.ProduceBatch(ctx, "t", 0, nil)),
		"producer":  p.Produce(ctx, Record{Topic: "t"}, nil),
		"consumer":  second(c.Poll(ctx)),
		"create":    l.CreateTopic(ctx, Topic{Name: "u"}),
		"delete":    l.DeleteTopic(ctx, "t"),
		"alter":     l.AlterTopic(ctx, "t", Alter{}),
		"add":       l.AddPartitions(ctx, "t", 2),
		"topic":     second(l.Topic(ctx, "t")),
		"topics":    second(l.Topics(ctx)),
		"partition": second(l.Partition(ctx, "t", 0)),
		"read":      second(part.Read(ctx, 0, 1)),
		"time":      second(part.OffsetForTime(ctx, time.Now())),
		"new p":     second(l.NewProducer(ProducerConfig{})),
		"new c":     second(l.NewConsumer(ConsumerConfig{})),
	} {
		if !errors.Is(err, ErrClosed) || Retriable(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := l.node.(*fakeNode).closes.Load(); n != 1 {
		t.Errorf("node closed %d times", n)
	}
}

func TestLogProduce(t *testing.T) {
	ctx := testContext(t)
	cat := newFakeCatalog()
	f := cat.topic("t", 1, 2048)[0]
	l := newFakeTestLog(t, cat)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	f.play(refuse(replication.ErrNotLeader), refuse(replication.ErrBusy))
	at, err := l.Produce(ctx, Record{Topic: "t", Value: []byte("a")})
	if err != nil || at.Offset != 0 || f.appends.Load() != 3 {
		t.Fatalf("%+v, %v", at, err)
	}
	for name, c := range map[string]struct {
		answer fakeAnswer
		record Record
		want   error
	}{
		"unknown":   {answerLost, Record{Topic: "t"}, ErrAmbiguous},
		"full":      {refuse(replication.ErrDiskFull), Record{Topic: "t"}, ErrDiskFull},
		"timestamp": {refuse(replication.ErrInvalidTimestamp), Record{Topic: "t"}, ErrInvalidRecord},
		"failed":    {refuse(replication.ErrFailed), Record{Topic: "t"}, ErrPartitionFailed},
		"large":     {fakeAnswer{}, Record{Topic: "t", Value: make([]byte, 2048)}, ErrRecordTooLarge},
		"topic":     {fakeAnswer{}, Record{Topic: "u"}, ErrUnknownTopic},
	} {
		f.mu.Lock()
		f.mu.script = nil
		f.mu.Unlock()
		f.play(c.answer)
		if _, err := l.Produce(ctx, c.record); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	f.mu.Lock()
	f.mu.script = nil
	f.mu.Unlock()
	before := f.appends.Load()
	if _, err := l.Produce(ended, Record{Topic: "t"}); !errors.Is(err, context.Canceled) || f.appends.Load() != before {
		t.Errorf("ended: %v", err)
	}
	f.play(answerHeld)
	short, cancel := context.WithCancel(ctx)
	held := make(chan error, 1)
	go func() { held <- second(l.Produce(short, Record{Topic: "t"})) }()
	waitFor(t, func() bool { return f.appends.Load() > before })
	cancel()
	if err := <-held; !errors.Is(err, context.Canceled) || !errors.Is(err, ErrAmbiguous) {
		t.Errorf("held: %v", err)
	}
	f.release()
	f.setState(replication.StateStarting, nil)
	f.playAlways(&fakeAnswer{err: replication.ErrNotLeader})
	short, cancel = context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	if _, err := l.Produce(short, Record{Topic: "t"}); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrAmbiguous) {
		t.Errorf("not leading: %v", err)
	}
}

func TestLogProduceBatch(t *testing.T) {
	ctx := testContext(t)
	cat := newFakeCatalog()
	f := cat.topic("t", 2, 2048)[1]
	l := newFakeTestLog(t, cat)
	records := []Record{{Value: []byte("a")}, {Value: []byte("b")}, {Value: []byte("c")}}
	for i := range 2 {
		at, err := l.ProduceBatch(ctx, "t", 1, records)
		if err != nil || at.Partition != 1 || at.Offset != int64(3*i) {
			t.Fatalf("%+v, %v", at, err)
		}
	}
	if n := f.appends.Load(); n != 2 {
		t.Errorf("%d appends", n)
	}
	large := []Record{{Value: make([]byte, 1500)}, {Value: make([]byte, 1500)}}
	if _, err := l.ProduceBatch(ctx, "t", 1, large); !errors.Is(err, ErrRecordTooLarge) {
		t.Error(err)
	}
	if _, err := l.ProduceBatch(ctx, "t", 2, records); !errors.Is(err, ErrUnknownTopic) {
		t.Error(err)
	}
	if _, err := l.ProduceBatch(ctx, "t", 0, nil); err != nil {
		t.Error(err)
	}
}

func TestPartitionReads(t *testing.T) {
	ctx := testContext(t)
	cat := newFakeCatalog()
	f := cat.topic("t", 1, 1<<20)[0]
	l := newFakeTestLog(t, cat)
	for range 3 {
		f.fill(t, 10, func(i int) []byte { return []byte{byte(i)} }, batch.None)
	}
	p, err := l.Partition(ctx, "t", 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		offset    int64
		max, want int
	}{{0, 5, 5}, {0, 100, 30}, {13, 100, 17}, {29, 1, 1}, {30, 1, 0}, {0, 0, 0}} {
		records, err := p.Read(ctx, c.offset, c.max)
		if err != nil || len(records) != c.want || c.want > 0 && records[0].Offset != c.offset {
			t.Errorf("%+v: %d records, %v", c, len(records), err)
		}
	}
	if _, err := p.Read(ctx, 31, 1); !errors.Is(err, ErrOffsetOutOfRange) {
		t.Error(err)
	}
	if at, err := p.OffsetForTime(ctx, time.UnixMilli(1003)); at != 3 || err != nil {
		t.Errorf("%d, %v", at, err)
	}
	if p.StartOffset() != 0 || p.HighWatermark() != 30 || p.EndOffset() != 30 || p.Info().State != StateLeader {
		t.Error("offsets")
	}
}

func TestOpenErrors(t *testing.T) {
	for name, c := range map[string]Config{
		"Dir":                    {},
		"NodeID":                 {Dir: "x", NodeID: -1},
		"JournalBytes":           {Dir: "x", JournalBytes: 1},
		"MaxInFlightBytes":       {Dir: "x", MaxInFlightBytes: 1},
		"RetentionCheckInterval": {Dir: "x", RetentionCheckInterval: 1},
		"CloseTimeout":           {Dir: "x", CloseTimeout: -1},
		"TopicDefaults":          {Dir: "x", TopicDefaults: map[string]string{"a": "b"}},
	} {
		if _, err := Open(c); !errors.Is(err, ErrInvalidConfig) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	dir := t.TempDir()
	l := openTest(t, Config{Dir: dir, NodeID: 3})
	_, err := Open(Config{Dir: dir})
	if !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), fmt.Sprintf("process %d", os.Getpid())) {
		t.Errorf("locked: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Config{Dir: dir, NodeID: 4}); !errors.Is(err, ErrForeignDir) {
		t.Errorf("another node: %v", err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Config{Dir: filepath.Join(file, "sub")}); err == nil {
		t.Error("a directory below a file was opened")
	}
}

// TestOpenFaults fails each operation on the file system once: Open returns the
// error or copes, leaves nothing behind, and works the next time.
func TestOpenFaults(t *testing.T) {
	const workers = 8
	var next atomic.Int64
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for openWithFault(t, int(next.Add(1))) {
			}
		})
	}
	wg.Wait()
	if n := next.Load(); n < 10+workers {
		t.Errorf("%d operations were made to fail", n)
	}
}

// openWithFault makes the n-th operation fail and tells whether there was one.
func openWithFault(t *testing.T, n int) bool {
	mem := vfs.NewMem()
	fault := vfs.FailNth(n, nil, syscall.EIO)
	l, err := open(Config{Dir: "d", DiskReserve: -1, JournalBytes: 1 << 20}, seams{fs: vfs.Inject(mem, fault.Fault)})
	if err == nil {
		err = l.Close()
	}
	again, err2 := open(Config{Dir: "d", DiskReserve: -1, JournalBytes: 1 << 20}, seams{fs: mem})
	if err2 != nil {
		t.Errorf("operation %d failed (%v); the next open: %v", n, err, err2)
		return false
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
	return fault.Fired()
}

func TestEvents(t *testing.T) {
	var got []Event
	entered, hold := make(chan struct{}, 1), make(chan struct{})
	q := newEventQueue(nil, func(e Event) {
		signal(entered)
		<-hold
		got = append(got, e)
	})
	q.post(Event{Kind: EventWritable})
	<-entered
	for i := range eventQueueMax + 10 {
		q.post(Event{Kind: EventRetention, Topic: "t", Offset: int64(i)})
	}
	close(hold)
	q.close()
	last := got[len(got)-1]
	if last.Kind != EventsDropped || len(got) != eventQueueMax+2 || !strings.Contains(last.Detail, "10 events") {
		t.Fatalf("%d events, the last %v", len(got), last)
	}
	e := Event{Kind: EventQuarantined, Topic: "t", Partition: 2, Offset: 7, Detail: "look", Err: ErrCorrupt}
	if s := e.String(); s != "quarantined t/2 offset 7: look: corrupt data" {
		t.Error(s)
	}
}

func TestEventsAreLogged(t *testing.T) {
	var out strings.Builder
	q := newEventQueue(slog.New(slog.NewTextHandler(&out, nil)), nil)
	q.post(Event{Kind: EventWritable, Topic: "t", Offset: -1})
	q.post(Event{Kind: EventDiskFull, Offset: -1})
	q.close()
	for _, want := range []string{"level=INFO", "writable t/0", "level=WARN", "disk-full"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in %s", want, out.String())
		}
	}
}

func TestErrors(t *testing.T) {
	for _, e := range seamErrors {
		err := wrapSeam(fmt.Errorf("detail: %w", e.below))
		if !errors.Is(err, e.below) || errors.Is(e.public, ErrAmbiguous) != errors.Is(err, ErrAmbiguous) {
			t.Errorf("%v became %v", e.below, err)
		}
		if !errors.Is(err, e.public) {
			t.Errorf("%v is not %v", err, e.public)
		}
	}
	for _, err := range []error{nil, ErrClosed, ErrUnknownTopic, context.Canceled, fmt.Errorf("%w: %w", ErrTimeout, ErrBusy), errors.New("x")} {
		if Retriable(err) {
			t.Errorf("%v is retriable", err)
		}
	}
	for _, err := range retriableErrors {
		if !Retriable(fmt.Errorf("x: %w", err)) {
			t.Errorf("%v is not retriable", err)
		}
	}
	if wrapSeam(context.Canceled) != context.Canceled {
		t.Error("a context's error was wrapped")
	}
}
