package replication

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/billetlog/billet/internal/vfs"
)

// waitEvent waits for an event of the kind.
func waitEvent(t testing.TB, n *testNode, kind EventKind) Event {
	t.Helper()
	deadline := time.After(testTimeout)
	for {
		select {
		case e := <-n.events:
			if e.Kind == kind {
				return e
			}
		case <-deadline:
			t.Fatalf("no event %q", kind)
		}
	}
}

// Retention by size deletes whole segments from the front, also after a restart, and Raft's first index moves before.
func TestRetentionBySize(t *testing.T) {
	n := newTestNode(t)
	spec := testSpec(t, 1)
	spec.Settings.SegmentBytes = 64 << 10
	spec.Settings.RetentionBytes = 200 << 10
	p := n.start(spec, true)
	writable(t, p)
	fill := func(from, to int) {
		for i := from; i < to; i++ {
			if r := appendBatch(t, p, sizedBatch(t, 1, 10<<10), AcksAll); r.Err != nil || r.Offset != int64(i) {
				t.Fatalf("append %d: %+v", i, r)
			}
		}
	}
	fill(0, 60)
	p.retain(testContext(t), time.Now())
	start := p.StartOffset()
	if start == 0 || p.Size() > 300<<10 {
		t.Fatalf("after retention the log starts at %d and has %d bytes", start, p.Size())
	}
	if moved := p.r.removedTo.Load(); moved < uint64(start) {
		t.Errorf("segments up to offset %d are deleted, Raft still wants entries after index %d", start, moved)
	}
	if got := values(t, p, start); len(got) != int(60-start) {
		t.Errorf("read %d records of %d", len(got), 60-start)
	}
	n.close()
	n.open()
	p = n.start(spec, false)
	writable(t, p)
	if p.StartOffset() != start || p.HighWatermark() != 60 {
		t.Fatalf("after reopen: start %d, high watermark %d, want %d and 60", p.StartOffset(), p.HighWatermark(), start)
	}
	fill(60, 100)
	p.retain(testContext(t), time.Now())
	if p.StartOffset() <= start {
		t.Errorf("retention does not go on after a restart: start %d", p.StartOffset())
	}
	n.close()
}

// A quiet topic's active segment is rolled by age, so that ten minutes of retention are not a week.
func TestRetentionByTimeOfAQuietTopic(t *testing.T) {
	n := newTestNode(t)
	spec := testSpec(t, 1)
	spec.Settings.RetentionAge = time.Hour
	spec.Settings.SegmentAge = time.Hour
	p := n.start(spec, true)
	writable(t, p)
	if r := appendBatch(t, p, textBatch(t, "old"), AcksAll); r.Err != nil {
		t.Fatal(r.Err)
	}
	p.retain(testContext(t), time.Now())
	if p.StartOffset() != 0 {
		t.Fatal("retention deleted a fresh record")
	}
	later := time.Now().Add(3 * time.Hour)
	if err := p.r.currentLog().Roll(); err != nil { // what RollIfOld does once its own clock says so
		t.Fatal(err)
	}
	p.retain(testContext(t), later)
	if p.StartOffset() != 1 || p.HighWatermark() != 1 {
		t.Errorf("start %d, high watermark %d, want 1 and 1", p.StartOffset(), p.HighWatermark())
	}
	if r := appendBatch(t, p, textBatch(t, "new"), AcksAll); r.Err != nil || r.Offset != 1 {
		t.Errorf("append after all was deleted: %+v", r)
	}
	n.close()
}

// The brake refuses what is produced below the reserve, lets all else go on, and lifts by itself.
func TestDiskBrake(t *testing.T) {
	mem := vfs.NewMem()
	mem.SetCapacity(24 << 20)
	if err := mem.MkdirAll("/data"); err != nil {
		t.Fatal(err)
	}
	n := &testNode{t: t, fs: mem, dir: "/data", id: 1}
	n.open()
	n.host.disk.reserve = 8 << 20
	spec := testSpec(t, 1)
	spec.Settings.SegmentBytes = 1 << 20
	p := n.start(spec, true)
	writable(t, p)
	stored := 0
	var refused error
	for range 100 {
		r := appendBatch(t, p, sizedBatch(t, 1, 512<<10), AcksAll)
		if r.Err != nil {
			refused = r.Err
			break
		}
		stored++
	}
	if !errors.Is(refused, ErrDiskFull) || stored == 0 {
		t.Fatalf("after %d batches: %v", stored, refused)
	}
	if space, _ := mem.Free("/data"); space.Free < 6<<20 {
		t.Errorf("only %d bytes of the reserve are left", space.Free)
	}
	if got := values(t, p, 0); len(got) != stored {
		t.Errorf("read %d of %d with the brake on", len(got), stored)
	}
	s := spec.Settings
	s.RetentionBytes = 1 << 20
	p.SetSettings(s)
	p.retain(testContext(t), time.Now())
	n.host.lookAtDisk()
	if r := appendBatch(t, p, sizedBatch(t, 1, 1<<10), AcksAll); r.Err != nil {
		t.Errorf("after retention made room: %v", r.Err)
	}
	n.close()
}

