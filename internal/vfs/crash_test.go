package vfs

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// fill returns n bytes of c.
func fill(c byte, n int) []byte { return bytes.Repeat([]byte{c}, n) }

func writeAt(t failer, f File, data []byte, off int64) {
	t.Helper()
	_, err := f.WriteAt(data, off)
	must(t, err)
}

// lose is a crash that keeps nothing it may lose, keep one that keeps all.
func lose(m *Mem) *Mem { return m.CrashClone(CrashOptions{}) }
func keep(m *Mem) *Mem { return m.CrashClone(CrashOptions{KeepUnsynced: 1}) }

// outcomes are the trees that crashes of m with many seeds leave.
func outcomes(t failer, m *Mem) map[string]int {
	found := map[string]int{}
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 7))
		found[tree(t, m.CrashClone(CrashOptions{KeepUnsynced: 0.5, Rand: r}), "/", "")]++
	}
	return found
}

// wantOutcomes demands that crashes leave exactly these trees.
func wantOutcomes(t *testing.T, m *Mem, want ...string) {
	t.Helper()
	found := outcomes(t, m)
	for _, w := range want {
		if found[w] == 0 {
			t.Errorf("never found %q", w)
		}
	}
	for got, n := range found {
		if !slices.Contains(want, got) {
			t.Errorf("found %q %d times", got, n)
		}
	}
}

func TestCrashTearsWrites(t *testing.T) {
	m := NewMem()
	f := create(t, m, "f", strings.Repeat("a", 4*sectorSize))
	m.SyncAll()
	writeAt(t, f, fill('b', 3*sectorSize), sectorSize/2)
	if got := content(t, lose(m), "f"); got != strings.Repeat("a", 4*sectorSize) {
		t.Error("something was kept")
	}
	if got := content(t, keep(m), "f"); got != content(t, m, "f") {
		t.Error("something was lost")
	}
	if n := len(outcomes(t, m)); n != 16 { // four sectors, each old or new
		t.Errorf("%d states of 16", n)
	}
	must(t, f.SyncData())
	if got := content(t, lose(m), "f"); got != content(t, m, "f") {
		t.Error("synced data was lost")
	}
}

func TestCrashLosesExtension(t *testing.T) {
	m := NewMem()
	f := create(t, m, "f", "start")
	m.SyncAll()
	writeAt(t, f, fill('x', 2*sectorSize), 5)
	full := content(t, m, "f")
	if got := content(t, lose(m), "f"); got != "start" {
		t.Errorf("%d bytes were kept", len(got))
	}
	sizes := map[int]bool{}
	zeros, holes := false, false
	for state := range outcomes(t, m) {
		got := strings.TrimPrefix(state, "f=")
		sizes[len(got)] = true
		if got[:5] != "start" {
			t.Fatalf("synced bytes changed: %q", got[:5])
		}
		for i := range got {
			if got[i] != full[i] && got[i] != 0 {
				t.Fatalf("byte %d is %q", i, got[i])
			}
		}
		zeros = zeros || strings.HasSuffix(got, "\x00")
		holes = holes || strings.Contains(got, "\x00x")
	}
	if !zeros || !holes || !sizes[5] || !sizes[sectorSize] || !sizes[len(full)] {
		t.Errorf("zeros %v, holes %v, sizes %v", zeros, holes, sizes)
	}
}

func TestCrashUndoesTruncation(t *testing.T) {
	m := NewMem()
	f := create(t, m, "f", "0123456789")
	m.SyncAll()
	must(t, f.Truncate(4))
	wantOutcomes(t, m, "f=0123456789", "f=0123")
	must(t, f.Truncate(6))
	if got := content(t, keep(m), "f"); got != "0123\x00\x00" {
		t.Errorf("kept: %q", got)
	}
	for state := range outcomes(t, m) {
		if strings.Contains(state, "012345") && state != "f=0123456789" {
			t.Errorf("cut bytes came back in a file of another size: %q", state)
		}
	}
	must(t, f.SyncData())
	wantOutcomes(t, m, "f=0123\x00\x00")
}

func TestCrashAfterTruncateAndRewrite(t *testing.T) {
	m := NewMem()
	f := create(t, m, "f", strings.Repeat("a", 2*sectorSize))
	m.SyncAll()
	must(t, f.Truncate(0))
	writeAt(t, f, fill('b', sectorSize), 0)
	a, b, zero := strings.Repeat("a", 2*sectorSize), strings.Repeat("b", sectorSize), strings.Repeat("\x00", sectorSize)
	for state := range outcomes(t, m) {
		got := strings.TrimPrefix(state, "f=")
		if got != "" && got != a && got != b && got != zero {
			t.Errorf("old and new blocks mixed: %.20q, %d bytes", got, len(got))
		}
	}
}

