package segment

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/billetlog/billet/internal/vfs"
)

// wide are options for one large segment.
func wide(fs vfs.FS) Options {
	o := logOptions(fs)
	o.SegmentBytes, o.MaxUnsyncedBytes = 1<<20, 1000
	return o
}

// TestTornOrDamaged breaks one frame of a segment and tells from what was durable,
// and from how far valid frames follow, what it is.
func TestTornOrDamaged(t *testing.T) {
	for _, c := range []struct {
		name     string
		broken   int // number of the entry, from 0
		mark     uint64
		lossy    bool
		unsynced int64
		cut      bool
	}{
		{"last, above the mark", 9, 9, false, 1000, true},
		{"last, at the mark", 9, 10, false, 1000, false},
		{"frames within one group follow", 8, 8, false, 1000, true},
		{"frames beyond one group follow", 5, 0, false, 1000, false},
		{"the same, larger groups", 5, 0, false, 5000, true},
		{"the same, interval", 5, 0, true, 1000, true},
		{"interval, below the mark", 5, 6, true, 1000, false},
		{"first entry", 0, 0, true, 1000, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := vfs.NewMem()
			o := wide(m)
			l := createLog(t, o)
			f := newFeeder(t)
			mustAppend(t, l, f.noop(1))
			for range 9 {
				mustAppend(t, l, f.data(1, 500))
			}
			at, err := l.Frame(uint64(c.broken + 1))
			must(t, err)
			must(t, l.Close(true))
			name := fileName(0, logSuffix)
			content := readFiles(t, m, o.Dir)
			b := bytes.Clone(content[name])
			b[at.Pos+20] ^= 1
			m = content.with(name, b).write(t, o.Dir)
			o.FS, o.LossyTail, o.MaxUnsyncedBytes = m, c.lossy, c.unsynced
			l, r, err := Open(o, OpenHints{DurableIndex: c.mark})
			if !c.cut {
				var damage *CorruptionError
				if !errors.As(err, &damage) || damage.Pos != at.Pos || damage.Offset != at.BaseOffset || !sameFiles(content.with(name, b), readFiles(t, m, o.Dir)) {
					t.Fatalf("error %v, want damage at %d", err, at.Pos)
				}
				return
			}
			must(t, err)
			defer l.Close(false)
			if l.LastIndex() != uint64(c.broken) || r.CutPos != at.Pos || r.CutBytes != int64(len(b))-at.Pos || r.CutFile == "" || r.CutReason == "" {
				t.Fatalf("last %d, %+v", l.LastIndex(), r)
			}
			if l.DurableIndex() != l.LastIndex() {
				t.Fatalf("durable %d", l.DurableIndex())
			}
			// The cut is durable, and so is what was kept.
			clone := m.CrashClone(vfs.CrashOptions{})
			if n := len(readFiles(t, clone, o.Dir)[name]); int64(n) != at.Pos {
				t.Fatalf("%d bytes after a power cut, want %d", n, at.Pos)
			}
		})
	}
}

// TestCutEverywhere cuts a log without any mark at every length: whole frames stay.
func TestCutEverywhere(t *testing.T) {
	m := vfs.NewMem()
	o := wide(m)
	l := createLog(t, o)
	f := newFeeder(t)
	mustAppend(t, l, f.noop(1), f.data(1, 50), f.void(), f.config("members"), f.data(2, 30))
	want := readTwin(t, l)
	var ends []int64
	for index := uint64(1); index <= l.LastIndex(); index++ {
		fr, err := l.Frame(index)
		must(t, err)
		ends = append(ends, fr.Pos+int64(fr.Size))
	}
	must(t, l.Close(true))
	name := fileName(0, logSuffix)
	content := readFiles(t, m, o.Dir)
	for n := segmentHeaderSize; n <= len(content[name]); n++ {
		for _, zeros := range []int{0, 1, 1000} {
			b := append(bytes.Clone(content[name][:n]), make([]byte, zeros)...)
			o.FS = content.with(name, b).write(t, o.Dir)
			l, _ := openLog(t, o, OpenHints{})
			got := readTwin(t, l)
			whole := uint64(0)
			for _, end := range ends {
				if bytes.HasPrefix(b, content[name][:end]) {
					whole++
				}
			}
			if !got.isPrefixOf(want) || got.last() != whole {
				t.Fatalf("cut to %d and %d zeros: last is %d, want %d", n, zeros, got.last(), whole)
			}
			must(t, l.Close(false))
		}
	}
}

