package replication

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/billetlog/billet/internal/vfs"
	"github.com/billetlog/billet/segment"
)

// The host closes while appends, reads, changes of topics, retention and restarts run. It returns within a bound, nothing panics, every append is
// answered, nothing is left running (TestMain looks), and the directory opens again with all that was acknowledged.
func TestCloseUnderLoad(t *testing.T) {
	rounds := 6
	if testing.Short() {
		rounds = 2
	}
	mem := vfs.NewMem()
	var mu sync.Mutex
	acked := map[int64]string{}
	for round := range rounds {
		k := openCluster(t, mem)
		if _, ok := k.c.Topic("keep"); !ok {
			k.create("keep", 1, map[string]string{"segment.bytes": "65536"})
		}
		p := k.partition("keep", 0)
		writable(t, p)
		for at, v := range acked {
			if got := values(t, p, at)[0]; got != v {
				t.Errorf("round %d: offset %d holds %q, acknowledged was %q", round, at, got, v)
			}
		}
		var wg, answers sync.WaitGroup
		started := make(chan struct{})
		var once sync.Once
		for w := range 2 {
			wg.Go(func() {
				freed := make(chan struct{}, 1)
				defer p.Notify(freed)()
				for i := 0; ; i++ {
					v := fmt.Sprintf("%d-%d-%d", round, w, i)
					stop := make(chan bool, 1)
					answers.Add(1)
					p.Append(textBatch(t, v), AppendOptions{Acks: AcksAll}, func(r AppendResult) {
						defer answers.Done()
						switch {
						case r.Err == nil:
							mu.Lock()
							acked[r.Offset] = v
							mu.Unlock()
						case errors.Is(r.Err, ErrClosed), errors.Is(r.Err, ErrAmbiguous):
							stop <- true
						}
					})
					if i == 50 {
						once.Do(func() { close(started) })
					}
					if len(stop) > 0 {
						return
					}
					if s, _ := p.State(); s == StateClosed {
						return
					}
				}
			})
		}
		wg.Go(func() { // topics come and go
			for i := 0; ; i++ {
				_, err := k.c.CreateTopic(context.Background(), TopicSpec{Name: fmt.Sprint("t", i%3), Partitions: 3})
				if err == nil || errors.Is(err, ErrTopicExists) {
					err = k.c.DeleteTopic(context.Background(), fmt.Sprint("t", i%3))
				}
				if err != nil {
					if !errors.Is(err, ErrClosed) && !errors.Is(err, ErrAmbiguous) {
						t.Errorf("a change of topics ended with %v", err)
					}
					return
				}
			}
		})
		wg.Go(func() { // somebody reads
			c := p.NewCursor()
			defer c.Close()
			for {
				if _, err := c.Read(nil, p.StartOffset(), 1<<16); err != nil {
					if !errors.Is(err, ErrClosed) {
						t.Errorf("a read ended with %v", err)
					}
					return
				}
			}
		})
		wg.Go(func() {
			for k.host.ctx.Err() == nil {
				k.host.retainAll(time.Now())
				k.host.restartFull()
				p.Unsynced()
				p.Size()
			}
		})
		<-started
		waitHW(t, p, p.HighWatermark()+rand.Int64N(200))
		ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
		begin := time.Now()
		if round%2 == 0 {
			k.c.Close()
		}
		if err := k.host.Close(ctx); err != nil {
			t.Errorf("round %d: close: %v", round, err)
		}
		if took := time.Since(begin); took > testTimeout/2 {
			t.Errorf("round %d: close took %v", round, took)
		}
		k.c.Close()
		if err := k.host.Close(ctx); err != nil {
			t.Errorf("round %d: closed again: %v", round, err)
		}
		cancel()
		wg.Wait()
		answers.Wait()
	}
	k := openCluster(t, mem)
	k.checkWhole()
	k.close()
}

// A second Close waits for the first.
func TestCloseTwice(t *testing.T) {
	n, p, g := gatedNode(t, testSpec(t, 1))
	held, open := g.hold()
	answers := make(chan AppendResult, 1)
	p.Append(textBatch(t, "x"), AppendOptions{Acks: AcksAll}, func(r AppendResult) { answers <- r })
	<-held
	done := make(chan error, 3)
	for range 3 {
		go func() { done <- n.host.Close(testContext(t)) }()
	}
	take(t, answers)
	select {
	case err := <-done:
		t.Errorf("a Close returned while the disk was busy: %v", err)
	default:
	}
	open()
	for range 3 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// A worker of dragonboat hangs. Close gives up with its context and says so; when the worker goes on, the rest ends as well.
func TestCloseWithHangingWorker(t *testing.T) {
	for _, where := range []string{"answer", "disk"} {
		t.Run(where, func(t *testing.T) {
			n, p, g := gatedNode(t, testSpec(t, 1))
			stuck := make(chan struct{})
			free := func() { close(stuck) }
			entered := make(chan struct{}, 1)
			switch where {
			case "answer": // a caller breaks the rule that done must not block
				p.Append(textBatch(t, "x"), AppendOptions{Acks: AcksAll}, func(AppendResult) { entered <- struct{}{}; <-stuck })
				<-entered
			case "disk":
				held, open := g.shut(func(op vfs.Op, name string) bool { return op == vfs.OpSync && strings.HasSuffix(name, ".log") })
				p.Append(sizedBatch(t, 1, 2*directBytes), AppendOptions{Acks: AcksAll}, func(AppendResult) {})
				<-held
				free = open
			}
			ctx, cancel := context.WithCancel(context.Background())
			done := make(chan error, 1)
			go func() { done <- n.host.Close(ctx) }()
			<-n.host.ctx.Done()
			cancel()
			if where == "disk" { // a sync that hangs is waited for: what it holds cannot be closed
				free()
			}
			err := <-done
			if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "raft did not stop") {
				t.Errorf("close: %v", err)
			}
			if where == "answer" {
				free()
			}
		})
	}
}