// A disk that is full although the reserve was thought to be there latches the replica, with no panic; it comes back when there is room.
func TestDiskFullLatchesAndComesBack(t *testing.T) {
	mem := vfs.NewMem()
	if err := mem.MkdirAll("/data"); err != nil {
		t.Fatal(err)
	}
	n := &testNode{t: t, fs: mem, dir: "/data", id: 1}
	n.open()
	p := n.start(testSpec(t, 1), true)
	writable(t, p)
	want := []string{}
	for i := range 5 {
		v := fmt.Sprint(i)
		if r := appendBatch(t, p, textBatch(t, v), AcksAll); r.Err != nil {
			t.Fatal(r.Err)
		}
		want = append(want, v)
	}
	mem.SetCapacity(1) // another program took all of it
	r := appendBatch(t, p, sizedBatch(t, 1, 600<<10), AcksAll)
	if r.Err == nil {
		t.Fatal("an append to a full disk was acknowledged")
	}
	if err := p.Writable(testContext(t)); !errors.Is(err, ErrDiskFull) {
		t.Fatalf("the partition says %v", err)
	}
	if got := values(t, p, 0); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("read %v", got)
	}
	waitEvent(t, n, EventReplicaFailed)
	mem.SetCapacity(1 << 40)
	waitEvent(t, n, EventReplicaRestart)
	writable(t, p)
	if got := values(t, p, 0); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("after it came back: %v", got)
	}
	if r := appendBatch(t, p, textBatch(t, "more"), AcksAll); r.Err != nil || r.Offset != 5 {
		t.Errorf("append after it came back: %+v", r)
	}
	n.close()
}

// Under interval an idle log is durable soon, its mark too, and so is a busy one within the bound.
func TestIntervalSync(t *testing.T) {
	mem := vfs.NewMem()
	n := memNode1(t, mem)
	spec := testSpec(t, 1)
	spec.Settings.Fsync, spec.Settings.FlushInterval = FsyncInterval, 40*time.Millisecond
	p := n.start(spec, true)
	writable(t, p)
	if r := appendBatch(t, p, textBatch(t, "x"), AcksAll); r.Err != nil {
		t.Fatal(r.Err)
	}
	deadline := time.Now().Add(testTimeout)
	for durable, last := p.DurableIndex(); durable < last; durable, last = p.DurableIndex() {
		if time.Now().After(deadline) {
			t.Fatalf("durable up to %d of %d", durable, last)
		}
		time.Sleep(time.Millisecond) // polls a condition that nothing announces
	}
	fs := mem.CrashClone(vfs.CrashOptions{})
	n.close()
	n = memNode1(t, fs)
	p = n.start(spec, false)
	writable(t, p)
	if got := values(t, p, 0); fmt.Sprint(got) != "[x]" {
		t.Errorf("after a power cut: %v", got)
	}
	n.close()
}

// Damage in one partition's files quarantines it; the others serve.
func TestQuarantine(t *testing.T) {
	mem := vfs.NewMem()
	n := memNode1(t, mem)
	bad, good := testSpec(t, 1), testSpec(t, 1)
	good.Shard, good.Partition = 3, 1
	p, q := n.start(bad, true), n.start(good, true)
	writable(t, p)
	writable(t, q)
	for range 3 {
		appendBatch(t, p, textBatch(t, "p"), AcksAll)
		appendBatch(t, q, textBatch(t, "q"), AcksAll)
	}
	dir := generationDir(p.r.dir, 1)
	n.close()
	f, err := mem.Open(dir + "/00000000000000000000.log")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{0xff}, 20); err != nil { // in the header: what a clean close vouches for is checked when it is read
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	n = memNode1(t, mem)
	p, q = n.start(bad, false), n.start(good, false)
	if s, cause := p.State(); s != StateQuarantined || !errors.Is(cause, ErrQuarantined) {
		t.Errorf("the damaged partition is %v, %v", s, cause)
	}
	if r := appendBatch(t, p, textBatch(t, "x"), AcksAll); !errors.Is(r.Err, ErrQuarantined) {
		t.Errorf("append to it: %+v", r)
	}
	if _, err := p.NewCursor().Read(nil, 0, 100); !errors.Is(err, ErrQuarantined) {
		t.Errorf("reading it: %v", err)
	}
	writable(t, q)
	if got := values(t, q, 0); fmt.Sprint(got) != "[q q q]" {
		t.Errorf("the other one: %v", got)
	}
	n.close()
}

