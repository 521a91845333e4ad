package billet

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testContext ends with the test, or when that hangs.
func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
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
