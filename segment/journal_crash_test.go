package segment

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/billetlog/billet/internal/vfs"
)

// model is a replica that knows what it was promised.
type model struct {
	*rigReplica
	random *rand.Rand
	broken bool // after a failed write or sync: takes nothing more

	mu    sync.Mutex
	want  []byte // content
	acked int    // bytes of it that are promised
	cuts  []int  // positions from which on content changed or may have, oldest first
	term  uint64 // promised
}

// promise is what a replica was promised at some moment.
type promise struct {
	want []byte
	cuts int
	term uint64
}

func newModel(r *rigReplica, seed uint64) *model {
	return &model{rigReplica: r, random: rand.New(rand.NewPCG(seed, r.key.Shard))}
}

func (m *model) promised() promise {
	m.mu.Lock()
	defer m.mu.Unlock()
	return promise{want: bytes.Clone(m.want[:m.acked]), cuts: len(m.cuts), term: m.term}
}

// check compares what is on disk after a crash with the promise from before it.
func (m *model) check(fsys vfs.FS, p promise) error {
	m.mu.Lock()
	bound := len(p.want)
	for _, cut := range m.cuts[p.cuts:] {
		bound = min(bound, cut)
	}
	m.mu.Unlock()
	got, err := vfs.ReadFile(fsys, filepath.Join(rigGenerationDir(m.key, 1), m.name))
	if err != nil {
		return err
	}
	if len(got) < bound || !bytes.Equal(got[:bound], p.want[:bound]) {
		same := 0
		for same < min(len(got), bound) && got[same] == p.want[same] {
			same++
		}
		return fmt.Errorf("replica %v: %d bytes, of %d promised ones %d are right", m.key, len(got), bound, same)
	}
	f, s, err := OpenSlotFile(fsys, rigDir(m.key))
	if err != nil {
		return err
	}
	_ = f.Close()
	if s.Term < p.term {
		return fmt.Errorf("replica %v: term %d, promised was %d", m.key, s.Term, p.term)
	}
	return nil
}

// step does something at random. It breaks the replica when its own files fail.
func (m *model) step(j *Journal) {
	switch n := m.random.IntN(20); {
	case n < 12:
		m.append(j, true)
	case n < 14:
		m.append(j, false)
	case n < 17:
		m.truncate(j)
	default:
		m.vote(j, n < 19)
	}
}

// commit makes w durable: by the journal, else directly.
func (m *model) commit(j *Journal, w Write) error {
	syncer := Syncer(m)
	if w.Slot {
		syncer = m.slots
	}
	err := j.Commit([]Write{w}, []Syncer{syncer})
	if errors.Is(err, ErrJournalOff) || errors.Is(err, ErrJournalTooLarge) {
		return m.syncDirect()
	}
	return err
}

func (m *model) append(j *Journal, journaled bool) {
	data := make([]byte, 1+m.random.IntN(700))
	for i := range data {
		data[i] = byte(m.random.Uint32())
	}
	w, err := m.write(data)
	if err == nil {
		m.mu.Lock()
		m.want = append(m.want, data...)
		m.mu.Unlock()
		if journaled {
			err = m.commit(j, w)
		} else {
			err = m.syncFile()
		}
	}
	if err != nil {
		m.broken = true
		return
	}
	m.mu.Lock()
	m.acked = len(m.want)
	m.mu.Unlock()
}

func (m *model) truncate(j *Journal) {
	m.mu.Lock()
	to := len(m.want) - m.random.IntN(min(len(m.want), 1500)+1)
	m.mu.Unlock()
	err := m.syncFile()
	if err == nil {
		err = j.Fence(m.key)
	}
	if err != nil {
		m.broken = true
		return
	}
	m.mu.Lock()
	m.want = m.want[:to]
	m.acked = min(m.acked, to)
	m.cuts = append(m.cuts, to)
	m.mu.Unlock()
	if err := m.file.Truncate(int64(to)); err != nil {
		m.broken = true
		return
	}
	m.pos = int64(to)
}

func (m *model) vote(j *Journal, journaled bool) {
	m.slot.Term++
	w, err := m.slots.Put(m.slot)
	if err == nil {
		if journaled {
			seq := m.slots.Seq()
			if err = m.commit(j, w); err == nil {
				m.slots.MarkDurable(seq)
			}
		} else {
			err = m.slots.Sync()
		}
	}
	if err != nil {
		m.broken = true
		return
	}
	m.mu.Lock()
	m.term = m.slot.Term
	m.mu.Unlock()
}

