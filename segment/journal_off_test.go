package segment

import (
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/billetlog/billet/internal/vfs"
)

var errDisk = errors.New("bad sector")

// rewriteDirectly truncates a replica to nothing and writes data without the journal, as is right after a fence.
func rewriteDirectly(t *testing.T, j *Journal, r *rigReplica, data string) {
	t.Helper()
	if err := r.syncDirect(); err != nil {
		t.Fatal(err)
	}
	if err := j.Fence(r.key); err != nil {
		t.Fatal(err)
	}
	if err := r.file.Truncate(0); err != nil {
		t.Fatal(err)
	}
	r.pos = 0
	if _, err := r.write([]byte(data)); err != nil {
		t.Fatal(err)
	}
	if err := r.syncDirect(); err != nil {
		t.Fatal(err)
	}
}

// fillUntilOff commits until the journal says that it is off.
func fillUntilOff(t *testing.T, g *rig, replica int) error {
	t.Helper()
	r := g.replicas[replica]
	for range 100 {
		w, err := r.write(make([]byte, 800))
		if err != nil {
			t.Fatal(err)
		}
		if err := g.journal.Commit([]Write{w}, []Syncer{r}); err != nil {
			if !errors.Is(err, ErrJournalOff) {
				t.Fatal(err)
			}
			return err
		}
	}
	t.Fatal("the journal did not go off")
	return nil
}

// A replica whose sync fails keeps its records for the next open; all others are synced and go on without the journal.
func TestJournalSyncerFails(t *testing.T) {
	g := newRig(t, 4096, 3)
	g.commit(0, []byte("only in the journal"))
	g.commit(1, []byte("old bytes of the second"))
	g.replicas[0].failed.Store(&errDisk)
	if err := fillUntilOff(t, g, 2); !errors.Is(err, errDisk) {
		t.Error(err)
	}
	if err := g.journal.Fence(g.replicas[0].key); !errors.Is(err, ErrJournalOff) || !errors.Is(err, errDisk) {
		t.Errorf("fence of the failed replica: %v", err)
	}
	if g.replicas[1].syncs.Load() == 0 {
		t.Error("the second replica was not synced")
	}
	rewriteDirectly(t, g.journal, g.replicas[1], "new")
	if err := g.journal.Checkpoint(); !errors.Is(err, errDisk) {
		t.Errorf("Checkpoint: %v", err)
	}
	for _, closed := range []bool{false, true} {
		if closed {
			if err := g.journal.Close(); !errors.Is(err, errDisk) {
				t.Errorf("Close: %v", err)
			}
		}
		after := g.crash(0)
		stats := reopen(t, after, 4096)
		if stats.Written != 1 || stats.Kept < 2 {
			t.Errorf("%+v", stats)
		}
		if got := segmentContent(t, after, g.replicas[0].key); got != "only in the journal" {
			t.Errorf("failed replica has %q", got)
		}
		if got := segmentContent(t, after, g.replicas[1].key); got != "new" {
			t.Errorf("second replica has %q", got)
		}
		if stats := reopen(t, after, 4096); !stats.Clean {
			t.Errorf("after replay: %+v", stats)
		}
	}
}

// The same when it is Close that finds out.
func TestJournalSyncerFailsAtClose(t *testing.T) {
	g := newRig(t, 4096, 2)
	g.commit(0, []byte("first"))
	g.commit(1, []byte("second"))
	g.replicas[1].failed.Store(&errDisk)
	if err := g.journal.Close(); !errors.Is(err, errDisk) || !errors.Is(err, ErrJournalOff) {
		t.Error(err)
	}
	after := g.crash(0)
	if stats := reopen(t, after, 4096); stats.Written != 1 || stats.Kept != 1 {
		t.Errorf("%+v", stats)
	}
	if got := segmentContent(t, after, g.replicas[0].key) + segmentContent(t, after, g.replicas[1].key); got != "firstsecond" {
		t.Errorf("%q", got)
	}
}

// faultyRig is a rig whose journal file can be made to fail for good.
func faultyRig(t *testing.T, replicas int) (g *rig, fail func(ops ...vfs.Op)) {
	g = newRig(t, 4096, replicas)
	if err := g.journal.Close(); err != nil {
		t.Fatal(err)
	}
	failing := make(chan []vfs.Op, 1)
	failing <- nil
	fsys := vfs.Inject(g.mem, func(op vfs.Op, name string, _ int64, _ int) error {
		ops := <-failing
		failing <- ops
		for _, o := range ops {
			if o == op && strings.HasPrefix(name, rigJournal) {
				return syscall.EIO
			}
		}
		return nil
	})
	j, _, err := OpenJournal(rigOptions(fsys, 4096), rigResolver{g.mem})
	if err != nil {
		t.Fatal(err)
	}
	g.journal = j
	return g, func(ops ...vfs.Op) {
		<-failing
		failing <- ops
	}
}