// TestUnfinishedRoll leaves every part of the next segment's header.
func TestUnfinishedRoll(t *testing.T) {
	content, want := closedLog(t, true)
	o := logOptions(nil)
	next := fileName(want.end(), logSuffix)
	h := header{identity: o.Identity, generation: 1, firstIndex: want.last() + 1, base: want.end(), prevTerm: want.lastTerm(), created: 5}
	whole := h.encode()
	for n := range len(whole) + 1 {
		tb := explained{t, fmt.Sprintf("header cut to %d", n)}
		o.FS = content.with(next, whole[:n]).write(tb, o.Dir)
		l, r := openLog(tb, o, OpenHints{DurableIndex: want.last()})
		got := readTwin(tb, l)
		if !got.isPrefixOf(want) || got.last() != want.last() || (n < len(whole)) != strings.HasSuffix(r.UnfinishedRoll, next) {
			tb.Fatalf("last %d, %+v", got.last(), r)
		}
		f := &feeder{tb: tb, index: got.last() + 1, term: got.lastTerm(), offset: got.end()}
		mustAppend(tb, l, f.data(1, 10))
		must(tb, l.Roll())
		mustAppend(tb, l, f.data(1, 10))
		must(tb, l.Close(true))
		l, _ = openLog(tb, o, OpenHints{DurableIndex: want.last() + 2})
		must(tb, l.Close(false))
	}
	// A file of the wrong name means that something between is missing.
	o.FS = content.with(fileName(want.end()+7, logSuffix), nil).write(t, o.Dir)
	if _, _, err := Open(o, OpenHints{}); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("error %v", err)
	}
}

