package segment

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/billetlog/billet/internal/vfs"
)

// play is a fixed history that touches everything: rolls, conflicts within and
// across segments, checkpoints, retention, reopening. before is called with the
// twin as it is and as the next step will make it.
func play(tb tester, o Options, before func(now, next *twin)) (err error) {
	l, err := Create(o, Start{FirstIndex: 1})
	if err != nil {
		return err
	}
	defer func() {
		_ = l.Close(false)
		v := recover()
		if stop, ok := v.(stopPlay); ok {
			err = stop.err
		} else if v != nil {
			panic(v)
		}
	}()
	now := &twin{first: 1}
	f := newFeeder(tb)
	step := func(change func(next *twin), do func() error) {
		next := now.clone()
		change(next)
		now.mark = min(now.mark, next.mark) // as a caller has to
		before(now, next)
		if err := do(); err != nil {
			panic(stopPlay{err})
		}
		now = next
	}
	add := func(entries ...Entry) {
		step(func(next *twin) { next.append(entries) }, func() error {
			_, err := l.Append(entries)
			return err
		})
	}
	sync := func() {
		step(func(next *twin) { next.mark = next.last() }, l.Sync)
	}
	back := func(from uint64) {
		part := now.clone()
		part.truncate(from)
		f.index, f.term, f.offset = from, now.lastTerm(), part.end()
	}
	checkpoint := func(index uint64, durable bool) {
		part := now.clone()
		part.truncate(index + 1)
		c := Checkpoint{Index: index, Term: part.lastTerm(), Offset: part.end(), Payload: []byte("fold")}
		step(func(next *twin) { next.mark = max(next.mark, index) }, func() error { return l.SaveCheckpoint(c, durable) })
	}
	add(f.noop(1), f.data(2, 200), f.void(), f.data(1, 100))
	sync()
	for range 4 {
		add(f.data(1, 500), f.config("members"), f.data(2, 300))
	}
	checkpoint(5, false)
	sync()
	add(f.data(3, 200), f.data(1, 700), f.data(1, 700), f.data(1, 700)) // rolls within
	back(now.last() - 1)
	add(f.noop(3), f.data(1, 50)) // conflict within the active segment
	checkpoint(8, true)
	back(7)
	add(f.noop(5), f.data(1, 900), f.data(1, 900)) // conflict across segments, below a checkpoint
	sync()
	for range 3 {
		add(f.data(1, 800), f.data(1, 800))
	}
	checkpoint(now.last()-1, false)
	checkpoint(now.last(), false)
	step(func(next *twin) { next.mark = next.last() }, l.Roll)
	add(f.data(2, 20))
	part := now.clone()
	step(func(*twin) {}, func() error { // the twin learns afterwards how far
		d, err := l.DeleteBelow(part.end(), part.last()-2)
		if err == nil {
			now.retained(d.FirstIndex, d.StartOffset)
		}
		return err
	})
	now.retained(l.FirstIndex(), l.StartOffset())
	step(func(next *twin) { next.truncate(next.last()) }, func() error { return l.Truncate(now.last()) })
	back(now.last() + 1)
	add(f.noop(9))
	step(func(next *twin) { next.mark = next.last() }, func() error { return l.Close(true) })
	step(func(next *twin) { next.mark = next.last() }, func() error {
		opened, _, err := Open(o, OpenHints{DurableIndex: now.mark})
		if err == nil {
			l = opened
		}
		return err
	})
	f.index = now.last() + 1
	f.term, f.offset = now.lastTerm(), now.end()
	add(f.data(1, 10))
	sync()
	return nil
}

// stopPlay ends a play with an error.
type stopPlay struct{ err error }

