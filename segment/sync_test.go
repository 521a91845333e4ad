package segment

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/billetlog/billet/internal/vfs"
)

// TestDurableIndex follows the index through the ways in which it moves.
func TestDurableIndex(t *testing.T) {
	l := createLog(t, logOptions(vfs.NewMem()))
	defer l.Close(false)
	is := func(want uint64) {
		t.Helper()
		if got := l.DurableIndex(); got != want {
			t.Fatalf("durable %d, want %d", got, want)
		}
	}
	is(0)
	f := newFeeder(t)
	mustAppend(t, l, f.noop(1), f.data(1, 10), f.data(1, 10), f.data(1, 10))
	is(0)
	l.MarkDurable(2)
	is(2)
	l.MarkDurable(1)
	is(2)
	l.MarkDurable(100) // no further than the end
	is(4)
	mustAppend(t, l, f.data(1, 10))
	must(t, l.Truncate(3))
	is(2)
	f = &feeder{tb: t, index: 3, offset: 1}
	mustAppend(t, l, f.noop(2), f.data(1, 10))
	is(2)
	must(t, l.Sync())
	is(4)
	mustAppend(t, l, f.data(1, 10))
	must(t, l.Roll()) // sealing syncs
	is(5)
}

// TestUnsyncedBound checks that appends sync by themselves before more than
// MaxUnsyncedBytes could be lost, but not for what the journal has.
func TestUnsyncedBound(t *testing.T) {
	for _, c := range []struct {
		name  string
		lossy bool
		mark  bool
		want  int64
	}{
		{"commit", false, false, 5},
		{"journaled", false, true, 0},
		{"interval", true, false, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			fs := vfs.Count(vfs.NewMem())
			o := logOptions(fs)
			o.SegmentBytes, o.MaxUnsyncedBytes, o.LossyTail = 1<<20, 1500, c.lossy
			l := createLog(t, o)
			defer l.Close(false)
			f := newFeeder(t)
			mustAppend(t, l, f.noop(1))
			fs.Reset()
			for range 6 { // about 1090 bytes each
				a := mustAppend(t, l, f.data(1, 1000))
				if c.mark {
					l.MarkDurable(a.LastIndex)
				}
			}
			if got := fs.Ops(vfs.OpSync); got != c.want {
				t.Fatalf("%d syncs, want %d", got, c.want)
			}
		})
	}
	t.Run("one append", func(t *testing.T) {
		o := logOptions(vfs.NewMem())
		o.SegmentBytes, o.MaxUnsyncedBytes = 1<<20, 1500
		l := createLog(t, o)
		defer l.Close(false)
		f := newFeeder(t)
		a := mustAppend(t, l, f.noop(1), f.data(1, 1000), f.data(1, 1000), f.data(1, 1000))
		if len(a.Writes) != 3 || a.Synced || l.DurableIndex() != 3 {
			t.Fatalf("%d writes, durable %d", len(a.Writes), l.DurableIndex())
		}
	})
}

// fencer notes what was done before a fence.
type fencer struct {
	mu    sync.Mutex
	calls []string
	err   error
}

func (f *fencer) note(op vfs.Op, name string, _ int64, _ int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if op.Changes() && !strings.HasSuffix(name, indexSuffix) {
		f.calls = append(f.calls, op.String())
	}
	return nil
}

func (f *fencer) Fence(k Key) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, fmt.Sprintf("fence %d", k.Shard))
	return f.err
}

// TestFenceBeforeTruncation checks the order: sync, fence, and only then bytes
// change.
func TestFenceBeforeTruncation(t *testing.T) {
	j := &fencer{}
	o := logOptions(vfs.Inject(vfs.NewMem(), j.note))
	o.Fencer = j
	l := createLog(t, o)
	defer l.Close(false)
	f := newFeeder(t)
	mustAppend(t, l, f.noop(1), f.data(1, 10), f.data(1, 10))
	l.MarkDurable(3)
	j.calls = nil
	must(t, l.Truncate(3))
	want := []string{"sync", "fence 8", "truncate", "sync", "syncdir"}
	if !slices.Equal(j.calls, want) {
		t.Fatalf("got %v, want %v", j.calls, want)
	}
	j.calls = nil
	must(t, l.Truncate(3)) // nothing to cut
	if len(j.calls) != 0 {
		t.Fatalf("got %v", j.calls)
	}
	j.err = errors.New("no fence")
	if err := l.Truncate(2); !errors.Is(err, j.err) || !errors.Is(err, ErrFailed) {
		t.Fatalf("error %v", err)
	}
	if l.LastIndex() != 2 {
		t.Fatalf("cut without a fence")
	}
}

