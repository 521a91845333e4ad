package replication

import (
	"errors"
	"runtime"
	"sync"

	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/raftio"
	pb "github.com/lni/dragonboat/v4/raftpb"

	"github.com/billetlog/billet/segment"
)

// directBytes is the size above which an append goes to its segment's own fdatasync rather than into the journal: copying it there would
// cost more than the fdatasync that it shares.
const directBytes = 64 << 10

// logDB is dragonboat's log store over segment files. Its methods never return an error and never block on anything but the disk:
// dragonboat panics on the first and stalls every replica of a worker on the second. A replica whose disk fails is latched instead.
type logDB struct {
	host     *Host
	journal  *segment.Journal
	replicas sync.Map // segment.Key -> *replica
	groups   [execShards + 1]saveGroup
}

type logDBFactory struct{ db *logDB }

func (f logDBFactory) Name() string { return f.db.Name() }
func (f logDBFactory) Create(config.NodeHostConfig, config.LogDBCallback, []string, []string) (raftio.ILogDB, error) {
	return f.db, nil
}

func (d *logDB) Name() string         { return "billet-segments" }
func (d *logDB) BinaryFormat() uint32 { return raftio.PlainLogDBBinVersion }

// Close does nothing: the files belong to the host, which checkpoints and closes them after dragonboat is gone.
func (d *logDB) Close() error { return nil }

func (d *logDB) ListNodeInfo() ([]raftio.NodeInfo, error) { return nil, nil }

func (d *logDB) replica(shard, id uint64) *replica {
	v, ok := d.replicas.Load(segment.Key{Shard: shard, Replica: id})
	if !ok {
		return nil
	}
	return v.(*replica)
}

// muted says whether what the replica sends and gets is to be dropped: it is latched, or not here.
func (d *logDB) muted(shard, id uint64) bool {
	r := d.replica(shard, id)
	return r == nil || r.latched.Load()
}

// SaveBootstrapInfo is never called for replicas that we made: their slot holds it from birth.
func (d *logDB) SaveBootstrapInfo(shard, id uint64, b pb.Bootstrap) error {
	if r := d.replica(shard, id); r != nil {
		r.saveBootstrap(b)
	}
	return nil
}

func (d *logDB) GetBootstrapInfo(shard, id uint64) (pb.Bootstrap, error) {
	r := d.replica(shard, id)
	if r == nil {
		return pb.Bootstrap{}, raftio.ErrNoBootstrapInfo
	}
	return r.bootstrapInfo()
}

// SaveRaftState stores what the step worker hands over: entries, then the slot, durable when it returns. One worker
// never calls it twice at once, so each has its own scratch space.
func (d *logDB) SaveRaftState(updates []pb.Update, worker uint64) error {
	g := &d.groups[worker%uint64(len(d.groups))]
	g.reset()
	for i := range updates {
		u := &updates[i]
		if r := d.replica(u.ShardID, u.ReplicaID); r != nil {
			r.save(u, g)
		}
	}
	if g.blocks() && replicates(updates) {
		runtime.Gosched()
	}
	g.commit(d)
	return nil
}

// replicates says whether entries for other replicas were queued just before the save. A sync keeps its processor until the scheduler finds
// out, and what was woken on that processor with it, so whoever sends them goes first.
func replicates(updates []pb.Update) bool {
	for i := range updates {
		for j := range updates[i].Messages {
			if m := &updates[i].Messages[j]; m.Type == pb.Replicate && len(m.Entries) > 0 {
				return true
			}
		}
	}
	return false
}

// SaveSnapshots keeps the records of snapshots that dragonboat took; it runs beside SaveRaftState of the same replica.
func (d *logDB) SaveSnapshots(updates []pb.Update) error {
	for i := range updates {
		u := &updates[i]
		if r := d.replica(u.ShardID, u.ReplicaID); r != nil && !pb.IsEmptySnapshot(u.Snapshot) {
			r.saveRecord(u.Snapshot)
		}
	}
	return nil
}

func (d *logDB) GetSnapshot(shard, id uint64) (pb.Snapshot, error) {
	r := d.replica(shard, id)
	if r == nil {
		return pb.Snapshot{}, nil
	}
	return r.record(), nil
}

func (d *logDB) ReadRaftState(shard, id, _ uint64) (raftio.RaftState, error) {
	r := d.replica(shard, id)
	if r == nil {
		return raftio.RaftState{}, raftio.ErrNoSavedLog
	}
	return r.raftState(), nil
}