// A record that comes while the keeper takes its last look at a partition that was idle is synced like any other.
func TestIntervalSyncAfterLastLook(t *testing.T) {
	t.Parallel() // it waits, mostly
	g := &gate{}
	n := memNodeWith(t, vfs.Inject(vfs.NewMem(), g.fault), 0)
	spec := testSpec(t, 1)
	spec.Settings.Fsync, spec.Settings.FlushInterval = FsyncInterval, 40*time.Millisecond
	p := n.start(spec, true)
	writable(t, p)
	held, open := g.shut(func(op vfs.Op, name string) bool { return op == vfs.OpCreate && strings.Contains(name, ".state") })
	if r := appendBatch(t, p, textBatch(t, "x"), AcksAll); r.Err != nil {
		t.Fatal(r.Err)
	}
	<-held // after a second the keeper saves the checkpoint and finds the partition clean
	if r := appendBatch(t, p, textBatch(t, "y"), AcksAll); r.Err != nil {
		t.Fatal(r.Err)
	}
	open()
	deadline := time.Now().Add(testTimeout)
	for durable, last := p.DurableIndex(); durable < last; durable, last = p.DurableIndex() {
		if time.Now().After(deadline) {
			t.Fatalf("durable up to %d of %d", durable, last)
		}
		time.Sleep(time.Millisecond) // polls a condition that nothing announces
	}
	n.close()
}

// The brake is told of when an append sets it, and whoever was refused is woken when it lifts.
func TestDiskBrakeEvents(t *testing.T) {
	t.Parallel() // it waits, mostly
	mem := vfs.NewMem()
	n := memNodeWith(t, mem, 0)
	p := n.start(testSpec(t, 1), true)
	writable(t, p)
	n.host.lookAtDisk()
	mem.SetCapacity(1)
	n.host.disk.left.Store(0) // the next append asks for free space
	if r := appendBatch(t, p, textBatch(t, "x"), AcksAll); !errors.Is(r.Err, ErrDiskFull) {
		t.Errorf("append: %+v", r)
	}
	waitEvent(t, n, EventDiskFull)
	woken := make(chan struct{}, 1)
	defer p.Notify(woken)()
	mem.SetCapacity(1 << 40)
	<-woken
	waitEvent(t, n, EventDiskFree)
	if r := appendBatch(t, p, textBatch(t, "x"), AcksAll); r.Err != nil {
		t.Errorf("append: %+v", r)
	}
	n.close()
}

// Whoever got ErrBusy because dragonboat's queue was full is woken, though nothing of the partition is in flight.
func TestBusyIsWoken(t *testing.T) {
	n := memNodeWith(t, vfs.NewMem(), 0)
	p := n.start(testSpec(t, 1), true)
	writable(t, p)
	woken := make(chan struct{}, 1)
	defer p.Notify(woken)()
	p.refused.Store(true)
	n.host.markDirty(p)
	<-woken
	n.close()
}

// A follower does not propose the marker that retention wants: it would wait for an answer that never comes.
func TestRetentionOnFollower(t *testing.T) {
	c := newTrio(t)
	l, _ := c.produce(-1, "x")
	for i, p := range c.parts {
		if i == l {
			continue
		}
		waitHW(t, p, 1)
		if err := p.moveFirstIndex(testContext(t), p.r.currentLog().LastIndex()); !errors.Is(err, ErrNotLeader) {
			t.Errorf("node %d: %v", i+1, err)
		}
	}
	c.close()
}

// A policy made stricter makes durable what was written before, and leaves nothing that counts as unsynced.
func TestFsyncMadeStricter(t *testing.T) {
	mem := vfs.NewMem()
	n := memNodeWith(t, mem, 0)
	spec := testSpec(t, 1)
	spec.Settings.Fsync, spec.Settings.FlushInterval = FsyncInterval, time.Hour
	p := n.start(spec, true)
	writable(t, p)
	if r := appendBatch(t, p, textBatch(t, "x"), AcksAll); r.Err != nil || p.Unsynced() == 0 {
		t.Fatalf("append: %+v, unsynced for %v", r, p.Unsynced())
	}
	s := spec.Settings
	s.Fsync = FsyncCommit
	p.SetSettings(s)
	if age := p.Unsynced(); age != 0 {
		t.Errorf("unsynced for %v", age)
	}
	if r := appendBatch(t, p, textBatch(t, "y"), AcksAll); r.Err != nil || p.Unsynced() != 0 {
		t.Errorf("append: %+v, unsynced for %v", r, p.Unsynced())
	}
	clone := mem.CrashClone(vfs.CrashOptions{})
	n.close()
	n = memNodeWith(t, clone, 0)
	spec.Settings = s
	p = n.start(spec, false)
	writable(t, p)
	if got := values(t, p, 0); fmt.Sprint(got) != "[x y]" {
		t.Errorf("after a power cut: %v", got)
	}
	n.close()
}