// TestSyncBesideAppend lets appends, syncs, checkpoints, reads and retention run
// at once.
func TestSyncBesideAppend(t *testing.T) {
	o := logOptions(vfs.NewMem())
	l := createLog(t, o)
	f := newFeeder(t)
	mustAppend(t, l, f.noop(1), f.data(1, 10))
	stop := make(chan struct{})
	var wg sync.WaitGroup
	beside := func(do func() error) {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := do(); err != nil && !errors.Is(err, ErrCompacted) {
					t.Error(err)
					return
				}
			}
		})
	}
	beside(l.SyncJournaled)
	beside(func() error {
		index := l.LastIndex()
		fr, err := l.Frame(index)
		if err != nil {
			return err
		}
		l.Forget(index)
		return l.SaveCheckpoint(Checkpoint{Index: index, Term: fr.Term, Offset: fr.NextOffset}, false)
	})
	beside(func() error {
		_, err := l.Retain(Retention{Bytes: 8000, Age: -1, BelowIndex: l.LastIndex(), Now: testTime})
		return err
	})
	beside(func() error {
		c := l.NewCursor()
		defer c.Close()
		c.VerifyCRC = true
		end := l.EndOffset()
		for offset := l.StartOffset(); offset < end; {
			b, err := c.Read(nil, offset, end, 700)
			if err != nil {
				return err
			}
			offset = nextOffset(b)
		}
		return nil
	})
	beside(func() error {
		first := l.FirstIndex()
		_, err := l.Entries(nil, first, l.LastIndex()+1, 5000)
		return err
	})
	beside(func() error { return l.Verify(t.Context(), nil) })
	beside(func() error {
		for _, s := range l.Segments() {
			if s.EndOffset < s.BaseOffset || s.LastIndex+1 < s.FirstIndex {
				return fmt.Errorf("%+v", s)
			}
		}
		return nil
	})
	for i := range 1500 {
		mustAppend(t, l, f.data(1, i%400), f.void())
	}
	close(stop)
	wg.Wait()
	must(t, l.Sync())
	last := l.LastIndex()
	if l.DurableIndex() != last {
		t.Fatalf("durable %d, last %d", l.DurableIndex(), last)
	}
	must(t, l.Close(true))
	l, _ = openLog(t, o, OpenHints{DurableIndex: last})
	defer l.Close(false)
	if l.LastIndex() != last {
		t.Fatalf("last %d, want %d", l.LastIndex(), last)
	}
}

// TestReadersDuringTruncation reads up to a limit while what is above it is cut
// and written anew.
func TestReadersDuringTruncation(t *testing.T) {
	l := createLog(t, logOptions(vfs.NewMem()))
	defer l.Close(false)
	f := newFeeder(t)
	mustAppend(t, l, f.noop(1), f.data(1, 10), f.data(3, 500), f.data(1, 900))
	limit, from := l.EndOffset(), l.LastIndex()+1
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			c := l.NewCursor()
			defer c.Close()
			c.VerifyCRC = true
			for {
				select {
				case <-stop:
					return
				default:
				}
				for offset := int64(0); offset < limit; {
					b, err := c.Read(nil, offset, limit, 600)
					if err != nil {
						t.Error(err)
						return
					}
					offset = nextOffset(b)
				}
				last := l.LastIndex()
				entries, err := l.Entries(nil, 1, last+1, 1<<20)
				if err != nil && !errors.Is(err, ErrUnavailable) {
					t.Error(err, last, len(entries))
					return
				}
			}
		})
	}
	for term := range 150 {
		f := &feeder{tb: t, index: from, offset: limit}
		mustAppend(t, l, f.noop(uint64(term+2)), f.noop(uint64(term+2)), f.data(1, term*10), f.data(1, 900), f.data(1, 10))
		if term%3 == 0 {
			must(t, l.Truncate(from+1))
		}
	}
	time.Sleep(time.Millisecond)
	close(stop)
	wg.Wait()
}