func (d *logDB) IterateEntries(ents []pb.Entry, size, shard, id, low, high, maxSize uint64) ([]pb.Entry, uint64, error) {
	r := d.replica(shard, id)
	if r == nil {
		return ents, size, nil
	}
	return r.iterate(ents, size, low, high, maxSize)
}

// RemoveEntriesTo moves F, the first entry that Raft may still replicate one by one. Nothing is deleted: consumers read on.
func (d *logDB) RemoveEntriesTo(shard, id, index uint64) error {
	if r := d.replica(shard, id); r != nil {
		r.removedTo.Store(max(r.removedTo.Load(), index))
		select {
		case r.moved <- struct{}{}:
		default:
		}
	}
	return nil
}

func (d *logDB) CompactEntriesTo(uint64, uint64, uint64) (<-chan struct{}, error) {
	done := make(chan struct{})
	close(done)
	return done, nil
}

// RemoveNodeData is never called: the host deletes a replica's folder after its group stopped, outside of NodeHost's lock.
func (d *logDB) RemoveNodeData(uint64, uint64) error { return nil }

// ImportSnapshot is dragonboat's way out of a lost quorum and not ours.
func (d *logDB) ImportSnapshot(pb.Snapshot, uint64) error { return nil }

// Resolve tells the journal's replay where a replica's files are.
func (d *logDB) Resolve(k segment.Key, generation uint64, slot bool) (string, bool) {
	return d.host.resolveDir(k, generation, slot)
}

// saveGroup gathers what one SaveRaftState must make durable.
type saveGroup struct {
	entries []segment.Entry
	direct  []pendingSave // own fdatasync
	writes  []segment.Write
	syncers []segment.Syncer
	queued  []pendingSave // in the journal's group
	slots   []*replica    // whose slot was written
	seqs    []uint64
	lazy    []pendingSave // under interval: stored, not synced
}

type pendingSave struct {
	r     *replica
	index uint64 // last index stored
	end   int64  // end offset then
	voids int
}

// blocks says whether commit waits for the disk.
func (g *saveGroup) blocks() bool { return len(g.writes)+len(g.direct) > 0 }

func (g *saveGroup) reset() {
	clear(g.entries)
	clear(g.direct)
	clear(g.writes)
	clear(g.syncers)
	clear(g.queued)
	clear(g.slots)
	clear(g.lazy)
	g.entries, g.direct, g.writes, g.syncers = g.entries[:0], g.direct[:0], g.writes[:0], g.syncers[:0]
	g.queued, g.slots, g.seqs, g.lazy = g.queued[:0], g.slots[:0], g.seqs[:0], g.lazy[:0]
}

// commit makes the group durable, entries before slots, and tells each replica.
func (g *saveGroup) commit(d *logDB) {
	g.syncDirect()
	if len(g.writes) > 0 {
		err := segment.ErrJournalOff
		if d.journal != nil {
			err = d.journal.Commit(g.writes, g.syncers)
		}
		if err != nil {
			d.host.journalFailed(err)
			g.syncFiles()
		} else {
			for _, p := range g.queued {
				p.r.markDurable(p.index)
			}
			for i, r := range g.slots {
				r.slotDurable(g.seqs[i])
			}
		}
	}
	for _, list := range [...][]pendingSave{g.direct, g.queued, g.lazy} {
		for _, p := range list {
			p.r.stored(p)
		}
	}
}

// syncDirect gives every large append its own fdatasync, side by side.
func (g *saveGroup) syncDirect() {
	if len(g.direct) == 1 {
		g.direct[0].r.syncLog()
		return
	}
	var wg sync.WaitGroup
	for i := 0; i < len(g.direct); i += directParallel {
		for _, p := range g.direct[i:min(i+directParallel, len(g.direct))] {
			wg.Go(p.r.syncLog)
		}
		wg.Wait()
	}
}

// directParallel bounds the fdatasyncs that one worker has under way.
const directParallel = 8

// syncFiles is what happens without the journal: every log and slot file for itself, logs first.
func (g *saveGroup) syncFiles() {
	for _, p := range g.queued {
		p.r.syncLog()
	}
	for i, r := range g.slots {
		r.syncSlot(g.seqs[i])
	}
}

func isDiskFull(err error) bool { return errors.Is(err, errNoSpace) }
