package replication

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/lni/dragonboat/v4/raftio"
	pb "github.com/lni/dragonboat/v4/raftpb"

	"github.com/billetlog/billet/segment"
)

var errNoSpace error = syscall.ENOSPC

// replica is the store of one Raft replica: its log, its slot, and the latch.
type replica struct {
	host *Host
	key  segment.Key
	dir  string // holds the slot file and a folder for each generation

	hooks replicaHooks
	tune  func(segment.Options) segment.Options // for a log that is installed; nil: as it is

	lazySync  atomic.Bool              // fsync policy interval
	unsynced  atomic.Int64             // when the oldest entry was stored that no sync has begun for, Unix nanoseconds; 0: none
	syncing   atomic.Int64             // the same for the sync that runs
	latched   atomic.Bool              // see latchLocked; read without the lock by the transport
	opened    atomic.Uint64            // entries up to here were in the log when it was opened, and are still the same
	removedTo atomic.Uint64            // entries up to here are not replicated one by one any more
	moved     chan struct{}            // has room for one: removedTo grew
	term      atomic.Uint64            // of the newest hard state that was handed over
	storedTo  atomic.Uint64            // the last entry that is stored as the policy demands
	progress  atomic.Pointer[progress] // of the other replicas, in the newest term led here
	reloadDue atomic.Bool              // another log was installed, and the fold is not yet that of its checkpoint
	untidy    atomic.Bool              // there are folders of older generations

	mu struct {
		sync.Mutex
		log        *segment.Log
		slots      *segment.SlotFile
		slot       segment.Slot  // as last written
		state      pb.State      // newest hard state; the slot's may have an older commit
		records    []pb.Snapshot // as dragonboat saved them, oldest first
		handed     pb.Snapshot   // what dragonboat was started from
		lastConfig uint64        // index of the last membership change seen
		staged     map[stagedKey]uint64
		settled    chan struct{} // closed when staged has changed or the replica is latched; nil while nobody waits
		cause      error         // why it is latched
		overlay    map[uint64]pb.Entry
	}
}

func newReplica(h *Host, k segment.Key, hooks replicaHooks) *replica {
	return &replica{host: h, key: k, dir: h.replicaDir(k), hooks: hooks, moved: make(chan struct{}, 1)}
}

// replicaHooks is what the store tells the partition. The calls come from dragonboat's workers and must not block.
type replicaHooks interface {
	// onStored: entries up to end are stored as the policy demands; voids of them took no effect.
	onStored(end int64, voids int)
	// onLatched: the disk failed; cause is the first error.
	onLatched(cause error)
	// onProgress: another replica is known to have more of the log. It comes from the transport.
	onProgress()
}

// stagedKey names a snapshot whose log lies complete in a generation of its own, waiting to be installed.
type stagedKey struct{ index, term uint64 }

// recordsMax is how many snapshot records a slot keeps.
const recordsMax = 3

// save writes one update to the files and notes in g what has to become durable.
func (r *replica) save(u *pb.Update, g *saveGroup) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.latched.Load() {
		r.keepInMemoryLocked(u.EntriesToSave)
		return
	}
	slotDue := false
	if !pb.IsEmptySnapshot(u.Snapshot) {
		if err := r.installLocked(u.Snapshot); err != nil {
			r.latchLocked(err)
			r.keepInMemoryLocked(u.EntriesToSave)
			return
		}
		slotDue = true
	}
	if len(u.EntriesToSave) > 0 {
		if err := r.appendLocked(u.EntriesToSave, g); err != nil {
			r.latchLocked(err)
			r.keepInMemoryLocked(u.EntriesToSave)
			return
		}
	}
	if !pb.IsEmptyState(u.State) {
		slotDue = slotDue || u.State.Term != r.mu.state.Term || u.State.Vote != r.mu.state.Vote
		r.mu.state = u.State
		r.term.Store(u.State.Term)
	}
	if len(r.mu.staged) > 0 {
		r.settleStagedLocked()
	}
	// A membership change takes effect when it is applied, and is found again after a restart only up to the durable commit.
	changed := hasConfigChange(u.CommittedEntries)
	if changed {
		if err := r.mu.log.Sync(); err != nil { // the slot's commit reaches no further than the log is durable
			r.latchLocked(err)
			return
		}
	}
	if slotDue || changed {
		w, err := r.putSlotLocked()
		if err != nil {
			r.latchLocked(err)
			return
		}
		g.writes, g.syncers = append(g.writes, w), append(g.syncers, r.mu.slots)
		g.slots, g.seqs = append(g.slots, r), append(g.seqs, r.mu.slot.Seq)
	}
}