// afterCrash opens what a power cut left and compares it with what may be there:
// a part of the log before the step or of the one after it, with all durable
// entries.
func afterCrash(tb tester, m *vfs.Mem, o Options, now, next *twin, created bool) {
	tb.Helper()
	o.FS = m
	l, _, err := Open(o, OpenHints{DurableIndex: now.mark})
	if err != nil {
		if !created {
			return // nothing was promised
		}
		tb.Fatalf("open, durable are %d: %v", now.mark, err)
	}
	defer func() { _ = l.Close(false) }()
	got := readTwin(tb, l)
	if got.last() < now.mark {
		tb.Fatalf("last is %d, durable were %d", got.last(), now.mark)
	}
	var fits bool
	for _, full := range []*twin{now, next} {
		full := full.clone()
		if got.first <= full.last()+1 && got.first >= full.first {
			full.retained(got.first, got.start)
		}
		fits = fits || got.isPrefixOf(full)
	}
	if !fits {
		tb.Fatalf("the log [%d, %d] is neither of [%d, %d] nor of [%d, %d]", got.first, got.last(), now.first, now.last(), next.first, next.last())
	}
	checkReads(tb, l, got.entries)
	f := &feeder{tb: tb, index: got.last() + 1, term: got.lastTerm(), offset: got.end()}
	mustAppend(tb, l, f.noop(f.term+1), f.data(1, 30))
}

func playOptions(fs vfs.FS) Options {
	o := logOptions(fs)
	o.SegmentBytes, o.IndexIntervalBytes = 2000, 300
	return o
}

// TestCrashAtEveryOperation cuts the power before each operation that changes
// something, and keeps nothing, all, or some of what is not synced.
func TestCrashAtEveryOperation(t *testing.T) {
	for _, lossy := range []bool{false, true} {
		t.Run(fmt.Sprintf("lossy=%v", lossy), func(t *testing.T) { crashEverywhere(t, lossy) })
	}
}

func crashEverywhere(t *testing.T, lossy bool) {
	m := vfs.NewMem()
	var mu sync.Mutex
	var now, next *twin
	operations := 0
	crash := func(op vfs.Op, name string) {
		mu.Lock()
		defer mu.Unlock()
		operations++
		for i, keep := range []float64{0, 1, 0.5, 0.5, 0.2, 0.8} {
			clone := m.CrashClone(vfs.CrashOptions{KeepUnsynced: keep, Rand: rand.New(rand.NewPCG(uint64(i), uint64(operations)))})
			o := playOptions(clone)
			o.LossyTail = lossy
			tb := explained{t, fmt.Sprintf("operation %d (%v %s), keep %v #%d", operations, op, name, keep, i)}
			if now == nil {
				afterCrash(tb, clone, o, &twin{first: 1}, &twin{first: 1}, false)
				continue
			}
			afterCrash(tb, clone, o, now, next, true)
		}
	}
	o := playOptions(vfs.Inject(m, func(op vfs.Op, name string, _ int64, _ int) error {
		if op.Changes() {
			crash(op, name)
		}
		return nil
	}))
	o.LossyTail = lossy
	must(t, play(t, o, func(a, b *twin) { now, next = a.clone(), b.clone() }))
	if operations < 100 {
		t.Fatalf("only %d operations", operations)
	}
}

// explained puts what was done before a failure's message.
type explained struct {
	tester
	what string
}

func (e explained) Fatal(args ...any) {
	e.tester.Helper()
	e.tester.Fatal(append([]any{e.what + ": "}, args...)...)
}

func (e explained) Fatalf(format string, args ...any) {
	e.tester.Helper()
	e.tester.Fatalf(e.what+": "+format, args...)
}

// TestFailEveryOperation lets each operation fail, once or from then on. The log
// must say so, serve what it served, and open again afterwards with all that was
// durable.
func TestFailEveryOperation(t *testing.T) {
	for _, lasting := range []bool{false, true} {
		for n := 1; ; n++ {
			m := vfs.NewMem()
			changing := func(op vfs.Op, _ string) bool { return op != vfs.OpClose }
			trigger := vfs.FailNth(n, changing, nil)
			if lasting {
				trigger = vfs.FailFrom(n, changing, nil)
			}
			tb := explained{t, fmt.Sprintf("operation %d, lasting %v", n, lasting)}
			var now, next *twin
			err := play(tb, playOptions(vfs.Inject(m, trigger.Fault)), func(a, b *twin) { now, next = a.clone(), b.clone() })
			if !trigger.Fired() {
				must(tb, err)
				break
			}
			if err == nil {
				continue // one that does not matter, such as deleting an index
			}
			if !errors.Is(err, vfs.ErrInjected) {
				tb.Fatalf("the error hides its cause: %v", err)
			}
			if now != nil {
				afterCrash(tb, m, playOptions(m), now, next, true)
			}
		}
	}
}
