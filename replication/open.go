package replication

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	pb "github.com/lni/dragonboat/v4/raftpb"

	"github.com/billetlog/billet/segment"
)

var (
	errLostEntries = errors.New("replication: entries that were committed are missing")
	errLossyTail   = errors.New("replication: the machine went down under fsync interval: acknowledged records may be missing at the end")
	errReplay      = errors.New("replication: the journal's records could not be written into the files")
)

// firstGeneration is that of a replica that was never replaced by a snapshot.
const firstGeneration = 1

func (h *Host) segmentOptions(r *replica, generation uint64, id segment.Identity) segment.Options {
	o := segment.Options{
		FS: h.cfg.FS, Dir: generationDir(r.dir, generation), Identity: id, Generation: generation,
		MaxFrameBytes: maxMessageBytesMax + 4096, LossyTail: r.lazySync.Load(), Logger: h.logger, Now: h.cfg.Now,
	}
	if h.db.journal != nil {
		o.Fencer = h.db.journal
	}
	return o
}

// open opens the replica's files and brings the fold up to date.
func (p *Partition) open(create bool) error {
	h := p.host
	k := p.spec.key()
	h.mu.Lock()
	replay := h.mu.failed[k]
	h.mu.Unlock()
	if replay != nil {
		return fmt.Errorf("%w: %w", errReplay, replay)
	}
	r := newReplica(h, k, p)
	r.tune = func(o segment.Options) segment.Options { return h.tuned(p, o) }
	r.lazySync.Store(p.spec.Settings.Fsync == FsyncInterval)
	err := p.openFiles(r, 0)
	if errors.Is(err, fs.ErrNotExist) && create {
		if err = p.createFiles(r); err == nil {
			err = p.openFiles(r, 0)
		}
	}
	if err != nil {
		return err
	}
	p.r = r
	if err := p.loadFold(r.mu.log); err != nil {
		p.r = nil
		return errors.Join(err, r.closeFiles(false))
	}
	next, err := p.sweepGenerations(true)
	if err != nil {
		h.logger.Warn("old files of a replica stay", "partition", p.name(), "err", err)
		r.untidy.Store(true)
	}
	if next {
		p.intake.staged.Store(h.now().UnixNano())
	}
	h.db.replicas.Store(k, r)
	return nil
}

// createFiles makes an empty replica: first the log, then the slot that makes it count. A half-made one, left by a crash, is made again.
func (p *Partition) createFiles(r *replica) error {
	h := p.host
	start, slot := p.birth()
	id := segment.Identity{Cluster: h.cfg.Node.Cluster, Topic: p.spec.TopicID, Partition: p.spec.Partition, Key: r.key}
	if err := h.cfg.FS.RemoveAll(r.dir); err != nil {
		return fmt.Errorf("replication: %w", err)
	}
	if err := h.cfg.FS.MkdirAll(r.dir); err != nil {
		return fmt.Errorf("replication: %w", err)
	}
	log, err := segment.Create(h.tuned(p, h.segmentOptions(r, firstGeneration, id)), start)
	if err != nil {
		return err
	}
	if err := log.Close(true); err != nil {
		return err
	}
	slot.Generation, slot.BootID, slot.Clean = firstGeneration, h.bootID, true
	slot.Identity, slot.Created = id, h.now().UnixNano()
	slots, err := segment.CreateSlotFile(h.cfg.FS, r.dir, slot)
	if err != nil {
		return err
	}
	if err := slots.Close(); err != nil {
		return err
	}
	return h.cfg.FS.SyncDir(filepath.Dir(r.dir))
}

func (h *Host) tuned(p *Partition, o segment.Options) segment.Options {
	s := p.settings.Load()
	o.SegmentBytes, o.SegmentAge, o.IndexIntervalBytes = s.SegmentBytes, max(s.SegmentAge, 0), s.IndexIntervalBytes
	return o
}