func TestCrashLosesNames(t *testing.T) {
	// Each case starts from the stable tree f=one g=two d/ d/x=x e/.
	cases := []struct {
		name string
		do   func(m *Mem) error
		want []string
	}{
		{"create", func(m *Mem) error { return closed(m.Create("n")) },
			[]string{"d/ d/x=x e/ f=one g=two", "d/ d/x=x e/ f=one g=two n="}},
		{"synced file without a synced name", func(m *Mem) error { return writeFile(m, "n", []byte("new")) },
			[]string{"d/ d/x=x e/ f=one g=two", "d/ d/x=x e/ f=one g=two n=new"}},
		{"synced name", func(m *Mem) error { return each(writeFile(m, "n", []byte("new")), m.SyncDir("/")) },
			[]string{"d/ d/x=x e/ f=one g=two n=new"}},
		{"sync of another directory", func(m *Mem) error { return each(writeFile(m, "e/n", nil), m.SyncDir("/")) },
			[]string{"d/ d/x=x e/ f=one g=two", "d/ d/x=x e/ e/n= f=one g=two"}},
		{"remove", func(m *Mem) error { return m.Remove("f") },
			[]string{"d/ d/x=x e/ g=two", "d/ d/x=x e/ f=one g=two"}},
		{"remove and make again", func(m *Mem) error { return each(m.Remove("f"), writeFile(m, "f", []byte("new"))) },
			[]string{"d/ d/x=x e/ f=one g=two", "d/ d/x=x e/ g=two", "d/ d/x=x e/ f=new g=two"}},
		{"rename", func(m *Mem) error { return m.Rename("f", "n") },
			[]string{"d/ d/x=x e/ f=one g=two", "d/ d/x=x e/ g=two n=one"}},
		{"rename over", func(m *Mem) error { return m.Rename("f", "g") },
			[]string{"d/ d/x=x e/ f=one g=two", "d/ d/x=x e/ g=one"}},
		{"rename of an unsynced name", func(m *Mem) error { return each(writeFile(m, "n", []byte("new")), m.Rename("n", "f")) },
			[]string{"d/ d/x=x e/ f=one g=two", "d/ d/x=x e/ f=one g=two n=new", "d/ d/x=x e/ f=new g=two"}},
		{"rename twice", func(m *Mem) error { return each(m.Rename("f", "n"), m.Rename("n", "o")) },
			[]string{"d/ d/x=x e/ f=one g=two", "d/ d/x=x e/ g=two n=one", "d/ d/x=x e/ g=two o=one"}},
		{"move", func(m *Mem) error { return m.Rename("f", "e/n") },
			[]string{"d/ d/x=x e/ f=one g=two", "d/ d/x=x e/ e/n=one g=two"}},
		{"move, new directory synced", func(m *Mem) error { return each(m.Rename("f", "e/n"), m.SyncDir("e")) },
			[]string{"d/ d/x=x e/ e/n=one f=one g=two", "d/ d/x=x e/ e/n=one g=two"}},
		{"move, old directory synced", func(m *Mem) error { return each(m.Rename("f", "e/n"), m.SyncDir("/")) },
			[]string{"d/ d/x=x e/ e/n=one g=two"}},
		{"move, both synced", func(m *Mem) error { return each(m.Rename("f", "e/n"), m.SyncDir("e"), m.SyncDir("/")) },
			[]string{"d/ d/x=x e/ e/n=one g=two"}},
		{"link", func(m *Mem) error { return m.Link("f", "n") },
			[]string{"d/ d/x=x e/ f=one g=two", "d/ d/x=x e/ f=one g=two n=one"}},
		{"mkdir", func(m *Mem) error { return each(m.MkdirAll("n"), writeFile(m, "n/y", []byte("y")), m.SyncDir("n")) },
			[]string{"d/ d/x=x e/ f=one g=two", "d/ d/x=x e/ f=one g=two n/ n/y=y"}},
		{"remove all", func(m *Mem) error { return m.RemoveAll("d") },
			[]string{"d/ d/x=x e/ f=one g=two", "d/ e/ f=one g=two", "e/ f=one g=two"}},
		{"remove all, synced", func(m *Mem) error { return each(m.RemoveAll("d"), m.SyncDir("/")) },
			[]string{"e/ f=one g=two"}},
		{"move out and remove", func(m *Mem) error { return each(m.Rename("d/x", "e/x"), m.Remove("d")) },
			[]string{"d/ d/x=x e/ f=one g=two", "d/ e/ e/x=x f=one g=two", "e/ e/x=x f=one g=two"}},
		{"move out and remove, synced", func(m *Mem) error {
			return each(m.Rename("d/x", "e/x"), m.Remove("d"), m.SyncDir("/"))
		}, []string{"e/ e/x=x f=one g=two"}},
		{"rename dir", func(m *Mem) error { return m.Rename("d", "e/d") },
			[]string{"d/ d/x=x e/ f=one g=two", "e/ e/d/ e/d/x=x f=one g=two"}},
		{"order of different names", func(m *Mem) error { return each(m.Remove("f"), m.Remove("g")) },
			[]string{"d/ d/x=x e/ f=one g=two", "d/ d/x=x e/ f=one", "d/ d/x=x e/ g=two", "d/ d/x=x e/"}},
		{"atomic write", func(m *Mem) error { return WriteFileAtomic(m, "f", []byte("new")) },
			[]string{"d/ d/x=x e/ f=new g=two"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			m := NewMem()
			must(t, m.MkdirAll("d"))
			must(t, m.MkdirAll("e"))
			must(t, create(t, m, "f", "one").Close())
			must(t, create(t, m, "g", "two").Close())
			must(t, create(t, m, "d/x", "x").Close())
			m.SyncAll()
			must(t, c.do(m))
			wantOutcomes(t, m, c.want...)
		})
	}
}

