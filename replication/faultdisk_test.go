package replication

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/billetlog/billet/internal/batch"
	"github.com/billetlog/billet/internal/vfs"
	"github.com/billetlog/billet/segment"
)

// sickDisk is a disk that can be made to fail and to work again.
type sickDisk struct {
	mu    sync.Mutex
	fault vfs.Fault // nil: it works
}

func (d *sickDisk) ask(op vfs.Op, name string, off int64, n int) error {
	d.mu.Lock()
	f := d.fault
	d.mu.Unlock()
	if f == nil {
		return nil
	}
	return f(op, name, off, n)
}

func (d *sickDisk) set(f vfs.Fault) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fault = f
}

// sickHerd is three nodes with a disk each that can fail.
type sickHerd struct {
	*herd
	disks []*sickDisk
}

func newSickHerd(t testing.TB) *sickHerd {
	s := &sickHerd{disks: []*sickDisk{{}, {}, {}}}
	byFS := map[vfs.FS]*sickDisk{}
	s.herd = newHerd(t, 3, func(c *HostConfig) {
		if byFS[c.FS] == nil {
			byFS[c.FS] = s.disks[len(byFS)]
		}
		c.FS = vfs.Inject(c.FS, byFS[c.FS].ask)
	})
	s.topic("t", nil)
	return s
}

// steadyProducer writes one record after the other, with sequences, and notes how long it ever waited for an acknowledgement.
type steadyProducer struct {
	h     *sickHerd
	stop  context.CancelFunc
	ended sync.WaitGroup

	mu    sync.Mutex
	acked int
	worst time.Duration
	err   error
}

func (s *sickHerd) load() *steadyProducer {
	ctx, stop := context.WithCancel(context.Background())
	p := &steadyProducer{h: s, stop: stop}
	p.ended.Go(func() {
		for i := 0; ctx.Err() == nil && p.write(ctx, i); i++ {
		}
	})
	s.t.Cleanup(p.end)
	return p
}

func (p *steadyProducer) end() {
	p.stop()
	p.ended.Wait()
}

func (p *steadyProducer) write(ctx context.Context, i int) bool {
	var b batch.Builder
	b.Reset(batch.BuilderOptions{HasProducer: true, ProducerID: 5, BaseSequence: int32(i)})
	b.Append(time.Now().UnixMilli(), nil, []byte(fmt.Sprint("v", i)), nil)
	data, err := b.Finish()
	for began := time.Now(); err == nil; {
		if p.offer(ctx, data, i) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.acked, p.worst = i+1, max(p.worst, time.Since(began))
			return true
		}
		if !pause(ctx, time.Millisecond) {
			return false
		}
	}
	return false
}

// offer gives a batch to every node that says that it leads.
func (p *steadyProducer) offer(ctx context.Context, data []byte, i int) bool {
	for _, m := range p.h.all {
		r := m.Controller.replica("t", 0)
		if r == nil || r.Epoch() == 0 {
			continue
		}
		done := make(chan AppendResult, 1)
		r.Append(append([]byte(nil), data...), AppendOptions{Acks: AcksAll}, func(a AppendResult) { done <- a })
		select {
		case a := <-done:
			if a.Err == nil && a.Offset != int64(i) {
				p.mu.Lock()
				p.err = fmt.Errorf("record %d is at %d", i, a.Offset)
				p.mu.Unlock()
			}
			if a.Err == nil {
				return true
			}
		case <-time.After(2 * time.Second): // its disk hangs
		case <-ctx.Done():
			return false
		}
	}
	return false
}

func (p *steadyProducer) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.acked
}

// more waits until n more records are acknowledged.
func (p *steadyProducer) more(n int) {
	p.h.t.Helper()
	goal := p.count() + n
	p.h.eventually("producing goes on", func() bool { return p.count() >= goal })
}

// sickness is a way in which a disk fails.
type sickness struct {
	name  string
	fault func(under string) vfs.Fault // for files whose name begins with that
	// latches: the replicas that are hit stop.
	latches bool
	full    bool // and come back when it is over
	slow    bool // for runs where time does not matter
}

