package segment

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/billetlog/billet/internal/vfs"
)

func TestJournalCommitSurvivesPowerCut(t *testing.T) {
	g := newRig(t, 4096, 2)
	g.commit(0, []byte("one "), []byte("two "))
	g.commit(1, []byte("other"))
	g.commit(0, []byte("three"))
	after := g.crash(0)
	stats := reopen(t, after, 4096)
	if stats.Groups != 3 || stats.Records != 3 || stats.Written != 3 || stats.Files != 2 {
		t.Errorf("stats %+v", stats)
	}
	if got := segmentContent(t, after, Key{1, 1}); got != "one two three" {
		t.Errorf("replica 1 has %q", got)
	}
	if got := segmentContent(t, after, Key{2, 1}); got != "other" {
		t.Errorf("replica 2 has %q", got)
	}
	if stats := reopen(t, after, 4096); !stats.Clean || stats.Records != 0 {
		t.Errorf("second open: %+v", stats)
	}
}

// What replay wrote is durable when OpenJournal returns, and before that a crash does no harm.
func TestJournalReplayIsDurableAndIdempotent(t *testing.T) {
	g := newRig(t, 8192, 2)
	for i := range 5 {
		g.commit(i%2, []byte(fmt.Sprintf("<%d>", i)))
	}
	before := g.crash(0)
	for n := 1; ; n++ {
		fsys := before.CrashClone(vfs.CrashOptions{})
		trigger := vfs.FailFrom(n, func(op vfs.Op, _ string) bool { return op.Changes() }, nil)
		j, _, err := OpenJournal(rigOptions(vfs.Inject(fsys, trigger.Fault), 8192), rigResolver{fsys})
		if err == nil {
			_ = j.Close()
		}
		for _, keep := range []float64{0, 0.5, 1} {
			again := fsys.CrashClone(vfs.CrashOptions{KeepUnsynced: keep})
			reopen(t, again, 8192)
			if got := segmentContent(t, again, Key{1, 1}); got != "<0><2><4>" {
				t.Fatalf("fault %d, keep %v: %q", n, keep, got)
			}
		}
		if !trigger.Fired() {
			break
		}
	}
}

func TestJournalCleanClose(t *testing.T) {
	g := newRig(t, 4096, 1)
	g.commit(0, []byte("x"))
	g.end()
	after := g.crash(0)
	if got := segmentContent(t, after, Key{1, 1}); got != "x" {
		t.Errorf("segment has %q", got)
	}
	if stats := reopen(t, after, 4096); !stats.Clean {
		t.Errorf("not clean: %+v", stats)
	}
	if err := g.journal.Close(); !errors.Is(err, ErrClosed) {
		t.Errorf("second Close: %v", err)
	}
	if err := g.journal.Checkpoint(); !errors.Is(err, ErrClosed) {
		t.Errorf("Checkpoint after Close: %v", err)
	}
	if err := g.journal.Fence(Key{1, 1}); !errors.Is(err, ErrClosed) {
		t.Errorf("Fence after Close: %v", err)
	}
}

// A truncation behind a fence is not undone by records from before, in the same half or the other one.
func TestJournalFence(t *testing.T) {
	for fill := range 12 { // so that records, fence and what follows lie in different halves
		t.Run(fmt.Sprintf("fill=%d", fill), func(t *testing.T) {
			g := newRig(t, 4096, 2)
			r := g.replicas[0]
			g.commit(0, []byte("keep old old"))
			for range fill {
				g.commit(1, bytes.Repeat([]byte("f"), 600))
			}
			if err := r.syncDirect(); err != nil {
				t.Fatal(err)
			}
			if err := g.journal.Fence(r.key); err != nil {
				t.Fatal(err)
			}
			if err := r.file.Truncate(5); err != nil {
				t.Fatal(err)
			}
			r.pos = 5
			w, err := r.write([]byte("new"))
			if err != nil {
				t.Fatal(err)
			}
			if err := r.syncDirect(); err != nil { // direct: no record of it
				t.Fatal(err)
			}
			_ = w
			after := g.crash(0)
			reopen(t, after, 4096)
			if got := segmentContent(t, after, r.key); got != "keep new" {
				t.Errorf("segment has %q", got)
			}
			g.commit(0, []byte(" more"))
			after = g.crash(0)
			reopen(t, after, 4096)
			if got := segmentContent(t, after, r.key); got != "keep new more" {
				t.Errorf("segment has %q", got)
			}
			if got := len(segmentContent(t, after, g.replicas[1].key)); got != 600*fill {
				t.Errorf("the other replica has %d bytes", got)
			}
		})
	}
}