// A replica latches while the host closes, at each operation of it: nobody starts what Close has waited for already.
func TestCloseWithFaults(t *testing.T) {
	for i := 1; ; i++ {
		mem := vfs.NewMem()
		trigger := vfs.FailNth(i, vfs.OfKind(vfs.OpWrite, vfs.OpSync, vfs.OpCreate, vfs.OpRename, vfs.OpSyncDir, vfs.OpTruncate), errors.New("EIO"))
		var mu sync.Mutex
		armed := false
		n := memNodeWith(t, vfs.Inject(mem, func(op vfs.Op, name string, off int64, size int) error {
			mu.Lock()
			defer mu.Unlock()
			if !armed {
				return nil
			}
			return trigger.Fault(op, name, off, size)
		}), 0)
		specs := []PartitionSpec{testSpec(t, 1), testSpec(t, 1)}
		specs[1].Shard, specs[1].Partition, specs[1].Settings.Fsync = 3, 1, FsyncInterval
		for _, spec := range specs {
			p := n.start(spec, true)
			writable(t, p)
			if r := appendBatch(t, p, textBatch(t, "x"), AcksAll); r.Err != nil {
				t.Fatal(r.Err)
			}
		}
		mu.Lock()
		armed = true
		mu.Unlock()
		_ = n.host.Close(testContext(t)) // may report the fault
		mu.Lock()
		armed = false
		mu.Unlock()
		again := memNodeWith(t, mem, 0)
		for _, spec := range specs {
			p := again.start(spec, false)
			writable(t, p)
			if got := values(t, p, 0); fmt.Sprint(got) != "[x]" {
				t.Errorf("failure %d: %v", i, got)
			}
		}
		again.close()
		if !trigger.Fired() {
			t.Logf("%d operations", i-1)
			return
		}
	}
}

// Calls that change what runs are refused after Close, and leave nothing.
func TestCallsAfterClose(t *testing.T) {
	n := memNodeWith(t, vfs.NewMem(), 0)
	p := n.start(testSpec(t, 1), true)
	writable(t, p)
	n.close()
	other := testSpec(t, 1)
	other.Shard = 3
	if _, err := n.host.StartPartition(other, true); !errors.Is(err, ErrClosed) {
		t.Errorf("start: %v", err)
	}
	if err := n.host.RemovePartition(testContext(t), p); !errors.Is(err, ErrClosed) {
		t.Errorf("remove: %v", err)
	}
	if _, err := OpenController(testContext(t), n.host); !errors.Is(err, ErrClosed) {
		t.Errorf("controller: %v", err)
	}
	ran := false
	n.host.spawn(func() { ran = true })
	p.r.latch(errors.New("too late"))
	if _, err := p.NewCursor().Read(nil, 0, 10); !errors.Is(err, ErrClosed) {
		t.Errorf("read: %v", err)
	}
	n.host.tasks.Wait()
	if ran {
		t.Error("a goroutine was started after Close")
	}
}

// Partitions of every kind can be removed: one that leads, one that failed, one that is quarantined; also twice, and beside a restart.
func TestRemovePartition(t *testing.T) {
	mem := vfs.NewMem()
	spec := func(shard uint64) PartitionSpec {
		s := testSpec(t, 1)
		s.Shard, s.Partition = shard, int32(shard)
		return s
	}
	n := memNodeWith(t, mem, 0)
	p := n.start(spec(4), true)
	writable(t, p)
	dir := p.r.dir
	n.close()
	flipByte(t, mem, dir+"/"+segment.SlotFileName, 30)
	n = memNodeWith(t, mem, 0)
	leading, failed, quarantined := n.start(spec(2), true), n.start(spec(3), true), n.start(spec(4), false)
	writable(t, leading)
	writable(t, failed)
	failed.r.latch(errNoSpace)
	waitEvent(t, n, EventReplicaFailed)
	if s, _ := quarantined.State(); s != StateQuarantined {
		t.Fatalf("it is %v", s)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for range 50 {
			n.host.restartFull()
		}
	})
	for _, p := range []*Partition{leading, failed, quarantined} {
		for range 2 {
			if err := n.host.RemovePartition(testContext(t), p); err != nil {
				t.Errorf("%s: %v", p.name(), err)
			}
		}
		if s, cause := p.State(); s != StateClosed || !errors.Is(cause, ErrUnknownTopic) {
			t.Errorf("%s is %v, %v", p.name(), s, cause)
		}
	}
	wg.Wait()
	n.host.restartFull()
	if left := n.host.Partitions(); len(left) != 0 {
		t.Errorf("%d partitions are left", len(left))
	}
	if names, err := mem.List("/data/partitions"); err != nil || len(names) != 0 {
		t.Errorf("folders are left: %v, %v", names, err)
	}
	if stats, _ := n.host.JournalStats(); stats.Off != nil {
		t.Errorf("the journal is off: %v", stats.Off)
	}
	n.close()
}