func (r *replica) appendLocked(entries []pb.Entry, g *saveGroup) error {
	g.entries = g.entries[:0]
	for i := range entries {
		if entries[i].Type == pb.ConfigChangeEntry {
			r.mu.lastConfig = max(r.mu.lastConfig, entries[i].Index)
		}
		g.entries = append(g.entries, toFrame(&entries[i]))
	}
	if err := r.lowerMarkLocked(entries[0].Index - 1); err != nil {
		return err
	}
	r.opened.Store(min(r.opened.Load(), entries[0].Index-1))
	a, err := r.mu.log.Append(g.entries)
	if err != nil {
		return err
	}
	p := pendingSave{r: r, index: entries[len(entries)-1].Index, end: a.EndOffset, voids: a.Voids}
	switch {
	case r.lazySync.Load():
		r.unsynced.CompareAndSwap(0, r.host.now().UnixNano())
		g.lazy = append(g.lazy, p)
	case a.Bytes > directBytes:
		g.direct = append(g.direct, p)
	default:
		g.queued = append(g.queued, p)
		for _, w := range a.Writes {
			g.writes, g.syncers = append(g.writes, w), append(g.syncers, r.mu.log)
		}
	}
	return nil
}

// lowerMarkLocked makes the durable mark no higher than index, durably: entries above it are about to be replaced, and a mark
// above the log's end would look like lost data.
func (r *replica) lowerMarkLocked(index uint64) error {
	if index >= r.mu.log.LastIndex() || r.mu.slot.Mark <= index {
		return nil
	}
	s := r.mu.slot
	s.Mark = index
	if _, err := r.putImageLocked(s); err != nil {
		return err
	}
	if err := r.mu.slots.Sync(); err != nil {
		return err
	}
	r.mu.slots.MarkDurable(r.mu.slot.Seq)
	return nil
}

// latchLocked takes the replica out: the transport drops what it says, further entries stay in memory so that dragonboat can go on
// until it is stopped, nothing is acknowledged. There is no way back but opening the files again.
func (r *replica) latchLocked(cause error) {
	if r.latched.Load() {
		return
	}
	r.mu.cause = cause
	r.mu.overlay = make(map[uint64]pb.Entry)
	r.latched.Store(true)
	r.settledLocked()
	r.hooks.onLatched(cause)
}

func (r *replica) latch(cause error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.latchLocked(cause)
}

// latchFor is latch for an error of a log, unless another one was installed meanwhile: then it was closed, and what it said is of no meaning.
func (r *replica) latchFor(log *segment.Log, cause error) (latched bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.log != log {
		return false
	}
	r.latchLocked(cause)
	return true
}

func (r *replica) keepInMemoryLocked(entries []pb.Entry) {
	for _, e := range entries {
		r.mu.overlay[e.Index] = e
	}
}

// syncLog makes the log durable on its own.
func (r *replica) syncLog() {
	r.mu.Lock()
	log := r.mu.log
	r.mu.Unlock()
	if r.lazySync.Load() {
		r.syncing.Store(r.unsynced.Swap(0))
		defer r.syncing.Store(0)
	}
	if err := log.Sync(); err != nil {
		r.latchFor(log, err)
	}
}

// unsyncedSince is when the oldest entry was stored that is acknowledged and not durable; ok is false when there is none.
func (r *replica) unsyncedSince() (since time.Time, ok bool) {
	at := r.syncing.Load()
	if at == 0 {
		at = r.unsynced.Load()
	}
	return time.Unix(0, at), at != 0
}

// setLazySync changes the fsync policy. What was appended under interval is made durable before anything is under commit: a redo record
// in the journal is of no use behind bytes that were lost.
func (r *replica) setLazySync(lazy bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !lazy && r.lazySync.Load() && !r.latched.Load() {
		if err := r.mu.log.Sync(); err != nil {
			r.latchLocked(err)
		}
		r.unsynced.Store(0)
	}
	r.lazySync.Store(lazy)
}

func (r *replica) markDurable(index uint64) {
	r.mu.Lock()
	log := r.mu.log
	r.mu.Unlock()
	log.MarkDurable(index)
}

func (r *replica) stored(p pendingSave) {
	if !r.latched.Load() {
		r.storedTo.Store(p.index)
		r.hooks.onStored(p.end, p.voids)
	}
}

// putSlotLocked writes the newest state into the slot file, unsynced. Raft commits a single voter's entries before they are stored, and under
// interval they are synced later, so its commit may be ahead of the disk: a slot that says so would look like lost data after a power cut.
func (r *replica) putSlotLocked() (segment.Write, error) {
	s := r.mu.slot
	s.Mark = r.mu.log.DurableIndex()
	s.Term, s.Vote, s.Commit = r.mu.state.Term, r.mu.state.Vote, min(r.mu.state.Commit, s.Mark)
	s.Clean = false
	s.BootID = r.host.bootID
	s.Snapshots = nil
	for i := range r.mu.records {
		s.Snapshots = append(s.Snapshots, pb.MustMarshal(&r.mu.records[i]))
	}
	return r.putImageLocked(s)
}