// A fence is about segments: a vote that is in the journal only must survive it.
func TestJournalFenceKeepsSlots(t *testing.T) {
	g := newRig(t, 4096, 1)
	r := g.replicas[0]
	r.slot.Term, r.slot.Vote = 7, 3
	w, err := r.slots.Put(r.slot)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.journal.Commit([]Write{w}, []Syncer{r.slots}); err != nil {
		t.Fatal(err)
	}
	if err := g.journal.Fence(r.key); err != nil {
		t.Fatal(err)
	}
	after := g.crash(0)
	reopen(t, after, 4096)
	f, s, err := OpenSlotFile(after, rigDir(r.key))
	if err != nil || s.Term != 7 || s.Vote != 3 {
		t.Fatalf("%+v, %v", s, err)
	}
	_ = f.Close()
}

func TestJournalSkipsWhatIsGone(t *testing.T) {
	g := newRig(t, 8192, 4)
	for i := range 4 {
		g.commit(i, []byte("bytes"))
	}
	after := g.crash(0)
	gone := []string{rigDir(Key{1, 1}), rigGenerationDir(Key{2, 1}, 1), filepath.Join(rigGenerationDir(Key{3, 1}, 1), formatJournalFile(0))}
	for _, name := range gone {
		if err := after.RemoveAll(name); err != nil {
			t.Fatal(err)
		}
	}
	stats := reopen(t, after, 8192)
	if stats.Gone != 3 || stats.Written != 1 || len(stats.Failed) != 0 {
		t.Errorf("stats %+v", stats)
	}
	for _, name := range gone {
		if _, err := after.Stat(name); err == nil {
			t.Errorf("%s came back", name)
		}
	}
}

// Halves are used in turn many times, and only when the replicas of the old records are synced.
func TestJournalWraps(t *testing.T) {
	g := newRig(t, 4096, 3)
	var want [3]strings.Builder
	for i := range 200 {
		data := bytes.Repeat([]byte{byte('a' + i%26)}, 100+i*7%900)
		g.commit(i%3, data)
		want[i%3].Write(data)
		if i%5 != 0 {
			continue
		}
		after := g.crash(float64(i%3) / 2)
		reopen(t, after, 4096)
		for r := range 3 {
			if got := segmentContent(t, after, g.replicas[r].key); got != want[r].String() {
				t.Fatalf("after %d: replica %d has %d bytes, want %d", i, r, len(got), want[r].Len())
			}
		}
	}
	s := g.journal.Stats()
	if s.Checkpoints < 20 || s.Groups != 200 || s.Records != 200 || s.Syncs < 220 || s.Off != nil {
		t.Errorf("stats %+v", s)
	}
}

// Close and a stalled writer wait for a checkpoint that takes its time.
func TestJournalStall(t *testing.T) { synctest.Test(t, journalStall) }

func journalStall(t *testing.T) {
	g := newRig(t, 4096, 1)
	r := g.replicas[0]
	r.block = make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 12 {
			g.commit(0, make([]byte, 1000))
		}
	}()
	synctest.Wait() // until it gets no further
	select {
	case <-done:
		t.Error("a half was used again before its replica was synced")
	default:
	}
	const stall = 20 * time.Millisecond
	time.Sleep(stall) // in virtual time
	close(r.block)
	<-done
	if s := g.journal.Stats(); s.Stalls == 0 || s.Stall != stall {
		t.Errorf("stats %+v", s)
	}
}