// The journal's disk fails: what it had is synced to the replicas, the file is taken away if its header cannot be written, and fences
// hold all the same.
func TestJournalEIO(t *testing.T) {
	for name, ops := range map[string][]vfs.Op{"write": {vfs.OpWrite}, "sync": {vfs.OpSync}} {
		t.Run(name, func(t *testing.T) {
			g, fail := faultyRig(t, 2)
			g.commit(0, []byte("acknowledged"))
			fail(ops...)
			if err := fillUntilOff(t, g, 1); !errors.Is(err, syscall.EIO) {
				t.Error(err)
			}
			rewriteDirectly(t, g.journal, g.replicas[1], "rewritten")
			after := g.crash(0)
			if got := segmentContent(t, after, g.replicas[0].key); got != "acknowledged" {
				t.Errorf("not synced: %q", got)
			}
			if stats := reopen(t, after, 4096); !stats.Created {
				t.Errorf("%+v", stats)
			}
			if got := segmentContent(t, after, g.replicas[1].key); got != "rewritten" {
				t.Errorf("%q", got)
			}
			if s := g.journal.Stats(); !errors.Is(s.Off, syscall.EIO) {
				t.Errorf("%+v", s)
			}
			if err := g.journal.Close(); err != nil {
				t.Errorf("nothing is lost, yet Close: %v", err)
			}
		})
	}
}

// When neither the header can be written nor the file be removed, a fence says so, until the disk works again.
func TestJournalEIOAndNoWayOut(t *testing.T) {
	g, fail := faultyRig(t, 1)
	g.commit(0, []byte("acknowledged"))
	fail(vfs.OpWrite, vfs.OpRemove)
	_ = fillUntilOff(t, g, 0)
	if err := g.journal.Fence(g.replicas[0].key); !errors.Is(err, ErrJournalOff) || !errors.Is(err, syscall.EIO) {
		t.Error(err)
	}
	if err := g.journal.Checkpoint(); !errors.Is(err, syscall.EIO) {
		t.Error(err)
	}
	fail()
	rewriteDirectly(t, g.journal, g.replicas[0], "rewritten")
	if err := g.journal.Close(); err != nil {
		t.Error(err)
	}
	after := g.crash(0)
	if stats := reopen(t, after, 4096); stats.Written != 0 {
		t.Errorf("%+v", stats)
	}
	if got := segmentContent(t, after, g.replicas[0].key); got != "rewritten" {
		t.Errorf("%q", got)
	}
}

// All members of the failed group get the error, and so does the group behind it.
func TestJournalEIOManyWaiters(t *testing.T) {
	g, fail := faultyRig(t, 8)
	fail(vfs.OpSync)
	results := make(chan error, 8)
	for _, r := range g.replicas {
		w, err := r.write([]byte("x"))
		if err != nil {
			t.Fatal(err)
		}
		go func() { results <- g.journal.Commit([]Write{w}, []Syncer{r}) }()
	}
	for range 8 {
		select {
		case err := <-results:
			if !errors.Is(err, ErrJournalOff) {
				t.Error(err)
			}
		case <-time.After(time.Minute):
			t.Fatal("a committer hangs")
		}
	}
}

