package billet

import (
	"errors"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/billetlog/billet/internal/vfs"
)

// TestMetricsUnsynced wants the age of what is not durable: none under commit, and under interval one that grows while the disk does not
// answer and is gone when it has.
func TestMetricsUnsynced(t *testing.T) {
	ctx := testContext(t)
	var gate sync.RWMutex // held for writing: syncs wait
	slow := func(op vfs.Op, _ string, _ int64, _ int) error {
		if op == vfs.OpSync {
			gate.RLock()
			defer gate.RUnlock()
		}
		return nil
	}
	l, err := open(Config{Dir: "d", DiskReserve: -1, JournalBytes: 1 << 20}, seams{fs: vfs.Inject(vfs.NewMem(), slow)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	const flush = 40 * time.Millisecond
	if err := l.CreateTopic(ctx, Topic{Name: "commit"}); err != nil {
		t.Fatal(err)
	}
	unsynced := func(topic string) time.Duration {
		info, err := l.Topic(ctx, topic)
		if err != nil {
			t.Fatal(err)
		}
		return info.Partitions[0].Unsynced
	}
	for range 20 {
		if _, err := l.Produce(ctx, Record{Topic: "commit", Value: []byte("v")}); err != nil {
			t.Fatal(err)
		}
		if age := unsynced("commit"); age != 0 {
			t.Fatalf("under commit something is unsynced since %v", age)
		}
	}
	if m := l.Metrics(); m.Unsynced != 0 || m.Syncs.Count < 20 || m.Syncs.Failures != 0 {
		t.Errorf("under commit: unsynced %v, %+v", m.Unsynced, m.Syncs)
	}
	if err := l.CreateTopic(ctx, Topic{Name: "interval", Fsync: FsyncInterval, Config: map[string]string{"flush.ms": "40"}}); err != nil {
		t.Fatal(err)
	}
	gate.Lock()
	if _, err := l.Produce(ctx, Record{Topic: "interval", Value: []byte("v")}); err != nil {
		gate.Unlock()
		t.Fatal(err)
	}
	// The disk does not answer: the age grows beyond the bound, and the whole node's with it.
	waitFor(t, func() bool { return unsynced("interval") > 2*flush && l.Metrics().Unsynced > 2*flush })
	gate.Unlock()
	waitFor(t, func() bool { return unsynced("interval") == 0 && l.Metrics().Unsynced == 0 })
	m := l.Metrics()
	if s := m.Syncs; s.P50 <= 0 || s.P99 < s.P50 || s.Max <= 0 || s.Total < s.Max {
		t.Errorf("syncs: %+v", s)
	}
	for _, topic := range m.Topics {
		if topic.Name == "interval" && topic.Partitions[0].HighWatermark != 1 {
			t.Errorf("%+v", topic)
		}
	}
}

// TestMetricsFailedSyncs counts syncs that fail.
func TestMetricsFailedSyncs(t *testing.T) {
	ctx := testContext(t)
	mem := vfs.NewMem()
	var on sync.Mutex
	broken := false
	fault := func(op vfs.Op, _ string, _ int64, _ int) error {
		on.Lock()
		defer on.Unlock()
		if op == vfs.OpSync && broken {
			return syscall.EIO
		}
		return nil
	}
	l, err := open(Config{Dir: "d", DiskReserve: -1, JournalBytes: -1}, seams{fs: vfs.Inject(mem, fault)})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.CreateTopic(ctx, Topic{Name: "t"}); err != nil {
		t.Fatal(err)
	}
	on.Lock()
	broken = true
	on.Unlock()
	if _, err := l.Produce(ctx, Record{Topic: "t"}); !errors.Is(err, ErrAmbiguous) && !errors.Is(err, ErrPartitionFailed) {
		t.Errorf("produce: %v", err)
	}
	if m := l.Metrics(); m.Syncs.Failures == 0 || m.Journal != (JournalMetrics{}) {
		t.Errorf("%+v, %+v", m.Syncs, m.Journal)
	}
	_ = l.Close() // tells of the failure
}
