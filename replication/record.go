package replication

import (
	"errors"
	"fmt"

	pb "github.com/lni/dragonboat/v4/raftpb"

	"github.com/billetlog/billet/segment"
)

// genesisIndex and genesisTerm are those of the record that every replica of a new group is born with, on every node the same. It
// stands for the bootstrap entries that dragonboat would otherwise put into the log, whose loss by a lazily kept commit
// would leave a group without members.
const (
	genesisIndex = 1
	genesisTerm  = 1
)

func genesisRecord(shard uint64, members map[uint64]string) pb.Snapshot {
	addresses := make(map[uint64]string, len(members))
	for id, name := range members {
		addresses[id] = name
	}
	return pb.Snapshot{
		ShardID:     shard,
		Index:       genesisIndex,
		Term:        genesisTerm,
		OnDiskIndex: genesisIndex,
		Membership:  pb.Membership{ConfigChangeId: genesisIndex, Addresses: addresses},
		Type:        pb.OnDiskStateMachine,
		Dummy:       true,
	}
}

func genesisBootstrap(members map[uint64]string) pb.Bootstrap {
	return pb.NewBootstrapInfo(false, pb.OnDiskStateMachine, members)
}

// record is the newest snapshot record: dragonboat's own, or the one made for its start.
func (r *replica) record() pb.Snapshot {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.recordLocked()
}

func (r *replica) recordLocked() pb.Snapshot {
	if n := len(r.mu.records); n > 0 && r.mu.records[n-1].Index > r.mu.handed.Index {
		return r.mu.records[n-1]
	}
	return r.mu.handed
}

func (r *replica) saveRecord(s pb.Snapshot) {
	r.mu.Lock()
	// dragonboat starts behind the record, so the log must reach there whatever happens.
	if log := r.mu.log; s.Index > log.DurableIndex() && !r.latched.Load() {
		if err := log.Sync(); err != nil {
			r.latchLocked(err)
		}
	}
	n := len(r.mu.records)
	if n > 0 && r.mu.records[n-1].Index >= s.Index {
		r.mu.Unlock()
		return
	}
	forgetRemoved(&s.Membership)
	r.mu.records = append(r.mu.records, s)
	r.mu.records = trimRecords(r.mu.records)
	r.mu.Unlock()
	r.commitSlot()
}

// recordBytesMax is how much of a slot snapshot records may take. Only the newest is needed.
const recordBytesMax = segment.SlotImageMax / 2

// trimRecords leaves the newest records, as many as a slot has room for.
func trimRecords(records []pb.Snapshot) []pb.Snapshot {
	n, size := len(records), 0
	for n > 0 && len(records)-n < recordsMax {
		if size += records[n-1].Size(); size > recordBytesMax && n < len(records) {
			break
		}
		n--
	}
	return append([]pb.Snapshot(nil), records[n:]...)
}

// loadRecords decodes the slot's records. Their files in dragonboat's memory are gone, so each is a dummy now. Only a replica that has joined and
// was handed nothing yet has none.
func loadRecords(slot segment.Slot) ([]pb.Snapshot, error) {
	var out []pb.Snapshot
	for _, b := range slot.Snapshots {
		var s pb.Snapshot
		if err := unmarshal(&s, b); err != nil {
			return nil, fmt.Errorf("replication: snapshot record in the slot: %w", err)
		}
		s.Dummy = true
		forgetRemoved(&s.Membership)
		out = append(out, s)
	}
	if len(out) == 0 && slot.Role == roleInitial {
		return nil, errors.New("replication: the slot holds no snapshot record")
	}
	return out, nil
}

// newestRecord is the last one, the empty one when there is none.
func newestRecord(records []pb.Snapshot) pb.Snapshot {
	if len(records) == 0 {
		return pb.Snapshot{}
	}
	return records[len(records)-1]
}

// startRecord makes the record that dragonboat starts from: the newest saved one moved up to the fold's checkpoint, if no membership
// change can lie between. It spares replaying what the checkpoint covers.
func startRecord(saved pb.Snapshot, checkpoint segment.Checkpoint, lastConfig uint64) pb.Snapshot {
	if checkpoint.Index <= saved.Index || lastConfig > saved.Index {
		return saved
	}
	s := saved
	s.Index, s.Term, s.OnDiskIndex = checkpoint.Index, checkpoint.Term, checkpoint.Index
	s.Dummy = true
	return s
}

var errNotStaged = errors.New("replication: no staged log for the snapshot")

// installLocked replaces the log by the staged one. The one commit point is the slot's write: before it the old log counts, after it
// the new one.
func (r *replica) installLocked(s pb.Snapshot) error {
	gen, ok := r.mu.staged[stagedKey{s.Index, s.Term}]
	if !ok {
		return fmt.Errorf("%w: shard %d index %d term %d", errNotStaged, r.key.Shard, s.Index, s.Term)
	}
	options := r.host.segmentOptions(r, gen, r.mu.slot.Identity)
	if r.tune != nil {
		options = r.tune(options)
	}
	log, _, err := segment.Open(options, segment.OpenHints{DurableIndex: s.Index})
	if err != nil {
		return err
	}
	if log.LastIndex() != s.Index || log.LastTerm() != s.Term {
		return errors.Join(fmt.Errorf("%w: staged log ends at %d, term %d, the snapshot at %d, term %d", errNotStaged,
			log.LastIndex(), log.LastTerm(), s.Index, s.Term), log.Close(false))
	}
	s.Dummy = true
	old, slot, records, state := r.mu.log, r.mu.slot, r.mu.records, r.mu.state
	r.mu.slot.Generation, r.mu.log, r.mu.records = gen, log, []pb.Snapshot{s}
	r.mu.state.Commit = max(state.Commit, s.Index)
	r.mu.state.Term = max(state.Term, s.Term)
	_, err = r.putSlotLocked()
	if err == nil {
		err = r.mu.slots.Sync()
	}
	if err != nil { // the replica is latched: whoever reads goes on with the old log
		r.mu.slot, r.mu.log, r.mu.records, r.mu.state = slot, old, records, state
		return errors.Join(err, log.Close(false))
	}
	r.mu.slots.MarkDurable(r.mu.slot.Seq)
	r.reloadDue.Store(true) // before the old log is closed, and before what it says of entries is no longer true
	r.opened.Store(log.LastIndex())
	r.storedTo.Store(log.LastIndex())
	r.unsynced.Store(0)
	r.untidy.Store(true)
	r.mu.handed = s
	if j := r.host.db.journal; j != nil {
		j.Forget(r.key) // nobody needs the old log's records, and the slot is durable by itself
	}
	if err := old.Close(false); err != nil {
		r.host.logger.Debug("closing a log that a snapshot replaced", "dir", r.dir, "err", err)
	}
	return nil
}