func TestOpenRefuses(t *testing.T) {
	content, _ := closedLog(t, true)
	open := func(change func(*Options)) error {
		o := logOptions(content.write(t, "/log"))
		change(&o)
		l, _, err := Open(o, OpenHints{})
		if err == nil {
			_ = l.Close(false)
		}
		return err
	}
	for name, c := range map[string]struct {
		change func(*Options)
		want   error
	}{
		"cluster":    {func(o *Options) { o.Identity.Cluster[0]++ }, ErrForeign},
		"topic":      {func(o *Options) { o.Identity.Topic[0]++ }, ErrForeign},
		"partition":  {func(o *Options) { o.Identity.Partition++ }, ErrForeign},
		"shard":      {func(o *Options) { o.Identity.Key.Shard++ }, ErrForeign},
		"replica":    {func(o *Options) { o.Identity.Key.Replica++ }, ErrForeign},
		"generation": {func(o *Options) { o.Generation-- }, ErrForeign},
		"active one": {func(o *Options) { o.Generation++ }, ErrForeign},
		"no folder":  {func(o *Options) { o.Dir = "/nowhere" }, fs.ErrNotExist},
		"no segment": {func(o *Options) { o.Dir = "/" }, ErrCorrupt},
		"nothing":    {func(*Options) {}, nil},
	} {
		if err := open(c.change); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, change := range map[string]func(*Options){
		"no fs":          func(o *Options) { o.FS = nil },
		"no dir":         func(o *Options) { o.Dir = "" },
		"small segments": func(o *Options) { o.SegmentBytes = 1 },
		"large segments": func(o *Options) { o.SegmentBytes = 1 << 40 },
		"age":            func(o *Options) { o.SegmentAge = -1 },
		"interval":       func(o *Options) { o.IndexIntervalBytes = -1 },
		"frame":          func(o *Options) { o.MaxFrameBytes = 1 },
		"unsynced":       func(o *Options) { o.MaxUnsyncedBytes = -1 },
	} {
		if err := open(change); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	for name, at := range map[string]Start{
		"index":  {},
		"offset": {FirstIndex: 1, Offset: -1},
		"term":   {FirstIndex: 1, PrevTerm: 1 << 31},
	} {
		if _, err := Create(logOptions(vfs.NewMem()), at); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestCheckpointSavesWork checks what is read again at open, and that a checkpoint
// above the caller's bound is ignored.
func TestCheckpointSavesWork(t *testing.T) {
	content, want := closedLog(t, true)
	for _, c := range []struct {
		limit, index uint64
		frames       int
	}{{0, 9, int(want.last()) - 9}, {9, 9, int(want.last()) - 9}, {8, 0, int(want.last())}} {
		o := logOptions(content.write(t, "/log"))
		o.SegmentBytes, o.IndexIntervalBytes = 800, 200
		l, r := openLog(t, o, OpenHints{MaxCheckpointIndex: c.limit})
		if r.CheckpointIndex != c.index || r.Frames != c.frames || r.IndexesRebuilt != 0 {
			t.Fatalf("limit %d: %+v", c.limit, r)
		}
		if cp, ok := l.Checkpoint(); ok != (c.index > 0) || ok && (cp.Index != 9 || string(cp.Payload) != "fold") {
			t.Fatalf("limit %d: %+v %v", c.limit, cp, ok)
		}
		must(t, l.Truncate(9)) // also takes along what was ignored
		must(t, l.Close(true))
		for name := range readFiles(t, o.FS, o.Dir) {
			if strings.HasSuffix(name, stateSuffix) {
				t.Fatalf("limit %d: %s is still there", c.limit, name)
			}
		}
		l, _ = openLog(t, o, OpenHints{})
		must(t, l.Close(false))
	}
}

// TestCheckpointsKept checks which files stay: the two newest and a durable one.
func TestCheckpointsKept(t *testing.T) {
	m := vfs.NewMem()
	o := wide(m)
	l := createLog(t, o)
	f := newFeeder(t)
	mustAppend(t, l, f.noop(1))
	save := func(durable bool) uint64 {
		mustAppend(t, l, f.data(1, 100))
		c := Checkpoint{Index: l.LastIndex(), Term: 1, Offset: l.EndOffset(), Payload: fmt.Appendf(nil, "at %d", l.EndOffset())}
		must(t, l.SaveCheckpoint(c, durable))
		if l.DurableIndex() != l.LastIndex() {
			t.Fatal("a checkpoint of entries that are not durable")
		}
		return c.Index
	}
	kept := func(want ...int64) {
		t.Helper()
		var got []int64
		for name := range readFiles(t, m, o.Dir) {
			if offset, ok := parseName(name, stateSuffix); ok {
				got = append(got, offset)
			}
		}
		if len(got) != len(want) {
			t.Fatalf("kept %v, want %v", got, want)
		}
	}
	save(true)
	kept(1)
	save(false)
	kept(1, 2)
	save(false)
	kept(1, 2, 3)
	save(false)
	kept(1, 3, 4)
	save(true)
	kept(4, 5)
	older, newer := save(false), save(false)
	kept(5, 6, 7)
	check := func() {
		t.Helper()
		c, ok := l.Checkpoint()
		d, ok2 := l.OlderCheckpoint()
		if !ok || !ok2 || c.Index != newer || d.Index != older || string(c.Payload) != "at 7" {
			t.Fatalf("%+v %v, %+v %v", c, ok, d, ok2)
		}
	}
	check()
	must(t, l.Close(true))
	l, _ = openLog(t, o, OpenHints{})
	check()
	must(t, l.Close(false))
	// After a power cut that loses the two, the durable one is there.
	o.FS = m.CrashClone(vfs.CrashOptions{})
	l, r := openLog(t, o, OpenHints{DurableIndex: newer})
	defer l.Close(false)
	if c, ok := l.Checkpoint(); !ok || string(c.Payload) != "at 5" || r.CheckpointIndex != c.Index {
		t.Fatalf("%+v %v %+v", c, ok, r)
	}
	for name, c := range map[string]Checkpoint{
		"above the end": {Index: l.LastIndex() + 1, Term: 1, Offset: l.EndOffset()},
		"wrong term":    {Index: 3, Term: 2, Offset: 2},
		"wrong offset":  {Index: 3, Term: 1, Offset: 3},
	} {
		if err := l.SaveCheckpoint(c, false); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if l.Failed() != nil {
		t.Fatal(l.Failed())
	}
}

// TestIndexDamagedWhileOpen breaks indexes under an open log: look-ups build them
// anew or do without.
func TestIndexDamagedWhileOpen(t *testing.T) {
	m := vfs.NewMem()
	o := logOptions(m)
	o.SegmentBytes, o.IndexIntervalBytes = 40_000, 1
	l := createLog(t, o)
	defer func() { _ = l.Close(false) }()
	f := newFeeder(t)
	mustAppend(t, l, f.noop(1))
	for range 800 {
		mustAppend(t, l, f.data(1, 10))
	}
	l.Forget(l.LastIndex())
	want := readTwin(t, l)
	for name, b := range readFiles(t, m, o.Dir) {
		if strings.HasSuffix(name, indexSuffix) {
			file, err := m.Open(o.Dir + "/" + name)
			must(t, err)
			_, err = file.WriteAt(bytes.Repeat([]byte{0xee}, len(b)), 0)
			must(t, errors.Join(err, file.Close()))
		}
	}
	for index := want.first; index <= want.last(); index += 13 {
		got, err := l.Entries(nil, index, index+1, 1000)
		if err != nil || !sameEntry(got[0], want.entries[index-want.first]) {
			t.Fatalf("entry %d: %v", index, err)
		}
	}
	must(t, l.Truncate(want.last()-5)) // in the active segment
	must(t, l.Truncate(100))           // in a sealed one
	want.truncate(100)
	if got := readTwin(t, l); !got.isPrefixOf(want) || got.last() != 99 {
		t.Fatalf("last %d", got.last())
	}
	f = &feeder{tb: t, index: 100, offset: want.end()}
	mustAppend(t, l, f.noop(2), f.data(1, 10))
	must(t, l.Close(true))
	l, _ = openLog(t, o, OpenHints{DurableIndex: 101})
	must(t, l.Verify(t.Context(), nil))
}

// TestCheckpointSurvives cuts the power after saves that are not durable: one that
// was must be left, or be made when there is none.
func TestCheckpointSurvives(t *testing.T) {
	for _, sameName := range []bool{true, false} {
		for seed := range uint64(20) {
			m := vfs.NewMem()
			o := wide(m)
			l := createLog(t, o)
			f := newFeeder(t)
			mustAppend(t, l, f.noop(1), f.data(1, 10))
			for i := range 3 {
				if sameName {
					mustAppend(t, l, f.void())
				} else {
					mustAppend(t, l, f.data(1, 10))
				}
				c := Checkpoint{Index: l.LastIndex(), Term: 1, Offset: l.EndOffset()}
				must(t, l.SaveCheckpoint(c, sameName && i == 0))
			}
			o.FS = m.CrashClone(vfs.CrashOptions{KeepUnsynced: float64(seed%5) / 4, Rand: rand.New(rand.NewPCG(seed, 1))})
			must(t, l.Close(false))
			l, _ = openLog(t, o, OpenHints{DurableIndex: f.index - 1})
			if _, ok := l.Checkpoint(); !ok {
				t.Fatalf("same name %v, seed %d: no checkpoint is left", sameName, seed)
			}
			must(t, l.Close(false))
		}
	}
}

// TestBrokenChain gives segments that are sound by themselves and do not fit.
func TestBrokenChain(t *testing.T) {
	content, want := closedLog(t, true)
	first, second := fileName(0, logSuffix), ""
	for _, name := range sortedNames(content) {
		if strings.HasSuffix(name, logSuffix) && name > first && second == "" {
			second = name
		}
	}
	for name, change := range map[string]func(*header){
		"index": func(h *header) { h.firstIndex++ },
		"term":  func(h *header) { h.prevTerm++ },
	} {
		h, err := decodeHeader(content[second])
		must(t, err)
		change(&h)
		b := append(h.encode(), content[second][segmentHeaderSize:]...)
		o := logOptions(content.with(second, b).write(t, "/log"))
		var damage *CorruptionError
		if _, _, err := Open(o, OpenHints{DurableIndex: want.last()}); !errors.As(err, &damage) || !strings.HasSuffix(damage.File, second) {
			t.Errorf("%s: %v", name, err)
		}
	}
	o := logOptions(content.with(first, append(bytes.Clone(content[first]), 0)).write(t, "/log"))
	var damage *CorruptionError
	if _, _, err := Open(o, OpenHints{}); !errors.As(err, &damage) || damage.Pos != int64(len(content[first])) {
		t.Errorf("longer: %v", err)
	}
}

// TestIndexDensity counts the entries of an index, of a log written in one go and
// of one opened in between.
func TestIndexDensity(t *testing.T) {
	m := vfs.NewMem()
	o := wide(m)
	o.IndexIntervalBytes = 1000
	l := createLog(t, o)
	f := newFeeder(t)
	mustAppend(t, l, f.noop(1))
	for i := range 100 {
		mustAppend(t, l, f.data(1, 100)) // about 190 bytes
		if i == 50 {
			must(t, l.Close(true))
			l, _ = openLog(t, o, OpenHints{})
		}
	}
	mustAppend(t, l, f.void())
	defer func() { _ = l.Close(false) }()
	size := l.Size()
	if n := l.active().index.entries(); n < int(size)/1300 || n > int(size)/1000+3 {
		t.Fatalf("%d entries for %d bytes", n, size)
	}
	entries := l.active().index.entries()
	must(t, l.Close(true))
	if n := len(readFiles(t, m, o.Dir)[fileName(0, indexSuffix)]); int64(n) != entryPos(entries) {
		t.Fatalf("index of %d bytes with %d entries", n, entries)
	}
}
