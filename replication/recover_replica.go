package replication

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	pb "github.com/lni/dragonboat/v4/raftpb"

	"github.com/billetlog/billet/segment"
)

// The part of a recovery that the node does whose log is taken: the log is copied into the files of a replica of a new group, which has no other
// member and for which all of it is committed.

// The requests of a recovery.
const (
	requestReplica requestKind = 32 // tell of the local replica of a shard
	requestRebuild requestKind = 33 // make a new group of it
)

// rebuildRequest asks a node to make a new group of its replica, or to delete it again.
type rebuildRequest struct {
	Epoch      uint64 `json:"epoch"` // of the controller
	Topic      string `json:"topic"`
	Shard      uint64 `json:"shard"`
	Replica    uint64 `json:"replica"`
	LastIndex  uint64 `json:"last_index"` // where its log must end
	LastTerm   uint64 `json:"last_term"`
	Term       uint64 `json:"term"` // the new group's terms are above it
	NewShard   uint64 `json:"new_shard"`
	NewReplica uint64 `json:"new_replica"`
	Discard    bool   `json:"discard,omitempty"`
}

// tellReplica describes this node's replica of a shard.
func (c *Controller) tellReplica(shard uint64) (a replicaAnswer) {
	p := c.local(shard)
	if p == nil {
		return a
	}
	a.Replica = p.spec.Replica
	if p.r == nil {
		return a
	}
	state, cause := p.State()
	a.Leads = p.Epoch() != 0
	a.Lossy = errors.Is(cause, errLossyTail)
	a.Intact = !state.stopped() && !p.r.latched.Load()
	a.Readable = p.Damage() == nil && !errors.Is(cause, segment.ErrCorrupt) && state != StateClosed
	log := p.r.currentLog()
	record := p.r.record()
	p.r.mu.Lock()
	a.Term = p.r.mu.state.Term
	p.r.mu.Unlock()
	a.LastTerm, a.LastIndex = log.LastTerm(), log.LastIndex()
	a.Start, a.End, a.HW = log.StartOffset(), log.EndOffset(), p.HighWatermark()
	if a.LastIndex == record.Index && a.LastTerm == 0 {
		a.LastTerm = record.Term
	}
	if a.Voters = p.voters(); len(a.Voters) == 0 {
		for id := range record.Membership.Addresses {
			a.Voters = append(a.Voters, id)
		}
	}
	return a
}

// rebuildReplica carries out a rebuildRequest. As for prepare: what a record has named, or what runs, is never touched.
func (c *Controller) rebuildReplica(ctx context.Context, q *rebuildRequest) error {
	if _, term, ok := c.host.guard.leader(metadataShard); ok && q.Epoch < term {
		return fmt.Errorf("%w: a request of the controller of epoch %d, it is %d", ErrNotLeader, q.Epoch, term)
	}
	c.mu.RLock()
	_, recorded := c.mu.byShard[q.NewShard]
	recorded = recorded || c.mu.deleted[q.NewShard]
	c.mu.RUnlock()
	if recorded || c.host.claimed(q.NewShard) != nil {
		return fmt.Errorf("%w: shard %d is in use", ErrTopicExists, q.NewShard)
	}
	key := segment.Key{Shard: q.NewShard, Replica: q.NewReplica}
	if q.Discard {
		return c.host.DeleteReplicaDir(key)
	}
	p := c.local(q.Shard)
	if p == nil || p.spec.Replica != q.Replica || p.r == nil {
		return fmt.Errorf("%w: node %d has no replica %x of shard %d", ErrUnknownTopic, c.host.cfg.Node.ID, q.Replica, q.Shard)
	}
	if c.host.disk.braked.Load() {
		return fmt.Errorf("%w: the log of %s cannot be copied", ErrDiskFull, p.name())
	}
	if err := c.dropAttempts(p); err != nil {
		return err
	}
	if !p.life.TryRLock() {
		return fmt.Errorf("%w: %w", ErrBusy, errRunning)
	}
	defer p.life.RUnlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)()
	if err := p.copyTo(ctx, q); err != nil {
		err = fmt.Errorf("making a new group of %s: %w", p.name(), err)
		return errors.Join(err, c.host.DeleteReplicaDir(key))
	}
	return nil
}

// dropAttempts deletes what an earlier recovery of the partition left when its controller died before it was recorded.
func (c *Controller) dropAttempts(p *Partition) error {
	keys, err := c.host.replicaKeys()
	if err != nil {
		return err
	}
	for _, k := range keys {
		c.mu.RLock()
		_, known := c.mu.byShard[k.Shard]
		c.mu.RUnlock()
		if known || k.Shard <= p.spec.Shard || c.host.claimed(k.Shard) != nil {
			continue
		}
		slots, slot, err := segment.OpenSlotFile(c.host.cfg.FS, c.host.replicaDir(k))
		if err != nil {
			continue // half made, or of somebody else: reported as an orphan when the node opens
		}
		if err := slots.Close(); err != nil {
			return err
		}
		if slot.Identity.Topic == p.spec.TopicID && slot.Identity.Partition == p.spec.Partition && slot.Identity.Key == k {
			if err := c.host.DeleteReplicaDir(k); err != nil {
				return err
			}
		}
	}
	return nil
}