func TestJournalCheckpoint(t *testing.T) {
	for _, commits := range []int{0, 1, 3, 4, 5, 6, 7, 20} {
		g := newRig(t, 4096, 2)
		for i := range commits {
			g.commit(i%2, make([]byte, 900))
		}
		if err := g.journal.Checkpoint(); err != nil {
			t.Fatal(err)
		}
		if stats := reopen(t, g.crash(0), 4096); stats.Records != 0 || stats.Clean {
			t.Errorf("%d commits: %+v", commits, stats)
		}
		g.commit(0, []byte("x"))
		if stats := reopen(t, g.crash(0), 4096); stats.Records != 1 {
			t.Errorf("%d commits and one: %+v", commits, stats)
		}
		g.end()
	}
}

func TestJournalForget(t *testing.T) {
	g := newRig(t, 4096, 2)
	g.commit(0, []byte("x"))
	g.commit(1, []byte("y"))
	err := errors.New("gone")
	g.replicas[0].failed.Store(&err)
	g.journal.Forget(g.replicas[0].key)
	if err := g.journal.Checkpoint(); err != nil {
		t.Error(err)
	}
	if n := g.replicas[0].syncs.Load(); n != 0 {
		t.Errorf("a forgotten replica was synced %d times", n)
	}
	if n := g.replicas[1].syncs.Load(); n != 1 {
		t.Errorf("the other replica was synced %d times", n)
	}
}

// The syncer of a replica's segments and that of its slot file do not replace one another.
func TestJournalTwoSyncers(t *testing.T) {
	g := newRig(t, 4096, 1)
	r := g.replicas[0]
	g.commit(0, []byte("bytes"))
	r.slot.Vote = 9
	w, err := r.slots.Put(r.slot)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.journal.Commit([]Write{w}, []Syncer{r.slots}); err != nil {
		t.Fatal(err)
	}
	if err := g.journal.Checkpoint(); err != nil {
		t.Fatal(err)
	}
	after := g.crash(0)
	f, s, err := OpenSlotFile(after, rigDir(r.key))
	if err != nil || s.Vote != 9 {
		t.Fatalf("%+v %v", s, err)
	}
	_ = f.Close()
	if got := segmentContent(t, after, r.key); got != "bytes" {
		t.Errorf("%q", got)
	}
}

// Forget waits for the sync that runs, whose error then does not matter.
func TestJournalForgetWaits(t *testing.T) {
	g := newRig(t, 4096, 1)
	r := g.replicas[0]
	r.block = make(chan struct{})
	err := errors.New("closed")
	r.failed.Store(&err)
	g.commit(0, []byte("x"))
	var wait sync.WaitGroup
	wait.Go(func() {
		if err := g.journal.Checkpoint(); err != nil {
			t.Error(err)
		}
	})
	for r.syncs.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	forgot := make(chan struct{})
	wait.Go(func() {
		g.journal.Forget(r.key)
		close(forgot)
	})
	select {
	case <-forgot:
		t.Error("Forget did not wait")
	case <-time.After(20 * time.Millisecond):
	}
	close(r.block)
	wait.Wait()
	if s := g.journal.Stats(); s.Off != nil {
		t.Error(s.Off)
	}
}