// openFiles opens the slot and the log it names, and holds one against the other.
// durable is an index that is known to be durable besides what the slot says.
func (p *Partition) openFiles(r *replica, durable uint64) (err error) {
	h := p.host
	slots, slot, err := segment.OpenSlotFile(h.cfg.FS, r.dir)
	if err != nil {
		return err
	}
	var log *segment.Log
	defer func() {
		if err != nil {
			if log != nil {
				err = errors.Join(err, log.Close(false))
			}
			err = errors.Join(err, slots.Close())
		}
	}()
	want := segment.Identity{Cluster: h.cfg.Node.Cluster, Topic: p.spec.TopicID, Partition: p.spec.Partition, Key: r.key}
	if slot.Identity != want {
		return fmt.Errorf("%w: %s is of another partition", segment.ErrForeign, r.dir)
	}
	records, err := loadRecords(slot)
	if err != nil {
		return fmt.Errorf("%w: %w", segment.ErrCorrupt, err)
	}
	log, rec, err := segment.Open(h.tuned(p, h.segmentOptions(r, slot.Generation, want)), segment.OpenHints{DurableIndex: max(slot.Mark, durable)})
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w: %w", segment.ErrCorrupt, err) // the slot is there, so the log was
		}
		return err
	}
	if last := log.LastIndex(); slot.Commit > last && slot.Commit > newestRecord(records).Index {
		return fmt.Errorf("%w: %s ends at Raft index %d and %d was committed", errLostEntries, r.dir, last, slot.Commit)
	}
	p.reportRecovery(slot, log, rec)
	r.adopt(log, slots, slot, records)
	return nil
}

// adopt takes freshly opened files as the replica's.
func (r *replica) adopt(log *segment.Log, slots *segment.SlotFile, slot segment.Slot, records []pb.Snapshot) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.log, r.mu.slots, r.mu.slot, r.mu.records = log, slots, slot, records
	r.mu.state = pb.State{Term: slot.Term, Vote: slot.Vote, Commit: slot.Commit}
	if t := log.LastTerm(); t > slot.Term {
		// A vote in that term would have been durable before its first entry.
		r.mu.state.Term, r.mu.state.Vote = t, 0
	}
	r.term.Store(r.mu.state.Term)
	r.opened.Store(log.LastIndex())
	r.storedTo.Store(log.LastIndex())
	r.mu.cause, r.mu.overlay, r.mu.staged = nil, nil, nil
	r.reloadDue.Store(false)
	r.unsynced.Store(0)
	r.latched.Store(false)
}

func (p *Partition) reportRecovery(slot segment.Slot, log *segment.Log, rec segment.Recovery) {
	h := p.host
	e := Event{Topic: p.spec.Topic, Partition: p.spec.Partition, Offset: log.EndOffset()}
	if rec.CutBytes > 0 {
		e.Kind, e.Detail = EventTailCut, fmt.Sprintf("%d bytes behind the last whole batch were cut", rec.CutBytes)
		h.logger.Warn("a torn tail was cut", "partition", p.name(), "bytes", rec.CutBytes, "end", e.Offset)
		h.emit(e)
	}
	// Where the system does not tell one run of the machine from another, the worse is assumed.
	if p.settings.Load().Fsync == FsyncInterval && !slot.Clean && (h.bootID == "" || slot.BootID != h.bootID) {
		e.Kind = EventUnsyncedLost
		e.Detail = "the machine went down; records acknowledged within flush.ms before that may be gone"
		h.logger.Warn("the machine went down under fsync interval: the newest records may be gone", "partition", p.name(), "end", e.Offset)
		h.emit(e)
		p.lossy = true
	}
}

var errRunning = errors.New("replication: the replica is being worked on")

// restart opens the files of a replica that a full disk stopped and starts its group again. Readers keep what they hold.
func (p *Partition) restart(ctx context.Context) error {
	if !p.life.TryLock() {
		return errRunning // being removed, or its retention goes on
	}
	defer p.life.Unlock()
	state, cause := p.State()
	if state != StateFailed {
		return nil // removed or closed meanwhile
	}
	if err := p.host.stopRaft(ctx, p); err != nil {
		return err
	}
	r := p.r
	durable := r.currentLog().DurableIndex()
	if err := r.closeFiles(false); err != nil {
		p.host.logger.Debug("closing the files of a failed replica", "partition", p.name(), "err", err)
	}
	err := p.openFiles(r, durable)
	if !quarantines(err) { // also when they stay closed until the next try
		err = cmpError(err, p.syncJournaled())
	}
	if err == nil {
		err = p.loadFold(r.currentLog())
	}
	if err != nil {
		if quarantines(err) { // the journal may still have what is missing here: it is replayed when the host opens
			p.quarantine(err)
			return nil
		}
		return err
	}
	if !p.changeState(StateFailed, StateStarting, nil) {
		return nil
	}
	if err := p.startRaft(); err != nil {
		p.changeState(StateStarting, StateFailed, cause)
		return err
	}
	p.host.emit(Event{Kind: EventReplicaRestart, Topic: p.spec.Topic, Partition: p.spec.Partition})
	return nil
}

