package replication

import (
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/billetlog/billet/internal/vfs"
	"github.com/billetlog/billet/segment"
)

// breaker makes operations fail while it is on.
type breaker struct {
	mu    sync.Mutex
	match func(op vfs.Op, name string) bool
	err   error
}

func (b *breaker) set(err error, match func(op vfs.Op, name string) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err, b.match = err, match
}

func (b *breaker) fault(op vfs.Op, name string, _ int64, _ int) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.match != nil && b.match(op, name) {
		return b.err
	}
	return nil
}

func ofLog(ops ...vfs.Op) func(vfs.Op, string) bool {
	return func(op vfs.Op, name string) bool {
		return vfs.OfKind(ops...)(op, name) && strings.HasSuffix(name, ".log")
	}
}

// latchedByWrite is a partition with five records whose log found the disk full; it can be started again.
func latchedByWrite(t *testing.T) (*testNode, *vfs.Mem, *Partition) {
	t.Helper()
	b, mem := &breaker{}, vfs.NewMem()
	n := memNodeWith(t, vfs.Inject(mem, b.fault), 0)
	p := n.start(testSpec(t, 1), true)
	writable(t, p)
	for i := range 5 {
		if r := appendBatch(t, p, textBatch(t, fmt.Sprint(i)), AcksAll); r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	p.r.latch(&fs.PathError{Op: "write", Path: "x", Err: errNoSpace})
	waitEvent(t, n, EventReplicaFailed)
	if err := p.Writable(testContext(t)); !errors.Is(err, ErrDiskFull) {
		t.Fatalf("the partition says %v", err)
	}
	for listed := false; !listed; { // taken off the list, it does not come back by itself
		n.host.mu.Lock()
		_, listed = n.host.mu.full[p.spec.Shard]
		delete(n.host.mu.full, p.spec.Shard)
		n.host.mu.Unlock()
		runtime.Gosched()
	}
	return n, mem, p
}

// What readers have seen they see all the time, also while a replica that was started again replays, and the journal stays on.
func TestRestartKeepsHighWatermark(t *testing.T) {
	n, _, p := latchedByWrite(t)
	if err := p.restart(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if hw := p.HighWatermark(); hw != 5 {
		t.Errorf("high watermark %d after the restart", hw)
	}
	waitEvent(t, n, EventReplicaRestart)
	writable(t, p)
	if got := values(t, p, 0); fmt.Sprint(got) != "[0 1 2 3 4]" {
		t.Errorf("read %v", got)
	}
	if r := appendBatch(t, p, textBatch(t, "more"), AcksAll); r.Err != nil || r.Offset != 5 {
		t.Errorf("append after the restart: %+v", r)
	}
	if err := n.host.db.journal.Checkpoint(); err != nil {
		t.Errorf("the journal cannot be checkpointed: %v", err)
	}
	if stats, _ := n.host.JournalStats(); stats.Off != nil {
		t.Errorf("the journal is off: %v", stats.Off)
	}
	n.close()
}

// What is durable in the journal alone when a replica is started again is made durable in its files before the journal forgets it.
func TestRestartThenPowerLoss(t *testing.T) {
	n, mem, p := latchedByWrite(t)
	if err := p.restart(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if err := n.host.db.journal.Checkpoint(); err != nil {
		t.Fatal(err)
	}
	clone := mem.CrashClone(vfs.CrashOptions{})
	n.close()
	n = memNodeWith(t, clone, 0)
	p = n.start(testSpec(t, 1), false)
	writable(t, p)
	if got := values(t, p, 0); fmt.Sprint(got) != "[0 1 2 3 4]" {
		t.Errorf("after a power cut: %v", got)
	}
	n.close()
}

// A replica whose files turn out to be damaged, or to end too early, when it is started again is quarantined.
func TestRestartOfDamagedReplica(t *testing.T) {
	for _, how := range []string{"flipped", "cut"} {
		t.Run(how, func(t *testing.T) {
			n, mem, p := latchedByWrite(t)
			path := generationDir(p.r.dir, 1) + "/00000000000000000000.log"
			if how == "flipped" {
				flipByte(t, mem, path, 20)
			} else {
				f, err := mem.Open(path)
				if err != nil {
					t.Fatal(err)
				}
				size, err := f.Size()
				if err == nil {
					err = f.Truncate(size - 1)
				}
				if err := errors.Join(err, f.Close()); err != nil {
					t.Fatal(err)
				}
			}
			if err := p.restart(testContext(t)); err != nil {
				t.Fatal(err)
			}
			if s, cause := p.State(); s != StateQuarantined || !errors.Is(cause, segment.ErrCorrupt) {
				t.Errorf("the partition is %v, %v", s, cause)
			}
			waitEvent(t, n, EventQuarantined)
			if r := appendBatch(t, p, textBatch(t, "x"), AcksAll); !errors.Is(r.Err, ErrQuarantined) {
				t.Errorf("append: %+v", r)
			}
			if err := n.host.RemovePartition(testContext(t), p); err != nil {
				t.Error(err)
			}
			n.close()
		})
	}
}

// A sync that finds the disk full has lost bytes that nobody knows of: the replica stays out until the host opens again and replays the
// journal.
func TestNoRestartAfterFailedSync(t *testing.T) {
	b, mem := &breaker{}, vfs.NewMem()
	n := memNodeWith(t, vfs.Inject(mem, b.fault), 0)
	p := n.start(testSpec(t, 1), true)
	writable(t, p)
	if r := appendBatch(t, p, textBatch(t, "kept"), AcksAll); r.Err != nil {
		t.Fatal(r.Err)
	}
	b.set(errNoSpace, ofLog(vfs.OpSync))
	if r := appendBatch(t, p, sizedBatch(t, 1, 2*directBytes), AcksAll); !errors.Is(r.Err, ErrAmbiguous) {
		t.Errorf("append: %+v", r)
	}
	if err := p.Writable(testContext(t)); !errors.Is(err, ErrFailed) || errors.Is(err, ErrDiskFull) {
		t.Errorf("the partition says %v", err)
	}
	waitEvent(t, n, EventReplicaFailed)
	b.set(nil, nil)
	n.host.restartFull()
	if s, _ := p.State(); s != StateFailed {
		t.Errorf("the partition is %v", s)
	}
	_ = n.host.Close(testContext(t)) // reports the failed replica
	n = memNodeWith(t, mem, 0)
	p = n.start(testSpec(t, 1), false)
	writable(t, p)
	if got := values(t, p, 0); len(got) == 0 || got[0] != "kept" {
		t.Errorf("after it was opened again: %v", got)
	}
	n.close()
}

// A restart that fails is tried again; the partition is failed meanwhile, and does not vanish.
func TestRestartFailsAndIsTriedAgain(t *testing.T) {
	b, mem := &breaker{}, vfs.NewMem()
	n := memNodeWith(t, vfs.Inject(mem, b.fault), 0)
	p := n.start(testSpec(t, 1), true)
	writable(t, p)
	if r := appendBatch(t, p, textBatch(t, "x"), AcksAll); r.Err != nil {
		t.Fatal(r.Err)
	}
	b.set(errNoSpace, ofLog(vfs.OpWrite, vfs.OpOpen))
	if r := appendBatch(t, p, textBatch(t, "y"), AcksAll); !errors.Is(r.Err, ErrAmbiguous) {
		t.Errorf("append: %+v", r)
	}
	waitEvent(t, n, EventReplicaFailed)
	for range 3 {
		if err := p.restart(testContext(t)); !errors.Is(err, errNoSpace) && !errors.Is(err, errRunning) {
			t.Errorf("restart: %v", err)
		}
		if s, cause := p.State(); s != StateFailed || !errors.Is(cause, ErrDiskFull) {
			t.Errorf("the partition is %v, %v", s, cause)
		}
		if n.host.partitionOf(p.spec.Shard) != p {
			t.Error("the partition has vanished")
		}
	}
	b.set(nil, nil)
	waitEvent(t, n, EventReplicaRestart)
	writable(t, p)
	if r := appendBatch(t, p, textBatch(t, "z"), AcksAll); r.Err != nil || r.Offset != 1 {
		t.Errorf("append after the restart: %+v", r)
	}
	n.close()
}
