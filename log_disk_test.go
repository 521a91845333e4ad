package billet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestLogCloseUnderLoad closes the log while producers and a consumer are busy:
// everything acknowledged is there afterwards, in order and once.
func TestLogCloseUnderLoad(t *testing.T) {
	ctx := testContext(t)
	dir := t.TempDir()
	l := openTest(t, Config{Dir: dir, JournalBytes: 1 << 20})
	if err := l.CreateTopic(ctx, Topic{Name: "t", Partitions: 3, Fsync: FsyncInterval}); err != nil {
		t.Fatal(err)
	}
	const workers = 4
	var acked [workers]atomic.Int64 // all below it are acknowledged
	var total atomic.Int64
	var wg sync.WaitGroup
	for w := range workers {
		p, err := l.NewProducer(ProducerConfig{BatchBytes: 4096})
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			key := fmt.Append(nil, w)
			for i := int64(0); ; i++ {
				err := p.Produce(ctx, Record{Topic: "t", Key: key, Value: fmt.Append(nil, i)}, func(_ Offset, err error) {
					if err == nil {
						acked[w].Store(i + 1)
						total.Add(1)
					}
				})
				if err != nil {
					if !errors.Is(err, ErrClosed) {
						t.Error(err)
					}
					return
				}
			}
		})
	}
	c, err := l.NewConsumer(ConsumerConfig{Topics: []string{"t"}})
	if err != nil {
		t.Fatal(err)
	}
	wg.Go(func() {
		for {
			if _, err := c.Poll(ctx); err != nil {
				if !errors.Is(err, ErrClosed) {
					t.Error(err)
				}
				return
			}
		}
	})
	waitFor(t, func() bool { return total.Load() > 20_000 })
	_ = l.Close() // tells of records given up
	wg.Wait()
	l = openTest(t, Config{Dir: dir, JournalBytes: 1 << 20})
	next := readWorkers(t, l)
	for w := range workers {
		if got, want := next[fmt.Sprint(w)], acked[w].Load(); got < want {
			t.Errorf("worker %d: %d records of %d acknowledged", w, got, want)
		}
	}
}

