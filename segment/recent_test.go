package segment

import (
	"fmt"
	"os"
	"runtime"
	"testing"

	"pgregory.net/rapid"

	"github.com/billetlog/billet/internal/vfs"
)

// TestRecentTwin compares the memory of recent frames with a map.
func TestRecentTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r recent
		twin := map[uint64]int64{}
		next := uint64(1)
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				for index := range next + 3 {
					f, ok := r.get(index)
					if base, want := twin[index]; ok != want || ok && f.base != base {
						t.Fatalf("frame %d: %v, want %v", index, ok, want)
					}
				}
			},
			"add": func(t *rapid.T) {
				var frames []recentFrame
				first := next
				for range rapid.IntRange(0, 9).Draw(t, "n") {
					frames = append(frames, recentFrame{base: int64(next * 3)})
					twin[next] = int64(next * 3)
					next++
				}
				r.add(first, frames)
			},
			"forget": func(t *rapid.T) {
				upTo := rapid.Uint64Range(0, next+2).Draw(t, "upTo")
				r.forget(upTo)
				for index := range twin {
					if index <= upTo {
						delete(twin, index)
					}
				}
			},
			"truncate": func(t *rapid.T) {
				from := rapid.Uint64Range(1, next).Draw(t, "from")
				r.truncate(from)
				for index := range twin {
					if index >= from {
						delete(twin, index)
					}
				}
				next = from
			},
		})
	})
}

// TestRecentIsBounded checks that a reader that never forgets costs no more than
// the bound.
func TestRecentIsBounded(t *testing.T) {
	var r recent
	one := make([]recentFrame, 1)
	for i := range uint64(3 * maxRecent) {
		one[0].base = int64(i)
		r.add(i, one)
	}
	if r.len() != maxRecent || cap(r.frames) > 4*maxRecent {
		t.Fatalf("%d frames, room for %d", r.len(), cap(r.frames))
	}
	if f, ok := r.get(3*maxRecent - 1); !ok || f.base != 3*maxRecent-1 {
		t.Fatal("the last frame is not there")
	}
	if _, ok := r.get(2*maxRecent - 1); ok {
		t.Fatal("an old frame is still there")
	}
	many := make([]recentFrame, maxRecent+5)
	many[maxRecent+4].base = 7
	r.add(3*maxRecent, many)
	if f, ok := r.get(4*maxRecent + 4); !ok || f.base != 7 || r.len() != maxRecent {
		t.Fatal("a large group")
	}
}

// openFiles counts the descriptors of the process.
func openFiles(t *testing.T) int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("no /proc")
	}
	return len(entries)
}

// TestFilesAreClosed counts descriptors while a log is used and after.
func TestFilesAreClosed(t *testing.T) {
	before := openFiles(t)
	o := logOptions(vfs.OS)
	o.Dir = t.TempDir()
	l := createLog(t, o)
	f := newFeeder(t)
	want := fill(t, l, f, 60)
	checkEntries(t, l, want)
	must(t, l.Truncate(f.index-20))
	must(t, l.Roll())
	_, err := l.DeleteBelow(l.EndOffset()/2, l.LastIndex())
	must(t, err)
	last := l.LastIndex()
	must(t, l.SaveCheckpoint(Checkpoint{Index: last, Term: l.LastTerm(), Offset: l.EndOffset()}, true))
	if n := openFiles(t) - before; n > 4 { // active log and index, one kept warm
		t.Errorf("%d files open for one log", n)
	}
	must(t, l.Close(true))
	if n := openFiles(t); n != before {
		t.Errorf("%d files open after Close, %d before", n, before)
	}
	l, _ = openLog(t, o, OpenHints{DurableIndex: last})
	must(t, l.Close(false))
	if n := openFiles(t); n != before {
		t.Errorf("%d files open after another Close, %d before", n, before)
	}
}

// TestIdleMemory measures what a log holds when nothing happens.
func TestIdleMemory(t *testing.T) {
	const logs = 200
	fs, heap := vfs.OS, func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	dir := t.TempDir()
	all := make([]*Log, logs)
	before := heap()
	for i := range all {
		o := Options{FS: fs, Dir: dir + "/" + fileName(int64(i), ""), Identity: testIdentity, Generation: 1}
		all[i] = createLog(t, o)
		f := newFeeder(t)
		mustAppend(t, all[i], f.noop(1))
		for range 40 {
			mustAppend(t, all[i], f.data(1, 3000))
		}
		all[i].Forget(f.index)
	}
	used := (heap() - before) / logs
	for _, l := range all {
		must(t, l.Close(false))
	}
	t.Logf("%d bytes for an idle log", used)
	if used > 8<<10 {
		t.Errorf("%d bytes for an idle log", used)
	}
}

// TestFailuresCloseFiles lets each operation fail and counts descriptors.
func TestFailuresCloseFiles(t *testing.T) {
	root, err := os.MkdirTemp("/dev/shm", "billet")
	if err != nil {
		root = t.TempDir()
	}
	defer os.RemoveAll(root)
	before := openFiles(t)
	for n := 1; ; n++ {
		trigger := vfs.FailNth(n, func(op vfs.Op, _ string) bool { return op != vfs.OpClose }, nil)
		o := playOptions(vfs.Inject(vfs.OS, trigger.Fault))
		o.Dir = fmt.Sprintf("%s/%d", root, n)
		_ = play(t, o, func(*twin, *twin) {})
		if after := openFiles(t); after != before {
			t.Fatalf("operation %d failed: %d files open, %d before", n, after, before)
		}
		if !trigger.Fired() {
			break
		}
	}
}