func TestJournalRefuses(t *testing.T) {
	g := newRig(t, 4096, 1)
	r := g.replicas[0]
	ok := Write{Key: r.key, File: r.name, Data: [][]byte{{1}}, Size: 1}
	change := func(f func(w *Write)) []Write {
		w := ok
		f(&w)
		return []Write{w}
	}
	syncers := []Syncer{r}
	for name, ws := range map[string][]Write{
		"size":      change(func(w *Write) { w.Size = 2 }),
		"position":  change(func(w *Write) { w.Pos = -1 }),
		"name":      change(func(w *Write) { w.File = "x.log" }),
		"index":     change(func(w *Write) { w.File = strings.Replace(r.name, "log", "idx", 1) }),
		"too large": change(func(w *Write) { w.File = "99999999999999999999.log" }),
		"slot name": change(func(w *Write) { w.Slot = true }),
		"not slot":  change(func(w *Write) { w.File = SlotFileName }),
		"none":      nil,
	} {
		if err := g.journal.Commit(ws, syncers); err == nil || errors.Is(err, ErrJournalOff) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := g.journal.Commit([]Write{ok}, []Syncer{nil}); err == nil {
		t.Error("no syncer was accepted")
	}
	if err := g.journal.Commit(nil, nil); err != nil {
		t.Error(err)
	}
	limit := 3528 - journalBlockHeader - journalRecordHeader
	large := change(func(w *Write) { w.Data, w.Size = [][]byte{make([]byte, limit+1)}, limit+1 })
	if err := g.journal.Commit(large, syncers); !errors.Is(err, ErrJournalTooLarge) {
		t.Error(err)
	}
	for range 3 {
		g.commit(0, make([]byte, limit))
	}
	if s := g.journal.Stats(); s.Groups != 3 {
		t.Errorf("%+v", s)
	}
	for _, o := range []JournalOptions{{}, {Path: "x", HalfBytes: 1000}, {Path: "x", HalfBytes: 4097}, {Path: "x", HalfBytes: 1 << 40}, {Path: "x", CheckpointParallel: -1}} {
		if _, _, err := OpenJournal(o, nil); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
}

// Buffers are free after Commit; records are in their order.
func TestJournalCopies(t *testing.T) {
	g := newRig(t, 4096, 1)
	buf := []byte("first ")
	g.commit(0, buf)
	copy(buf, "XXXXXX")
	g.commit(0, []byte("second"))
	after := g.crash(0)
	reopen(t, after, 4096)
	if got := segmentContent(t, after, g.replicas[0].key); got != "first second" {
		t.Errorf("%q", got)
	}
}

func TestJournalOtherHalfBytes(t *testing.T) {
	g := newRig(t, 4096, 1)
	g.commit(0, []byte("x"))
	after := g.crash(0)
	if stats := reopen(t, after, 16384); stats.Written != 1 {
		t.Errorf("%+v", stats)
	}
	if info, err := after.Stat(rigJournal); err != nil || info.Size != journalHalvesStart+2*16384 {
		t.Errorf("%+v %v", info, err)
	}
	if stats := reopen(t, after, 4096); !stats.Clean {
		t.Errorf("%+v", stats)
	}
}

// Many committers at once share groups; every group is complete before the next one.
func TestJournalGroups(t *testing.T) {
	g := newRig(t, 64<<10, 16)
	var wait sync.WaitGroup
	for i := range 16 {
		wait.Go(func() {
			for n := range 50 {
				g.commit(i, []byte(fmt.Sprintf("%d.", n)))
			}
		})
	}
	wait.Wait()
	s := g.journal.Stats()
	if s.Records != 800 || s.Groups > 800 {
		t.Errorf("%+v", s)
	}
	after := g.crash(0)
	reopen(t, after, 64<<10)
	var want strings.Builder
	for n := range 50 {
		fmt.Fprintf(&want, "%d.", n)
	}
	for i := range 16 {
		if got := segmentContent(t, after, g.replicas[i].key); got != want.String() {
			t.Errorf("replica %d has %q", i, got)
		}
	}
}

// A committer whose records do not fit the group waits for the next one.
func TestJournalBoundedGroup(t *testing.T) {
	g := newRig(t, 4096, 8)
	var wait sync.WaitGroup
	for i := range 8 {
		wait.Go(func() {
			for range 20 {
				g.commit(i, bytes.Repeat([]byte{byte(i)}, 1500))
			}
		})
	}
	wait.Wait()
	after := g.crash(0)
	reopen(t, after, 4096)
	for i := range 8 {
		if got := len(segmentContent(t, after, g.replicas[i].key)); got != 30000 {
			t.Errorf("replica %d has %d bytes", i, got)
		}
	}
}