func failing(err error, ops ...vfs.Op) func(string) vfs.Fault {
	is := vfs.OfKind(ops...)
	return func(under string) vfs.Fault {
		return func(op vfs.Op, name string, _ int64, _ int) error {
			if strings.HasPrefix(name, under) && is(op, name) {
				return fmt.Errorf("injected: %s %s: %w", op, name, err)
			}
			return nil
		}
	}
}

// hanging makes one sync of each file take long.
func hanging(d time.Duration) func(string) vfs.Fault {
	return func(under string) vfs.Fault {
		var mu sync.Mutex
		var once bool
		return func(op vfs.Op, name string, _ int64, _ int) error {
			if op != vfs.OpSync || !strings.HasPrefix(name, under) {
				return nil
			}
			mu.Lock() // all that sync wait for the disk
			defer mu.Unlock()
			if !once {
				once = true
				time.Sleep(d)
			}
			return nil
		}
	}
}

func sicknesses() []sickness {
	writes := []vfs.Op{vfs.OpWrite, vfs.OpPreallocate, vfs.OpCreate}
	return []sickness{
		{name: "write=EIO", fault: failing(syscall.EIO, writes...), latches: true},
		{name: "sync=EIO", fault: failing(syscall.EIO, vfs.OpSync, vfs.OpSyncDir), slow: true},
		{name: "write=ENOSPC", fault: failing(syscall.ENOSPC, writes...), latches: true, full: true},
		{name: "torn=ENOSPC", fault: func(under string) vfs.Fault {
			return vfs.TornWrite(1, 40, func(_ vfs.Op, name string) bool {
				return strings.HasPrefix(name, under) && strings.HasSuffix(name, ".log")
			}, syscall.ENOSPC).Fault
		}, latches: true, full: true, slow: true},
		{name: "sync=1.5s", fault: hanging(1500 * time.Millisecond), slow: true},
		{name: "sync=8s", fault: hanging(8 * time.Second), slow: true},
		{name: "read=EIO", fault: failing(syscall.EIO, vfs.OpRead, vfs.OpOpen), slow: true},
		{name: "all=EIO", fault: func(under string) vfs.Fault {
			return func(_ vfs.Op, name string, _ int64, _ int) error {
				if strings.HasPrefix(name, under) {
					return fmt.Errorf("injected: %w", syscall.EIO)
				}
				return nil
			}
		}, latches: true, slow: true},
	}
}

// A disk fails, of the leader or of a follower, under the files of one partition or altogether, while records are written: they go on being
// acknowledged, nothing else stops, and once the disk works again all replicas are the same.
func TestSickDisk(t *testing.T) {
	for _, s := range sicknesses() {
		for _, leads := range []bool{true, false} {
			for _, whole := range []bool{false, true} {
				if os.Getenv("BILLET_SLOW") == "" && (s.slow || whole != leads || !s.full && !leads) {
					continue
				}
				t.Run(fmt.Sprintf("%s/leader=%v/whole=%v", s.name, leads, whole), func(t *testing.T) { sicken(t, s, leads, whole) })
			}
		}
	}
}