// readWorkers reads all of topic t and wants each key's values to count from 0.
func readWorkers(t *testing.T, l *Log) map[string]int64 {
	t.Helper()
	ctx := testContext(t)
	c, err := l.NewConsumer(ConsumerConfig{Topics: []string{"t"}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	next := map[string]int64{}
	lag := func() (n int64) {
		for _, p := range c.Assignment() {
			behind, err := c.Lag(p.Topic, p.Partition)
			if err != nil {
				t.Fatal(err)
			}
			n += behind
		}
		return n
	}
	for lag() > 0 {
		records, err := c.Poll(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range records {
			if got, want := string(r.Value), fmt.Sprint(next[string(r.Key)]); got != want {
				t.Fatalf("key %s: value %s where %s was due", r.Key, got, want)
			}
			next[string(r.Key)]++
		}
	}
	return next
}

func TestLogTopicsOnDisk(t *testing.T) {
	ctx := testContext(t)
	dir := t.TempDir()
	l := openTest(t, Config{Dir: dir, JournalBytes: 1 << 20})
	for round := range 3 {
		if err := l.CreateTopic(ctx, Topic{Name: "t"}); err != nil {
			t.Fatal(err)
		}
		c, err := l.NewConsumer(ConsumerConfig{Topics: []string{"t"}})
		if err != nil {
			t.Fatal(err)
		}
		if at, err := l.Produce(ctx, Record{Topic: "t", Value: fmt.Append(nil, round)}); err != nil || at.Offset != 0 {
			t.Fatalf("%+v, %v", at, err)
		}
		records, err := c.Poll(ctx)
		if err != nil || len(records) != 1 || string(records[0].Value) != fmt.Sprint(round) {
			t.Fatalf("%d records, %v", len(records), err)
		}
		if err := l.AddPartitions(ctx, "t", 2); err != nil {
			t.Fatal(err)
		}
		if _, err := l.ProduceBatch(ctx, "t", 1, []Record{{Value: []byte("x")}}); err != nil {
			t.Fatal(err)
		}
		if records, err = c.Poll(ctx); err != nil || records[0].Partition != 1 {
			t.Fatalf("new partition: %v", err)
		}
		if err := l.DeleteTopic(ctx, "t"); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Poll(ctx); !errors.Is(err, ErrUnknownTopic) {
			t.Fatalf("deleted topic: %v", err)
		}
		if _, err := l.Produce(ctx, Record{Topic: "t"}); !errors.Is(err, ErrUnknownTopic) {
			t.Fatalf("deleted topic: %v", err)
		}
		_ = c.Close()
	}
}

func TestLogsDoNotMeet(t *testing.T) {
	ctx := testContext(t)
	var logs [2]*Log
	for i := range logs {
		logs[i] = openTest(t, Config{Dir: t.TempDir(), JournalBytes: 1 << 20})
		if err := logs[i].CreateTopic(ctx, Topic{Name: "t"}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 20 {
		at, err := logs[i%2].Produce(ctx, Record{Topic: "t"})
		if err != nil || at.Offset != int64(i/2) {
			t.Fatalf("%+v, %v", at, err)
		}
	}
	if err := logs[0].Close(); err != nil {
		t.Fatal(err)
	}
	if at, err := logs[1].Produce(ctx, Record{Topic: "t"}); err != nil || at.Offset != 10 {
		t.Fatalf("%+v, %v", at, err)
	}
}

func TestLogManyPartitions(t *testing.T) {
	ctx := testContext(t)
	events := make(chan Event, 1000)
	dir := t.TempDir()
	config := Config{Dir: dir, JournalBytes: 1 << 20, OnEvent: func(e Event) { events <- e }}
	l := openTest(t, config)
	if err := l.CreateTopic(ctx, Topic{Name: "t", Partitions: 50}); err != nil {
		t.Fatal(err)
	}
	p, err := l.NewProducer(ProducerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	const n = 5000
	for i := range n {
		if err := p.Produce(ctx, Record{Topic: "t", Key: fmt.Append(nil, i%7), Value: fmt.Append(nil, i/7)}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	l = openTest(t, config)
	// Writable at once: the first record to each waits no longer than for its leader.
	for i := range int32(50) {
		if _, err := l.ProduceBatch(ctx, "t", i, []Record{{Key: []byte("last"), Value: fmt.Append(nil, i)}}); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("50 partitions reopened and written to in %v", time.Since(start).Round(time.Millisecond))
	m := l.Metrics()
	total := int64(0)
	for _, topic := range m.Topics {
		for _, part := range topic.Partitions {
			if topic.Name == "t" {
				total += part.HighWatermark
			}
		}
	}
	if total != n+50 || m.DiskFree == 0 {
		t.Errorf("%d records, %d bytes free", total, m.DiskFree)
	}
	if e := <-events; e.Kind == "" || e.Time.IsZero() {
		t.Errorf("event %+v", e)
	}
}

// TestLogContexts wants every call that can wait to see that its context has ended.
func TestLogContexts(t *testing.T) {
	l := openTest(t, Config{Dir: t.TempDir(), JournalBytes: 1 << 20})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	p, err := l.NewProducer(ProducerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := l.NewConsumer(ConsumerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"create":  l.CreateTopic(ctx, Topic{Name: "t"}),
		"produce": second(l.Produce(ctx, Record{Topic: "t"})),
		"batch":   second(l.ProduceBatch(ctx, "t", 0, nil)),
		"async":   p.Produce(ctx, Record{Topic: "t"}, nil),
		"sync":    second(p.ProduceSync(ctx, Record{Topic: "t"})),
		"flush":   p.Flush(ctx),
		"poll":    second(c.Poll(ctx)),
		"time":    c.SeekToTime(ctx, "t", 0, time.Now()),
	} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
