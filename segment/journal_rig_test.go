package segment

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/billetlog/billet/internal/vfs"
)

const rigJournal = "/node/journal"

// rigResolver finds replicas by their folders: /node/<shard>-<replica>/<generation>.
type rigResolver struct{ fs vfs.FS }

func rigDir(k Key) string { return fmt.Sprintf("/node/%d-%d", k.Shard, k.Replica) }

func rigGenerationDir(k Key, generation uint64) string {
	return filepath.Join(rigDir(k), fmt.Sprintf("%06d", generation))
}

func (r rigResolver) Resolve(k Key, generation uint64, slot bool) (string, bool) {
	dir := rigDir(k)
	if !slot {
		dir = rigGenerationDir(k, generation)
	}
	info, err := r.fs.Stat(dir)
	return dir, err == nil && info.IsDir
}

// rigReplica is a replica as the journal sees it: one segment file and a slot file.
type rigReplica struct {
	fs     vfs.FS
	key    Key
	file   vfs.File
	name   string
	pos    int64
	slots  *SlotFile
	slot   Slot
	failed atomic.Pointer[error] // what SyncJournaled returns
	syncMu sync.Mutex            // one sync at a time, as in a log, so that none can miss another's error
	syncs  atomic.Int64
	block  chan struct{} // SyncJournaled waits for it, when not nil
}

// newRigReplica makes a replica, durably.
func newRigReplica(fsys vfs.FS, k Key) (*rigReplica, error) {
	dir := rigGenerationDir(k, 1)
	if err := fsys.MkdirAll(dir); err != nil {
		return nil, err
	}
	r := &rigReplica{fs: fsys, key: k, name: formatJournalFile(0)}
	var err error
	if r.file, err = fsys.Create(filepath.Join(dir, r.name)); err != nil {
		return nil, err
	}
	for _, d := range []string{dir, filepath.Dir(dir), filepath.Dir(filepath.Dir(dir)), "/"} {
		if err := fsys.SyncDir(d); err != nil {
			return nil, err
		}
	}
	r.slot = Slot{Generation: 1, Identity: Identity{Key: k}}
	r.slots, err = CreateSlotFile(fsys, rigDir(k), r.slot)
	return r, err
}

// write puts data behind what is there, and returns what the journal needs.
func (r *rigReplica) write(data ...[]byte) (Write, error) {
	w := Write{Key: r.key, Generation: 1, File: r.name, Pos: r.pos, Data: data}
	for _, d := range data {
		w.Size += len(d)
	}
	if _, err := r.file.WritevAt(data, r.pos); err != nil {
		return w, err
	}
	r.pos += int64(w.Size)
	return w, nil
}

func (r *rigReplica) SyncJournaled() error {
	r.syncs.Add(1)
	if r.block != nil {
		<-r.block
	}
	if err := r.failed.Load(); err != nil {
		return *err
	}
	return r.syncFile()
}

func (r *rigReplica) syncDirect() error {
	return errors.Join(r.syncFile(), r.slots.Sync())
}

// syncFile syncs the segment. A failed sync is never tried again, as in a log.
func (r *rigReplica) syncFile() error {
	r.syncMu.Lock()
	defer r.syncMu.Unlock()
	if err := r.failed.Load(); err != nil {
		return *err
	}
	err := r.file.SyncData()
	if err != nil {
		r.failed.Store(&err)
	}
	return err
}

func (r *rigReplica) close() {
	_ = r.file.Close()
	_ = r.slots.Close()
}

// rig is a journal with replicas on one file system.
type rig struct {
	t        testing.TB
	mem      *vfs.Mem
	fs       vfs.FS
	journal  *Journal
	replicas []*rigReplica
	close    sync.Once
}

func rigOptions(fsys vfs.FS, half int64) JournalOptions {
	return JournalOptions{FS: fsys, Path: rigJournal, HalfBytes: half, CheckpointParallel: 3}
}

func newRig(t testing.TB, half int64, replicas int) *rig {
	t.Helper()
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) })
	mem := vfs.NewMem()
	if err := mem.MkdirAll("/node"); err != nil {
		t.Fatal(err)
	}
	if err := mem.SyncDir("/"); err != nil {
		t.Fatal(err)
	}
	g := &rig{t: t, mem: mem, fs: mem}
	for i := range replicas {
		r, err := newRigReplica(mem, Key{uint64(i + 1), 1})
		if err != nil {
			t.Fatal(err)
		}
		g.replicas = append(g.replicas, r)
	}
	var stats ReplayStats
	var err error
	g.journal, stats, err = OpenJournal(rigOptions(mem, half), rigResolver{mem})
	if err != nil || !stats.Created {
		t.Fatal(err, stats)
	}
	t.Cleanup(g.end)
	return g
}

// end closes what is open.
func (g *rig) end() {
	g.close.Do(func() {
		_ = g.journal.Close()
		for _, r := range g.replicas {
			r.close()
		}
	})
}

// commit writes data to a replica and commits it.
func (g *rig) commit(replica int, data ...[]byte) {
	g.t.Helper()
	r := g.replicas[replica]
	w, err := r.write(data...)
	if err != nil {
		g.t.Fatal(err)
	}
	if err := g.journal.Commit([]Write{w}, []Syncer{r}); err != nil {
		g.t.Fatal(err)
	}
}

// crash returns the state after a power cut now. keep is the share of unsynced things that is kept.
func (g *rig) crash(keep float64) *vfs.Mem {
	return g.mem.CrashClone(vfs.CrashOptions{KeepUnsynced: keep})
}

// reopen opens the journal on a file system, which must work, and closes it again.
func reopen(t testing.TB, fsys vfs.FS, half int64) ReplayStats {
	t.Helper()
	j, stats, err := OpenJournal(rigOptions(fsys, half), rigResolver{fsys})
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	return stats
}

// segmentContent reads a replica's only segment.
func segmentContent(t testing.TB, fsys vfs.FS, k Key) string {
	t.Helper()
	b, err := vfs.ReadFile(fsys, filepath.Join(rigGenerationDir(k, 1), formatJournalFile(0)))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