func sicken(t *testing.T, s sickness, leads, whole bool) {
	h := newSickHerd(t)
	load := h.load()
	load.more(20)
	i := h.leader("t")
	if !leads {
		i = (i + 1) % 3
	}
	p := h.replica(i, "t")
	under := p.r.dir
	if whole {
		under = "/data"
	}
	h.disks[i].set(s.fault(under))
	load.more(50)
	if s.latches {
		h.eventually("the replica stops", func() bool { return h.seen(i, EventReplicaFailed) })
	}
	load.more(20)
	h.disks[i].set(nil)
	load.more(20)
	load.end()
	if load.err != nil {
		t.Error(load.err)
	}
	end := int64(load.count())
	for k := range h.all {
		if k != i && (h.seen(k, EventReplicaFailed) || h.seen(k, EventQuarantined) || h.seen(k, EventRaftParked) || h.seen(k, EventDamaged)) {
			t.Errorf("node %d was hurt by the disk of node %d: %v", k+1, i+1, h.events[k])
		}
	}
	if h.seen(i, EventRaftParked) {
		t.Error("a worker of Raft was parked")
	}
	h.settled("t", h.produce("t", "end"), 0, 1, 2) // behind whatever was still on its way
	for k := range h.all {
		got := values(t, h.replica(k, "t"), 0)
		for at := range min(end, int64(len(got))) {
			if got[at] != fmt.Sprint("v", at) {
				t.Fatalf("node %d has %q at %d", k+1, got[at], at)
			}
		}
		if n := int64(len(got)); got[n-1] != "end" || n != end+1 && n != end+2 {
			t.Errorf("node %d has %d records, %d were acknowledged", k+1, n, end)
		}
	}
	if s.full && h.replica(i, "t") != p {
		t.Errorf("a replica whose disk was full for a while was replaced: %v", h.events[i])
	}
	h.eventually("the metadata has sound replicas", func() bool { return h.soundMetadata() })
	t.Logf("%d records, the longest wait for one %v; %v", end, load.worst, h.events[i])
	began := time.Now()
	// A fault that meets the journal itself, which a full disk may or may not do, turns it off until the next open, and Close says so.
	off := h.seen(i, EventJournalOff)
	if err := h.all[i].Node.Close(testContext(t)); err != nil && !errors.Is(err, syscall.EIO) && !(off && errors.Is(err, segment.ErrJournalOff)) {
		t.Errorf("node %d: close: %v", i+1, err)
	}
	h.all[i] = nil
	h.closeAll()
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("closing took %v", took)
	}
}

// journalGoesOn fails the test when a node's journal does not get over a checkpoint.
func (h *sickHerd) journalGoesOn(i int) {
	h.t.Helper()
	journal := h.all[i].Host.db.journal
	if err := errors.Join(journal.Checkpoint(), journal.Stats().Off); err != nil {
		h.t.Error(err)
	}
}

// recovers ends a test whose disk works again: records are taken, and all replicas become the same.
func (h *sickHerd) recovers(i int, load *steadyProducer) {
	h.t.Helper()
	h.disks[i].set(nil)
	load.more(20)
	load.end()
	h.settled("t", h.produce("t", "end"), 0, 1, 2)
	h.closeAll()
}

// A replica that a full disk stopped waits for space: the journal goes on without it.
func TestDiskFullJournal(t *testing.T) {
	h := newSickHerd(t)
	load := h.load()
	load.more(20)
	host, p := h.all[0].Host, h.replica(0, "t")
	full := failing(syscall.ENOSPC, vfs.OpWrite, vfs.OpPreallocate, vfs.OpCreate)(p.r.dir)
	h.disks[0].set(func(op vfs.Op, name string, off int64, n int) error {
		if op == vfs.OpFree {
			return syscall.EIO // so that the brake stays on
		}
		err := full(op, name, off, n)
		if err != nil {
			host.disk.braked.Store(true)
		}
		return err
	})
	h.eventually("the replica waits for space", func() bool {
		host.mu.Lock()
		defer host.mu.Unlock()
		return host.mu.full[p.spec.Shard] != nil
	})
	h.journalGoesOn(0)
	h.recovers(0, load)
}

// Such a replica cannot be opened again at once: the journal goes on without it.
func TestDiskFullAtRestart(t *testing.T) {
	h := newSickHerd(t)
	load := h.load()
	load.more(20)
	p := h.replica(0, "t")
	full := failing(syscall.ENOSPC, vfs.OpWrite, vfs.OpPreallocate, vfs.OpCreate, vfs.OpList)(p.r.dir)
	var lists atomic.Int64
	h.disks[0].set(func(op vfs.Op, name string, off int64, n int) error {
		err := full(op, name, off, n)
		if err != nil && op == vfs.OpList {
			lists.Add(1)
		}
		return err
	})
	h.eventually("it was tried twice to open the replica", func() bool { return lists.Load() >= 2 })
	h.journalGoesOn(0)
	h.recovers(0, load)
}