// syncJournaled makes durable in the files what may be durable in the journal alone, so that the journal can forget a replica whose files are to be
// closed, or are already. Else it would find them closed and go off.
func (p *Partition) syncJournaled() error {
	h, r := p.host, p.r
	if h.db.journal == nil {
		return nil
	}
	log, fsys := r.currentLog(), h.cfg.FS
	slots, _, err := segment.OpenSlotFile(fsys, r.dir) // which syncs it
	if err != nil {
		return err
	}
	if err := slots.Close(); err != nil {
		return err
	}
	all := log.Segments()
	r.mu.Lock()
	dir := generationDir(r.dir, r.mu.slot.Generation)
	r.mu.Unlock()
	file, err := fsys.Open(filepath.Join(dir, fmt.Sprintf("%020d.log", all[len(all)-1].BaseOffset)))
	if err != nil {
		return err
	}
	if err := errors.Join(file.SyncData(), file.Close()); err != nil {
		return err
	}
	h.db.journal.Forget(r.key)
	return nil
}

// leaveJournal does that for a replica whose group is stopped, so that nothing is written between the sync and the forgetting. Its files stay open.
func (p *Partition) leaveJournal() {
	if !p.life.TryRLock() {
		return // being removed already
	}
	defer p.life.RUnlock()
	if err := p.syncJournaled(); err != nil {
		p.host.logger.Debug("syncing the files of a replica that is stopped", "partition", p.name(), "err", err)
	}
}

// changeState changes the state if it is the expected one.
func (p *Partition) changeState(from, to PartitionState, cause error) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.state != from {
		return false
	}
	p.enterStateLocked(to, cause)
	return true
}

// quarantine takes a replica whose files are damaged out of service.
func (p *Partition) quarantine(err error) {
	err = fmt.Errorf("%w: %s: %w", ErrQuarantined, p.name(), err)
	p.mu.Lock()
	if p.mu.state != StateClosed {
		p.enterStateLocked(StateQuarantined, err)
	}
	p.mu.Unlock()
	p.host.logger.Error("a partition is quarantined: its files are kept as they are, all others go on", "partition", p.name(), "err", err)
	p.host.emit(Event{Kind: EventQuarantined, Topic: p.spec.Topic, Partition: p.spec.Partition, Err: err})
}

// close saves the fold and the slot and closes the files. dragonboat is gone by then.
func (p *Partition) close(clean bool) error {
	if clean {
		p.life.Lock() // whoever holds it has seen the host's context end
	} else if !p.life.TryLock() {
		return fmt.Errorf("%w: %s is still being started or stopped", ErrFailed, p.name())
	}
	defer p.life.Unlock()
	if p.r == nil {
		return nil
	}
	if clean && !p.r.latched.Load() {
		p.checkpoint(true)
	}
	return p.r.closeFiles(clean)
}

// closeFiles closes the log and the slot file; clean says that all is to be durable, so that the next open need not doubt it. Then the journal
// has nothing to add and forgets the replica, before its files are closed under it.
func (r *replica) closeFiles(clean bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var err error
	if clean && !r.latched.Load() {
		if err = r.settleLocked(); err == nil && r.host.db.journal != nil {
			r.host.db.journal.Forget(r.key)
		}
	}
	return errors.Join(err, r.mu.log.Close(false), r.mu.slots.Close())
}

// settleLocked makes the log durable, and then a slot that says so.
func (r *replica) settleLocked() error {
	if err := r.mu.log.Sync(); err != nil {
		return err
	}
	last := r.mu.log.LastIndex()
	s := r.mu.slot
	s.Term, s.Vote, s.Commit = r.mu.state.Term, r.mu.state.Vote, min(r.mu.state.Commit, last)
	s.Mark, s.Clean, s.BootID = last, true, r.host.bootID
	if _, err := r.mu.slots.Put(s); err != nil {
		return err
	}
	return r.mu.slots.Sync()
}

// PrepareReplica makes the files of a new replica, durably. What was there under its id is deleted: ids are handed out once, so it can only be
// what an earlier, failed attempt left.
func (h *Host) PrepareReplica(spec PartitionSpec) error {
	p := &Partition{host: h, spec: spec}
	p.settings.Store(&spec.Settings)
	return p.createFiles(newReplica(h, spec.key(), p))
}

// quarantines says whether an error at open concerns this replica's files alone.
func quarantines(err error) bool {
	return errors.Is(err, segment.ErrCorrupt) || errors.Is(err, segment.ErrForeign) || errors.Is(err, errLostEntries) ||
		errors.Is(err, fs.ErrNotExist) || errors.Is(err, errReplay)
}
