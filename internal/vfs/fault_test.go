package vfs

import (
	"errors"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestTriggers(t *testing.T) {
	onSync := OfKind(OpSync)
	run := func(trigger *Trigger) string {
		m := NewMem()
		f := create(t, Inject(m, trigger.Fault), "f", "data")
		var got []string
		for range 4 {
			if err := f.SyncData(); err == nil {
				got = append(got, "ok")
			} else if errors.Is(err, ErrInjected) && errors.Is(err, syscall.EIO) {
				got = append(got, "fail")
			} else {
				got = append(got, err.Error())
			}
		}
		must(t, f.Close())
		return strings.Join(got, " ")
	}
	for _, c := range []struct {
		trigger *Trigger
		want    string
		fired   bool
	}{
		{FailNth(1, onSync, syscall.EIO), "fail ok ok ok", true},
		{FailNth(3, onSync, syscall.EIO), "ok ok fail ok", true},
		{FailNth(5, onSync, syscall.EIO), "ok ok ok ok", false},
		{FailFrom(3, onSync, syscall.EIO), "ok ok fail fail", true},
		{FailFrom(5, onSync, syscall.EIO), "ok ok ok ok", false},
	} {
		if got := run(c.trigger); got != c.want || c.trigger.Fired() != c.fired || c.trigger.Seen() != 4 {
			t.Errorf("%s (fired %v, seen %d), want %s", got, c.trigger.Fired(), c.trigger.Seen(), c.want)
		}
	}
}

// TestEveryOperationAsks does each operation once through Inject, with a fault
// that fails everything, and one that notes.
func TestEveryOperationAsks(t *testing.T) {
	m := NewMem()
	must(t, m.MkdirAll("d"))
	asked := map[Op]string{}
	noting := Inject(m, func(op Op, name string, _ int64, _ int) error {
		if _, again := asked[op]; !again {
			asked[op] = name
		}
		return nil
	})
	var failing []error
	boom := FailFrom(1, nil, nil)
	for _, s := range []FS{noting, Inject(m, boom.Fault)} {
		failing = operateOnce(t, s, m)
	}
	for op := range Op(opCount) {
		name, ok := asked[op]
		if !ok || strings.HasPrefix(op.String(), "op(") {
			t.Errorf("%v (%d) was never asked about", op, op)
		}
		if op == OpRename || op == OpLink {
			if name != "d/new" {
				t.Errorf("%v asked about %s", op, name)
			}
		}
	}
	if boom.Seen() < opCount {
		t.Errorf("only %d of %d", boom.Seen(), opCount)
	}
	for _, err := range failing {
		if !errors.Is(err, ErrInjected) {
			t.Errorf("not injected: %v", err)
		}
	}
}

// operateOnce does everything on s, above m, and returns the results.
func operateOnce(t *testing.T, s FS, m *Mem) []error {
	var errs []error
	result := func(err error) { errs = append(errs, err) }
	f, err := s.Create("d/f")
	result(err)
	if err != nil { // go on with a file that is there
		file, err := m.Open("d/f")
		must(t, err)
		f = &injectFile{file: file, name: "d/f", fault: s.(*injectFS).fault}
	}
	_, err = s.Open("d/f")
	result(err)
	_, err = s.OpenReadOnly("d/f")
	result(err)
	_, err = f.WriteAt([]byte("data"), 0)
	result(err)
	_, err = f.WritevAt([][]byte{[]byte("data")}, 0)
	result(err)
	_, err = f.ReadAt(make([]byte, 2), 0)
	result(err)
	result(f.SyncData())
	result(f.Truncate(1))
	result(f.Preallocate(0, 1))
	_, err = f.Size()
	result(err)
	result(f.Close())
	if outcome(f.(*injectFile).file.Close()) != "closed" {
		t.Error("a failed close left the file open")
	}
	result(s.MkdirAll("d/e"))
	_, err = s.List("d")
	result(err)
	_, err = s.Stat("d")
	result(err)
	result(s.SyncDir("d"))
	_, err = s.Free("d")
	result(err)
	result(s.Link("d/f", "d/new"))
	result(s.Remove("d/new"))
	result(s.Rename("d/f", "d/new"))
	result(s.Rename("d/new", "d/f"))
	result(s.RemoveAll("d/e"))
	lock, err := s.Lock("d/lock", "me")
	result(err)
	if err == nil {
		result(lock.Close())
	}
	return errs
}

func TestTornWrite(t *testing.T) {
	for _, base := range []FS{NewMem(), OS} {
		dir := t.TempDir()
		must(t, base.MkdirAll(dir))
		onF := func(_ Op, name string) bool { return strings.HasSuffix(name, "f") }
		first, second := TornWrite(2, 5, onF, syscall.EIO), TornWrite(3, 3, nil, nil)
		s := Inject(Inject(base, first.Fault), second.Fault)
		f := create(t, s, filepath.Join(dir, "f"), "0000000000")
		n, err := f.WritevAt([][]byte{[]byte("abc"), []byte("defg")}, 0)
		if n != 5 || !errors.Is(err, syscall.EIO) || !errors.Is(err, ErrInjected) {
			t.Errorf("first: %d, %v", n, err)
		}
		n, err = f.WriteAt([]byte("XYZUVW"), 7)
		if n != 3 || !errors.Is(err, ErrInjected) {
			t.Errorf("second: %d, %v", n, err)
		}
		if !first.Fired() || !second.Fired() {
			t.Error("did not fire")
		}
		if got := content(t, base, filepath.Join(dir, "f")); got != "abcde00XYZ" {
			t.Errorf("left %q", got)
		}
		must(t, f.Close())
	}
}

func TestFailedSyncLosesData(t *testing.T) {
	m := NewMem()
	trigger := FailNth(1, OfKind(OpSync), syscall.EIO)
	s := Count(Inject(m, trigger.Fault))
	f := create(t, s, "f", strings.Repeat("a", 2*sectorSize))
	must(t, s.SyncDir("/"))
	if err := f.SyncData(); !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	writeAt(t, f, fill('b', sectorSize), 2*sectorSize)
	must(t, f.SyncData()) // says all is well
	present := strings.Repeat("a", 2*sectorSize) + strings.Repeat("b", sectorSize)
	if got := content(t, s, "f"); got != present {
		t.Error("readers must not notice")
	}
	want := strings.Repeat("\x00", 2*sectorSize) + strings.Repeat("b", sectorSize)
	for _, crash := range []func(*Mem) *Mem{lose, keep} {
		if got := content(t, crash(m), "f"); got != want {
			t.Errorf("after the crash %q...", got[:4])
		}
	}
	writeAt(t, f, fill('a', 2*sectorSize), 0) // what a careful caller does
	must(t, f.SyncData())
	if got := content(t, lose(m), "f"); got != present {
		t.Error("written again, and still lost")
	}
	if s.Ops(OpSync) != 3 || s.Syncs() != 4 || s.BytesWritten() != 5*sectorSize {
		t.Errorf("%d syncs, %d with directories, %d bytes", s.Ops(OpSync), s.Syncs(), s.BytesWritten())
	}
	s.Reset()
	if s.Syncs() != 0 || s.BytesWritten() != 0 || s.BytesRead() != 0 {
		t.Error("reset left something")
	}
}

func TestCapacity(t *testing.T) {
	m := NewMem()
	m.SetCapacity(10 * sectorSize)
	f, err := m.Create("f")
	must(t, err)
	n, err := f.WriteAt(fill('a', 20*sectorSize), 100)
	if n != 10*sectorSize-100 || !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("wrote %d, %v", n, err)
	}
	if size, _ := f.Size(); size != 10*sectorSize {
		t.Errorf("size %d", size)
	}
	writeAt(t, f, fill('b', 10*sectorSize), 0) // in place needs no room
	if space, _ := m.Free("/"); space != (Space{Free: 0, Total: 10 * sectorSize}) {
		t.Errorf("%+v", space)
	}
	_, err = m.Create("g")
	for what, err := range map[string]error{
		"create": err, "mkdir": m.MkdirAll("d"),
		"preallocate": f.Preallocate(10*sectorSize, 1),
		"lock":        closedLock(m),
	} {
		if !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("%s: %v", what, err)
		}
	}
	must(t, f.Truncate(4*sectorSize))
	must(t, f.Preallocate(0, 9*sectorSize))
	if space, _ := m.Free("/"); space.Free != sectorSize {
		t.Errorf("after preallocation %+v", space)
	}
	must(t, m.Remove("f"))
	if space, _ := m.Free("/"); space.Free != sectorSize {
		t.Errorf("an open file without a name gave its room away: %+v", space)
	}
	must(t, f.Close())
	if space, _ := m.Free("/"); space.Free != 10*sectorSize {
		t.Errorf("closed: %+v", space)
	}
	if space, _ := lose(m).Free("/"); space.Total != 10*sectorSize {
		t.Errorf("the clone has %+v", space)
	}
}