// Power cuts at any moment while many write, truncate and vote, and tiny halves are used over and over.
func TestJournalPowerCutsUnderLoad(t *testing.T) {
	for _, half := range []int64{4096, 8192, 64 << 10} {
		t.Run(fmt.Sprintf("half=%d", half), func(t *testing.T) {
			g := newRig(t, half, 6)
			var models []*model
			for _, r := range g.replicas {
				models = append(models, newModel(r, uint64(half)))
			}
			var stop atomic.Bool
			var writers sync.WaitGroup
			for _, m := range models {
				writers.Go(func() {
					for !stop.Load() && !m.broken && len(m.want) < 1<<20 {
						m.step(g.journal)
					}
				})
			}
			random := rand.New(rand.NewPCG(5, uint64(half)))
			for cut := range 60 {
				var promises []promise
				for _, m := range models {
					promises = append(promises, m.promised())
				}
				after := g.mem.CrashClone(vfs.CrashOptions{KeepUnsynced: []float64{0, 0.5, 0.9, 1}[cut%4], Rand: random})
				j, stats, err := OpenJournal(rigOptions(after, half), rigResolver{after})
				if err != nil || len(stats.Failed) > 0 {
					t.Errorf("cut %d: %v %v", cut, err, stats.Failed)
					break
				}
				for i, m := range models {
					if err := m.check(after, promises[i]); err != nil {
						t.Errorf("cut %d: %v (%+v)", cut, err, stats)
					}
				}
				_ = j.Close()
			}
			stop.Store(true)
			writers.Wait()
			for _, m := range models {
				if m.broken {
					t.Error("a replica broke without a fault")
				}
			}
			t.Logf("%+v", g.journal.Stats())
		})
	}
}

// faultRun lets three replicas work with faults injected, and checks what a power cut at the end leaves.
func faultRun(t *testing.T, half int64, seed uint64, trigger *vfs.Trigger) (off error) {
	t.Helper()
	mem := vfs.NewMem()
	if err := mem.MkdirAll("/node"); err != nil {
		t.Fatal(err)
	}
	mem.SyncAll()
	var models []*model
	injected := vfs.Inject(mem, trigger.Fault)
	for i := range 3 {
		r, err := newRigReplica(injected, Key{uint64(i + 1), 1})
		if err != nil {
			return nil // nothing was promised
		}
		defer r.close()
		models = append(models, newModel(r, seed))
	}
	j, _, err := OpenJournal(rigOptions(injected, half), rigResolver{mem})
	if err != nil {
		return nil
	}
	random := rand.New(rand.NewPCG(seed, 99))
	for range 60 {
		if m := models[random.IntN(3)]; !m.broken {
			m.step(j)
		}
	}
	verify := func(when string, keep float64) {
		t.Helper()
		after := mem.CrashClone(vfs.CrashOptions{KeepUnsynced: keep, Rand: random})
		again, stats, err := OpenJournal(rigOptions(after, half), rigResolver{after})
		if err != nil || len(stats.Failed) > 0 {
			t.Fatalf("%s: %v %v", when, err, stats.Failed)
		}
		_ = again.Close()
		for _, m := range models {
			if err := m.check(after, m.promised()); err != nil {
				t.Fatalf("%s: %v\nreplay %+v\njournal %+v", when, err, stats, j.Stats())
			}
		}
	}
	verify("before Close", 0)
	verify("before Close", 0.5)
	closeErr := j.Close()
	verify(fmt.Sprintf("after Close (%v)", closeErr), 0)
	return j.Stats().Off
}

// Each operation on the journal's own file fails, once or from then on.
func TestJournalOwnFaults(t *testing.T) {
	journal := func(_ vfs.Op, name string) bool { return strings.HasPrefix(name, rigJournal) }
	for _, forever := range []bool{false, true} {
		wentOff := 0
		for n := 1; ; n++ {
			trigger := vfs.FailNth(n, journal, nil)
			if forever {
				trigger = vfs.FailFrom(n, journal, nil)
			}
			if off := faultRun(t, 4096, uint64(n), trigger); off != nil {
				wentOff++
				if !errors.Is(off, ErrJournalOff) || !errors.Is(off, vfs.ErrInjected) {
					t.Fatalf("fault %d: %v", n, off)
				}
			}
			if !trigger.Fired() {
				break
			}
		}
		if wentOff < 20 {
			t.Errorf("the journal went off in %d runs only", wentOff)
		}
	}
}

// Each operation on any file fails once: replicas break, the journal goes off, but no promise does.
func TestJournalAllFaults(t *testing.T) {
	step := 1
	if testing.Short() {
		step = 7
	}
	for n := 1; ; n += step {
		trigger := vfs.FailNth(n, nil, nil)
		faultRun(t, 4096, uint64(n), trigger)
		if !trigger.Fired() {
			break
		}
	}
}

// Writes that stop short.
func TestJournalTornWrites(t *testing.T) {
	for n := 1; ; n++ {
		trigger := vfs.TornWrite(n, 512, func(_ vfs.Op, name string) bool { return strings.HasPrefix(name, rigJournal) }, nil)
		faultRun(t, 8192, uint64(n), trigger)
		if !trigger.Fired() {
			break
		}
	}
}