// A disk fails for a while, first under a replica and, when that has been reported, under the metadata's: this is replaced at once, although what was
// decided of the other one is not seen here before.
func TestMetadataLostWhileReporting(t *testing.T) {
	h := newSickHerd(t)
	i := slices.IndexFunc(h.all, func(m *member) bool { return m.Controller.meta().Epoch() == 0 })
	own, p := h.all[i].Controller.meta(), h.replica(i, "t")
	under := failing(syscall.EIO, vfs.OpWrite, vfs.OpSync)(p.r.dir)
	h.disks[i].set(func(op vfs.Op, name string, off int64, n int) error {
		if op == vfs.OpWrite && strings.HasPrefix(name, own.r.dir) && strings.HasSuffix(name, ".log") { // what is decided of the report
			return syscall.EIO
		}
		return under(op, name, off, n)
	})
	load := h.load()
	h.eventually("that of the metadata is lost", func() bool { state, _ := own.State(); return state.stopped() })
	h.disks[i].set(nil)
	began := time.Now()
	h.eventually("all replicas are replaced", func() bool {
		return h.soundMetadata() && h.all[i].Controller.meta() != own && h.replica(i, "t") != p
	})
	if took := time.Since(began); took > stepTimeout*2/3 {
		t.Errorf("it took %v", took)
	}
	h.recovers(i, load)
}

func (h *sickHerd) soundMetadata() bool {
	for _, m := range h.all {
		a := m.Controller.meta()
		if state, _ := a.State(); state.stopped() {
			return false
		}
	}
	return true
}

// A node closes in bounded time while its disk fails or hangs, and does not say that all is well.
func TestCloseOnSickDisk(t *testing.T) {
	for _, s := range []sickness{
		{name: "all=EIO", fault: failing(syscall.EIO, vfs.OpWrite, vfs.OpSync, vfs.OpCreate, vfs.OpRead), latches: true},
		{name: "sync=8s", fault: hanging(8 * time.Second), slow: true},
	} {
		if s.slow && os.Getenv("BILLET_SLOW") == "" {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			h := newSickHerd(t)
			load := h.load()
			load.more(5)
			h.disks[1].set(s.fault("/data"))
			load.more(5)
			load.end()
			ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
			defer cancel()
			began := time.Now()
			if err := h.all[1].Node.Close(ctx); (err != nil) != s.latches || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("closed with %v", err)
			}
			t.Logf("closing took %v", time.Since(began))
			h.all[1] = nil
			h.closeAll()
		})
	}
}

// All disks are full at once: nobody takes records until there is space again, and then all go on by themselves, with all that was acknowledged. The
// journal has its space already.
func TestAllDisksFull(t *testing.T) {
	h := newSickHerd(t)
	load := h.load()
	load.more(20)
	full := failing(syscall.ENOSPC, vfs.OpWrite, vfs.OpPreallocate, vfs.OpCreate)("/data")
	for _, d := range h.disks {
		d.set(func(op vfs.Op, name string, off int64, n int) error {
			if strings.HasPrefix(name, "/data/journal") {
				return nil
			}
			return full(op, name, off, n)
		})
	}
	for i := range h.all {
		h.eventually("a replica stops", func() bool { return h.seen(i, EventReplicaFailed) || h.seen(i, EventLeaderLost) })
	}
	for _, d := range h.disks {
		d.set(nil)
	}
	load.more(20)
	load.end()
	if load.err != nil {
		t.Error(load.err)
	}
	end := h.produce("t", "end")
	h.settled("t", end, 0, 1, 2)
	got := values(t, h.replica(0, "t"), 0)
	for at := range load.count() {
		if got[at] != fmt.Sprint("v", at) {
			t.Fatalf("%q is at %d", got[at], at)
		}
	}
	for i := range h.all {
		if h.seen(i, EventQuarantined) || h.seen(i, EventRaftParked) || h.seen(i, EventCatchUp) {
			t.Errorf("node %d: %v", i+1, h.events[i])
		}
	}
	h.closeAll()
}