// copyTo makes the files of the new group's one replica, durably: first the log, then the slot that makes it count.
func (p *Partition) copyTo(ctx context.Context, q *rebuildRequest) error {
	h := p.host
	spec := p.Spec()
	spec.Shard, spec.Replica = q.NewShard, q.NewReplica
	to := &Partition{host: h, spec: spec}
	to.settings.Store(&spec.Settings)
	r := newReplica(h, spec.key(), to)
	for _, step := range []func() error{
		func() error { return h.cfg.FS.RemoveAll(r.dir) },
		func() error { return h.cfg.FS.MkdirAll(r.dir) },
	} {
		if err := step(); err != nil {
			return fmt.Errorf("replication: %w", err)
		}
	}
	log := p.r.currentLog()
	if log.LastIndex() != q.LastIndex || log.LastTerm() != q.LastTerm {
		return fmt.Errorf("%w: its log ends at index %d, term %d now", ErrBusy, log.LastIndex(), log.LastTerm())
	}
	id := segment.Identity{Cluster: h.cfg.Node.Cluster, Topic: spec.TopicID, Partition: spec.Partition, Key: r.key}
	info, err := copyLog(ctx, log, q.LastIndex, h.tuned(to, h.segmentOptions(r, firstGeneration, id)))
	if err != nil {
		return err
	}
	if log.LastIndex() != q.LastIndex || log.LastTerm() != q.LastTerm || info.LastTerm != q.LastTerm {
		return fmt.Errorf("%w: its log has changed", ErrBusy)
	}
	slot := aloneSlot(q.NewShard, q.NewReplica, h.name, info.LastIndex, info.LastTerm, q.Term)
	slot.Generation, slot.BootID, slot.Clean = firstGeneration, h.bootID, true
	slot.Identity, slot.Created, slot.MarkOffset = id, h.now().UnixNano(), info.EndOffset
	slots, err := segment.CreateSlotFile(h.cfg.FS, r.dir, slot)
	if err != nil {
		return err
	}
	if err := slots.Close(); err != nil {
		return err
	}
	return h.cfg.FS.SyncDir(filepath.Dir(r.dir))
}

// aloneSlot is Raft's state of a group that goes on from an index with one member, for which everything up to there is committed.
func aloneSlot(shard, replica uint64, name string, index, lastTerm, term uint64) segment.Slot {
	members := map[uint64]string{replica: name}
	record, bootstrap := genesisRecord(shard, members), genesisBootstrap(members)
	record.Index, record.OnDiskIndex, record.Term, record.Membership.ConfigChangeId = index, index, max(lastTerm, genesisTerm), index
	return segment.Slot{
		Term: max(term, lastTerm, genesisTerm), Commit: index, Mark: index, Role: roleInitial,
		Snapshots: [][]byte{pb.MustMarshal(&record)}, Bootstrap: pb.MustMarshal(&bootstrap),
	}
}

// copyLog copies the entries of a log through one of them into an empty folder.
func copyLog(ctx context.Context, from *segment.Log, through uint64, o segment.Options) (info segment.ExtentInfo, err error) {
	extent, err := from.Extent(through)
	if err != nil {
		return info, err
	}
	defer func() { err = errors.Join(err, extent.Close()) }()
	info = extent.Info()
	im, err := segment.OpenImporter(o, info, nil, 0)
	if err != nil {
		return info, err
	}
	for {
		n, offset, length, more := im.Next()
		if !more {
			break
		}
		if err := copyRange(ctx, im, extent, n, offset, min(length, copyChunk)); err != nil {
			return info, errors.Join(err, im.Close())
		}
	}
	f, cp, err := foldLog(from, info.LastIndex)
	if err != nil {
		return info, errors.Join(err, im.Close())
	}
	c := segment.Checkpoint{Index: info.LastIndex, Term: info.LastTerm, Offset: info.EndOffset, Payload: f.encode(0)}
	if cp.Offset != c.Offset {
		return info, errors.Join(fmt.Errorf("%w: its batches end at %d, its log at %d", segment.ErrCorrupt, cp.Offset, c.Offset), im.Close())
	}
	if err := im.Finish(c); err != nil {
		return info, errors.Join(err, im.Close())
	}
	return info, nil
}

// copyChunk is how much is copied between two looks at the context. A frame that does not fit is asked for again with what follows.
const copyChunk = 4 * (maxMessageBytesMax + 4096)

func copyRange(ctx context.Context, im *segment.Importer, extent *segment.Extent, n int, offset, length int64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	reader, err := extent.Open(n, offset, length)
	if err != nil {
		return err
	}
	kept, err := im.ReadFrom(reader)
	if kept > 0 && isShort(err) {
		err = nil
	}
	return errors.Join(err, reader.Close())
}

func isShort(err error) bool { return errors.Is(err, io.ErrUnexpectedEOF) }

// foldLog folds a log through an entry, all of which counts as committed.
func foldLog(log *segment.Log, through uint64) (*fold, segment.Checkpoint, error) {
	f := newFold()
	cp, ok := log.Checkpoint()
	if ok && cp.Index <= through {
		if g, _, err := decodeFold(cp.Payload); err == nil {
			f = g
		} else {
			ok = false
		}
	}
	if !ok || cp.Index > through {
		cp = segment.Checkpoint{Index: log.FirstIndex() - 1, Offset: log.StartOffset()}
	}
	err := foldUpTo(log, f, &cp, through)
	return f, cp, err
}

// hasPeers says whether the group has, or may have, other voters.
func (r *replica) hasPeers() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.recordLocked()
	_, self := s.Membership.Addresses[r.key.Replica]
	return len(s.Membership.Addresses) > 1 || (len(s.Membership.Addresses) == 1 && !self) || r.mu.lastConfig > s.Index
}

// setAside quarantines a replica whose files are open and are left as they are. Its group is not started: it must not vote with a log that may
// be shorter than what it has acknowledged.
func (p *Partition) setAside(cause error) {
	p.r.mu.Lock()
	p.r.mu.cause, p.r.mu.overlay = cause, map[uint64]pb.Entry{}
	p.r.latched.Store(true)
	p.r.mu.Unlock()
	p.quarantine(cause)
}