// A replica that cannot be replayed to does not hold up the others, and loses nothing.
func TestJournalReplayFails(t *testing.T) {
	for _, op := range []vfs.Op{vfs.OpOpen, vfs.OpWrite, vfs.OpSync, vfs.OpClose} {
		g := newRig(t, 8192, 3)
		g.commit(0, []byte("first"))
		g.commit(1, []byte("second"))
		g.commit(2, []byte("third"))
		g.commit(0, []byte(" more"))
		after := g.crash(0)
		g.end()
		bad := Key{1, 1}
		fault := func(o vfs.Op, name string, _ int64, _ int) error {
			if o == op && strings.HasPrefix(name, rigDir(bad)) {
				return syscall.EIO
			}
			return nil
		}
		j, stats, err := OpenJournal(rigOptions(vfs.Inject(after, fault), 8192), rigResolver{after})
		if err != nil {
			t.Fatal(op, err)
		}
		if len(stats.Failed) != 1 || !errors.Is(stats.Failed[bad], syscall.EIO) || stats.Written != 2 {
			t.Errorf("%v: %+v", op, stats)
		}
		file, err := after.Open(rigGenerationDir(Key{2, 1}, 1) + "/" + formatJournalFile(0))
		if err != nil {
			t.Fatal(err)
		}
		second := &rigReplica{fs: after, key: Key{2, 1}, name: formatJournalFile(0), file: file, pos: 6}
		if second.slots, _, err = OpenSlotFile(after, rigDir(second.key)); err != nil {
			t.Fatal(err)
		}
		w := Write{Key: second.key, File: second.name, Data: [][]byte{{1}}, Size: 1}
		if err := j.Commit([]Write{w}, []Syncer{second}); !errors.Is(err, ErrJournalOff) {
			t.Errorf("%v: Commit in bypass: %v", op, err)
		}
		rewriteDirectly(t, j, second, "2nd")
		if err := j.Fence(bad); !errors.Is(err, ErrJournalOff) {
			t.Errorf("%v: fence of the failed replica: %v", op, err)
		}
		if err := j.Close(); !errors.Is(err, ErrJournalOff) {
			t.Errorf("%v: Close in bypass: %v", op, err)
		}
		second.close()
		again := after.CrashClone(vfs.CrashOptions{})
		if stats := reopen(t, again, 8192); stats.Written != 2 || stats.Kept != 2 {
			t.Errorf("%v: second open: %+v", op, stats)
		}
		got := segmentContent(t, again, bad) + "," + segmentContent(t, again, second.key) + "," + segmentContent(t, again, Key{3, 1})
		if got != "first more,2nd,third" {
			t.Errorf("%v: %q", op, got)
		}
	}
}

// A slot file that is damaged is a failed replica too.
func TestJournalReplayToDamagedSlot(t *testing.T) {
	g := newRig(t, 4096, 2)
	r := g.replicas[0]
	r.slot.Term = 4
	w, err := r.slots.Put(r.slot)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.journal.Commit([]Write{w}, []Syncer{r}); err != nil {
		t.Fatal(err)
	}
	g.commit(1, []byte("fine"))
	after := g.crash(0)
	f, err := after.Open(rigDir(r.key) + "/" + SlotFileName)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{0xff}, 40); err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
	j, stats, err := OpenJournal(rigOptions(after, 4096), rigResolver{after})
	if err != nil || len(stats.Failed) != 1 || !errors.Is(stats.Failed[r.key], ErrCorrupt) {
		t.Fatalf("%+v %v", stats, err)
	}
	_ = j.Close()
	if got := segmentContent(t, after, Key{2, 1}); got != "fine" {
		t.Errorf("%q", got)
	}
}

// The header has room for so many failed replicas; with more, fences are refused rather than wrong.
func TestJournalKeptMax(t *testing.T) {
	g := newRig(t, 4096, 1)
	failed := map[Key]error{}
	for i := range uint64(journalKeptMax + 1) {
		failed[Key{i, i}] = errDisk
	}
	if err := g.journal.writeKept(failed); err == nil {
		t.Error("too many were accepted")
	}
	delete(failed, Key{})
	if err := g.journal.writeKept(failed); err != nil {
		t.Error(err)
	}
	content, err := vfs.ReadFile(g.mem, rigJournal)
	if err != nil {
		t.Fatal(err)
	}
	if h, ok, err := decodeJournalHeader(content); !ok || err != nil || len(h.kept) != journalKeptMax || h.kept[0] != (Key{1, 1}) {
		t.Errorf("%+v %v %v", h, ok, err)
	}
}

// OpenJournal leaves neither goroutine nor open file behind when it fails.
func TestJournalOpenFails(t *testing.T) {
	g := newRig(t, 4096, 1)
	g.commit(0, []byte("x"))
	for n := 1; ; n++ {
		after := g.crash(0)
		trigger := vfs.FailNth(n, nil, nil)
		open := vfs.Count(vfs.Inject(after, trigger.Fault))
		j, stats, err := OpenJournal(rigOptions(open, 4096), rigResolver{after})
		if err == nil && len(stats.Failed) == 0 && trigger.Fired() && stats.Written != 1 {
			t.Errorf("fault %d: %+v", n, stats)
		}
		if err == nil {
			_ = j.Close()
		}
		if opened, closed := open.Ops(vfs.OpOpen)+open.Ops(vfs.OpCreate), open.Ops(vfs.OpClose); closed < opened-1 {
			t.Errorf("fault %d: %d opened, %d closed", n, opened, closed)
		}
		if !trigger.Fired() {
			break
		}
	}
}