func (r *replica) putImageLocked(s segment.Slot) (segment.Write, error) {
	w, err := r.mu.slots.Put(s)
	if err != nil {
		return segment.Write{}, err
	}
	s.Seq = r.mu.slots.Seq()
	r.mu.slot = s
	return w, nil
}

func (r *replica) slotDurable(seq uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.slots.MarkDurable(seq)
}

func (r *replica) syncSlot(seq uint64) {
	r.mu.Lock()
	slots := r.mu.slots
	r.mu.Unlock()
	if err := slots.Sync(); err != nil {
		r.latch(err)
		return
	}
	r.slotDurable(seq)
}

// commitSlot writes the slot and makes it durable by itself: for what does not come with a SaveRaftState.
func (r *replica) commitSlot() {
	r.mu.Lock()
	if r.latched.Load() {
		r.mu.Unlock()
		return
	}
	w, err := r.putSlotLocked()
	slots, seq := r.mu.slots, r.mu.slot.Seq
	if err != nil {
		r.latchLocked(err)
	}
	r.mu.Unlock()
	if err != nil {
		return
	}
	if j := r.host.db.journal; j != nil && j.Commit([]segment.Write{w}, []segment.Syncer{slots}) == nil {
		r.slotDurable(seq)
		return
	}
	r.syncSlot(seq)
}

func (r *replica) saveBootstrap(b pb.Bootstrap) {
	r.mu.Lock()
	r.mu.slot.Bootstrap = pb.MustMarshal(&b)
	r.mu.Unlock()
	r.commitSlot()
}

func (r *replica) bootstrapInfo() (pb.Bootstrap, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.mu.slot.Bootstrap) == 0 {
		return pb.Bootstrap{}, raftio.ErrNoBootstrapInfo
	}
	var b pb.Bootstrap
	if err := unmarshal(&b, r.mu.slot.Bootstrap); err != nil {
		return pb.Bootstrap{}, fmt.Errorf("replication: bootstrap record of shard %d: %w", r.key.Shard, err)
	}
	return b, nil
}

// raftState is where dragonboat resumes: after the record that it was handed.
func (r *replica) raftState() raftio.RaftState {
	r.mu.Lock()
	defer r.mu.Unlock()
	st := r.mu.state
	st.Commit = max(st.Commit, r.mu.handed.Index)
	first := max(r.mu.log.FirstIndex(), r.mu.handed.Index+1)
	rs := raftio.RaftState{State: st, FirstIndex: first}
	if last := r.mu.log.LastIndex(); last >= first {
		rs.EntryCount = last - first + 1
	}
	return rs
}

// iterate reads entries back for dragonboat, which panics when one is missing. An unreadable one latches the replica, and void entries stand in
// for what cannot be read: they never leave this node.
func (r *replica) iterate(ents []pb.Entry, size, low, high, maxSize uint64) ([]pb.Entry, uint64, error) {
	for low < high {
		if e, ok := r.overlaid(low); ok {
			ents, size, low = append(ents, e), size+uint64(e.SizeUpperLimit()), low+1
			if size > maxSize {
				return ents, size, nil
			}
			continue
		}
		if size > 0 && size >= maxSize {
			return ents, size, nil
		}
		budget := maxSize - min(size, maxSize) // 0: dragonboat wants the first entry's term only
		log := r.currentLog()
		// What follows the log's end is in memory only.
		frames, err := log.Entries(nil, low, max(min(high, log.LastIndex()+1), low+1), budget)
		if len(frames) == 0 {
			if err == nil || errors.Is(err, segment.ErrCompacted) || errors.Is(err, segment.ErrUnavailable) {
				return ents, size, nil
			}
			if !r.latchFor(log, err) {
				continue
			}
			term, err := log.Term(low)
			if err != nil {
				term = log.LastTerm()
			}
			frames = append(frames, segment.Entry{Index: low, Term: term, Kind: segment.KindVoid})
		}
		for i := range frames {
			e := toRaft(&frames[i])
			r.noteConfig(&e)
			ents, size, low = append(ents, e), size+uint64(e.SizeUpperLimit()), low+1
			if size > maxSize {
				return ents, size, nil
			}
		}
	}
	return ents, size, nil
}

func (r *replica) noteConfig(e *pb.Entry) {
	if e.Type != pb.ConfigChangeEntry {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.lastConfig = max(r.mu.lastConfig, e.Index)
}

func (r *replica) overlaid(index uint64) (pb.Entry, bool) {
	if !r.latched.Load() {
		return pb.Entry{}, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	e, ok := r.mu.overlay[index]
	return e, ok
}

func (r *replica) currentLog() *segment.Log {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.log
}
