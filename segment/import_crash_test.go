package segment

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/billetlog/billet/internal/vfs"
)

// TestImportCrashAtEveryOperation cuts the power before each operation of an import that changes something. The present log is there as it was,
// and the next import over the same folder ends with the same log.
func TestImportCrashAtEveryOperation(t *testing.T) {
	s := newImportScene(t)
	m := s.fs
	operations := 0
	at := vfs.Inject(m, func(op vfs.Op, name string, _ int64, _ int) error {
		if !op.Changes() {
			return nil
		}
		operations++
		for i, keep := range []float64{0, []float64{0.2, 0.5, 0.8, 1}[operations%4]} {
			clone := m.CrashClone(vfs.CrashOptions{KeepUnsynced: keep, Rand: rand.New(rand.NewPCG(uint64(i), uint64(operations)))})
			tb := explained{t, fmt.Sprintf("operation %d (%v %s), keep %v #%d", operations, op, name, keep, i)}
			must(tb, s.run(clone, 0))
			s.done(tb, clone)
			l, _ := openLog(tb, s.present(clone), OpenHints{DurableIndex: s.common})
			if l.LastIndex() != s.common+3 {
				tb.Fatalf("the present log ends with %d", l.LastIndex())
			}
			must(tb, l.Verify(t.Context(), nil))
			must(tb, l.Close(false))
		}
		return nil
	})
	must(t, s.run(at, 900))
	s.done(t, m)
	if operations < 50 {
		t.Fatalf("only %d operations", operations)
	}
}

// TestImportCrashTwice cuts the power in the middle of an import that goes on after a power cut.
func TestImportCrashTwice(t *testing.T) {
	s := newImportScene(t)
	random := rand.New(rand.NewPCG(1, 1))
	clean := s.fs
	for round := range 80 {
		m := clean
		for range 3 {
			m = m.CrashClone(vfs.CrashOptions{})
			after := random.IntN(60)
			stop := errors.New("power cut")
			err := s.run(vfs.Inject(m, func(op vfs.Op, _ string, _ int64, _ int) error {
				if !op.Changes() {
					return nil
				}
				if after--; after < 0 {
					return stop
				}
				return nil
			}), 900)
			if err != nil && !errors.Is(err, stop) {
				t.Fatalf("round %d: %v", round, err)
			}
			m = m.CrashClone(vfs.CrashOptions{KeepUnsynced: random.Float64(), Rand: random})
		}
		tb := explained{t, fmt.Sprintf("round %d", round)}
		must(tb, s.run(m, 0))
		s.done(tb, m)
	}
}

// TestImportFailEveryOperation lets each operation fail, once or from then on. The importer must say so; another one then ends the import, and
// what it ends with is durable although reads show what a failed sync lost.
func TestImportFailEveryOperation(t *testing.T) {
	s := newImportScene(t)
	clean := s.fs
	for _, lasting := range []bool{false, true} {
		step := 1
		if lasting {
			step = 5 // much of it fails as before
		}
		for n := 1; ; n += step {
			m := clean.CrashClone(vfs.CrashOptions{})
			all := func(op vfs.Op, _ string) bool { return op != vfs.OpClose }
			trigger := vfs.FailNth(n, all, nil)
			if lasting {
				trigger = vfs.FailFrom(n, all, nil)
			}
			tb := explained{t, fmt.Sprintf("operation %d, lasting %v", n, lasting)}
			err := s.run(vfs.Inject(m, trigger.Fault), 900)
			if !trigger.Fired() {
				must(tb, err)
				break
			}
			if err != nil && !errors.Is(err, vfs.ErrInjected) {
				tb.Fatalf("the error hides its cause: %v", err)
			}
			if err == nil {
				s.done(tb, m)
				continue
			}
			if lasting { // a file whose sync failed could not be removed either
				continue
			}
			must(tb, s.run(m, 900))
			s.done(tb, m)
		}
	}
}

// TestImportTornWrites lets writes stop short.
func TestImportTornWrites(t *testing.T) {
	s := newImportScene(t)
	clean := s.fs
	for n := 1; ; n++ {
		m := clean.CrashClone(vfs.CrashOptions{})
		trigger := vfs.TornWrite(n, vfs.ByteCount(n*37%200), nil, nil)
		tb := explained{t, fmt.Sprintf("write %d", n)}
		err := s.run(vfs.Inject(m, trigger.Fault), 900)
		if !trigger.Fired() {
			must(tb, err)
			break
		}
		if !errors.Is(err, vfs.ErrInjected) {
			tb.Fatalf("the importer says %v", err)
		}
		must(tb, s.run(m, 0))
		s.done(tb, m)
	}
}

// TestImportCrashOverAnotherOffer cuts a complete segment for an offer that ends within it, and makes it whole again for the first offer. The
// index that once vouched for it must not do so, after a power cut, before it is whole.
func TestImportCrashOverAnotherOffer(t *testing.T) {
	source, _ := mixedLog(t, logOptions(vfs.NewMem()))
	defer func() { must(t, source.Close(false)) }()
	all := extentOf(t, source)
	short, err := source.Extent(source.Segments()[0].LastIndex - 3)
	must(t, err)
	defer func() { must(t, errors.Join(all.Close(), short.Close())) }()
	take := func(fs vfs.FS, e *Extent) error {
		im, err := OpenImporter(importOptions(fs), e.Info(), nil, 0)
		if err != nil {
			return err
		}
		return errors.Join(pull(im, e, 0), im.Close())
	}
	m := vfs.NewMem()
	must(t, m.MkdirAll("/replica"))
	must(t, take(m, all))
	m.SyncAll()
	operations := 0
	at := vfs.Inject(m, func(op vfs.Op, name string, _ int64, _ int) error {
		if !op.Changes() {
			return nil
		}
		operations++
		seeds := 1
		if op == vfs.OpSync { // written, and not there for sure
			seeds = 20
		}
		for i := range seeds {
			clone := m.CrashClone(vfs.CrashOptions{KeepUnsynced: 0.5, Rand: rand.New(rand.NewPCG(uint64(i), uint64(operations)))})
			tb := explained{t, fmt.Sprintf("operation %d (%v %s) #%d", operations, op, name, i)}
			l, err := importAll(importOptions(clone), all, nil, 0)
			must(tb, err)
			must(tb, l.Verify(t.Context(), nil))
			must(tb, l.Close(false))
		}
		return nil
	})
	must(t, take(at, short))
	must(t, take(at, all))
	if operations < 10 {
		t.Fatalf("only %d operations", operations)
	}
}