// each returns the first error.
func each(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func TestCrashCloneIsIndependent(t *testing.T) {
	m := NewMem()
	f := create(t, m, "f", "one")
	m.SyncAll()
	clone := lose(m)
	writeAt(t, f, []byte("two"), 0)
	must(t, f.SyncData())
	must(t, m.Remove("f"))
	if got := content(t, clone, "f"); got != "one" {
		t.Errorf("the clone reads %q", got)
	}
	must(t, clone.Remove("f"))
	must(t, create(t, clone, "f", "three").Close())
	buf := make([]byte, 3)
	_, err := f.ReadAt(buf, 0)
	must(t, err)
	if string(buf) != "two" {
		t.Errorf("the original reads %q", buf)
	}
}

func TestCrashKeepsHardLinks(t *testing.T) {
	m := NewMem()
	must(t, create(t, m, "f", "one").Close())
	must(t, m.Link("f", "g"))
	m.SyncAll()
	clone := lose(m)
	f, err := clone.Open("f")
	must(t, err)
	writeAt(t, f, []byte("two"), 0)
	must(t, f.Close())
	if got := content(t, clone, "g"); got != "two" {
		t.Errorf("the link reads %q", got)
	}
}

// byteHistory is the dumb twin of a file's crash states: for each offset the
// values it had since the last sync, and the sizes.
type byteHistory struct {
	values []map[byte]bool
	sizes  []int
}

func (h *byteHistory) note(data []byte) {
	for len(h.values) < len(data) {
		h.values = append(h.values, map[byte]bool{0: true})
	}
	for i, b := range data {
		h.values[i][b] = true
	}
	h.sizes = append(h.sizes, len(data))
}

// check demands that data is made of what was there.
func (h *byteHistory) check(t *rapid.T, data []byte) {
	if len(data) < slices.Min(h.sizes) || len(data) > slices.Max(h.sizes) {
		t.Fatalf("%d bytes, sizes were %v", len(data), h.sizes)
	}
	for i, b := range data {
		if !h.values[i][b] {
			t.Fatalf("byte %d is %d, never seen there", i, b)
		}
	}
}

func TestCrashContentIsFromHistory(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := NewMem()
		f, err := m.Create("f")
		must(rt, err)
		must(rt, m.SyncDir("/"))
		history := &byteHistory{}
		history.note(nil)
		for i := range rapid.IntRange(1, 20).Draw(rt, "steps") {
			off := rapid.IntRange(0, 3000).Draw(rt, "off")
			switch rapid.SampledFrom([]Op{OpWrite, OpWrite, OpTruncate, OpSync}).Draw(rt, "op") {
			case OpWrite:
				writeAt(rt, f, fill(byte(i+1), rapid.IntRange(1, 1500).Draw(rt, "n")), int64(off))
			case OpTruncate:
				must(rt, f.Truncate(int64(off)))
			case OpSync:
				must(rt, f.SyncData())
				history = &byteHistory{}
			}
			history.note([]byte(content(rt, m, "f")))
			r := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 0))
			p := rapid.SampledFrom([]float64{0, 0.2, 0.8, 1}).Draw(rt, "keep")
			clone := m.CrashClone(CrashOptions{KeepUnsynced: p, Rand: r})
			history.check(rt, []byte(content(rt, clone, "f")))
		}
	})
}

// TestWriteFileAtomicSurvives cuts the power at every operation of a
// replacement, with many seeds.
func TestWriteFileAtomicSurvives(t *testing.T) {
	before, after := strings.Repeat("old", 700), strings.Repeat("new!", 900)
	for n := 1; ; n++ {
		m := NewMem()
		must(t, WriteFileAtomic(m, "f", []byte(before)))
		m.SyncAll()
		trigger := FailFrom(n, nil, nil)
		err := WriteFileAtomic(Inject(m, trigger.Fault), "f", []byte(after))
		if (err != nil) != trigger.Fired() {
			t.Fatalf("operation %d: fired %v, error %v", n, trigger.Fired(), err)
		}
		for seed := range uint64(50) {
			r := rand.New(rand.NewPCG(seed, uint64(n)))
			clone := m.CrashClone(CrashOptions{KeepUnsynced: 0.5, Rand: r})
			got := content(t, clone, "f")
			if got != after && (err == nil || got != before) {
				t.Fatalf("operation %d, seed %d, error %v: %s", n, seed, err, fmt.Sprintf("%.40q", got))
			}
			must(t, WriteFileAtomic(clone, "f", nil)) // a stale temporary is no obstacle
		}
		if !trigger.Fired() {
			break
		}
	}
}
