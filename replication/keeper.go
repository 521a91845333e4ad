package replication

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/billetlog/billet/segment"
)

const (
	keeperTick      = 20 * time.Millisecond // while something is dirty
	checkpointBytes = 64 << 20              // appended to a partition between two checkpoints of its fold
	restartRoom     = 4 << 20               // free space below which a replica that a full disk stopped is left as it is
	idleMark        = time.Second           // after the last append the durable mark is written
	diskLook        = 500 * time.Millisecond
	keeperParallel  = 8
	snapshotTimeout = 10 * time.Second
)

// keeper does what must happen in time: it syncs under interval, saves checkpoints and marks, and watches free space. It sleeps while
// there is nothing to do. What may take long is left to housekeep.
type keeper struct {
	mu     sync.Mutex
	dirty  []*Partition // appended to since they were last found clean
	braked bool         // as the last event said
	wake   chan struct{}
}

// upkeep is what the keeper knows of a dirty partition. Only the keeper touches it.
type upkeep struct {
	lastEnd  int64     // last index at the last look
	lastMove time.Time // when it had changed
}

// markDirty puts p on the keeper's list.
func (h *Host) markDirty(p *Partition) {
	if p.dirty.Load() || !p.dirty.CompareAndSwap(false, true) {
		return
	}
	k := &h.keeper
	k.mu.Lock()
	k.dirty = append(k.dirty, p)
	k.mu.Unlock()
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

func (h *Host) keep() {
	state := make(map[*Partition]*upkeep)
	lastLook := h.now()
	timer := time.NewTimer(diskLook)
	defer timer.Stop()
	for {
		select {
		case <-h.ctx.Done():
			return
		case <-h.keeper.wake:
		case <-timer.C:
		}
		now := h.now()
		if now.Sub(lastLook) >= diskLook || now.Before(lastLook) {
			lastLook = now
			h.lookAtDisk()
		}
		busy := h.tendDirty(state, now)
		next := diskLook
		if busy {
			next = keeperTick
		}
		timer.Reset(next)
	}
}

// housekeep applies retention and brings back the replicas that a full disk stopped. One partition may hold it up for seconds, which must
// not hold up the others' syncs.
func (h *Host) housekeep() {
	last := h.now()
	timer := time.NewTicker(diskLook)
	defer timer.Stop()
	for {
		select {
		case <-h.ctx.Done():
			return
		case <-timer.C:
		}
		if !h.disk.braked.Load() && h.disk.free.Load() >= restartRoom {
			h.restartFull()
		}
		h.recordMemberships()
		for _, p := range h.Partitions() {
			p.tidy(h.now())
		}
		if now := h.now(); now.Sub(last) >= h.cfg.RetentionCheckInterval || now.Before(last) {
			last = now
			h.retainAll(now)
		}
	}
}

// takeDirty empties the keeper's list.
func (k *keeper) takeDirty() []*Partition {
	k.mu.Lock()
	defer k.mu.Unlock()
	list := k.dirty
	k.dirty = nil
	return list
}

// putBack adds those that are dirty still, and returns whether there are any.
func (k *keeper) putBack(list []*Partition) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.dirty = append(k.dirty, list...)
	return len(k.dirty) > 0
}

// tendDirty looks at every dirty partition; it returns whether any is left.
func (h *Host) tendDirty(state map[*Partition]*upkeep, now time.Time) bool {
	list := h.keeper.takeDirty()
	if len(list) == 0 {
		return false
	}
	var wg sync.WaitGroup
	slots := make(chan struct{}, keeperParallel)
	clean := make([]bool, len(list))
	for i, p := range list {
		u := state[p]
		if u == nil {
			u = &upkeep{lastMove: now, lastEnd: -1}
			state[p] = u
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			clean[i] = p.tend(u, now)
		})
	}
	wg.Wait()
	left := list[:0]
	for i, p := range list {
		if clean[i] {
			delete(state, p)
		} else {
			left = append(left, p)
		}
	}
	clear(list[len(left):])
	return h.keeper.putBack(left)
}

// tend does what is due for a dirty partition and returns true when nothing will be for a while.
func (p *Partition) tend(u *upkeep, now time.Time) (clean bool) {
	if !p.life.TryRLock() {
		return false // being started or stopped
	}
	defer p.life.RUnlock()
	if p.stopped() {
		p.dirty.Store(false)
		return true
	}
	if p.refused.Swap(false) {
		p.mu.Lock()
		p.signalLocked()
		p.mu.Unlock()
	}
	idle := p.noteDropped()
	log := p.r.currentLog()
	if end := int64(log.LastIndex()); end != u.lastEnd {
		u.lastEnd, u.lastMove = end, now
	}
	// Half of the bound, since a sync takes time itself and the keeper does not look all the time.
	if since, ok := p.r.unsyncedSince(); ok && now.Sub(since) >= p.settings.Load().FlushInterval/2 {
		p.r.syncLog()
	}
	if p.appended.Load() >= checkpointBytes {
		p.checkpoint(false)
	}
	if !idle || now.Sub(u.lastMove) < idleMark {
		return false
	}
	p.dirty.Store(false) // what is stored from here on puts it on the list again
	p.checkpoint(false)
	if log.DurableIndex() < log.LastIndex() {
		p.r.syncLog()
	}
	if err := log.Rest(); err != nil {
		p.r.latchFor(log, err)
	}
	p.r.commitSlot()
	return true
}

// lookAtDisk sets or lifts the brake, and tells of it: also when it was an append that set it.
func (h *Host) lookAtDisk() {
	h.disk.look()
	braked := h.disk.braked.Load()
	h.keeper.mu.Lock()
	changed := braked != h.keeper.braked
	h.keeper.braked = braked
	h.keeper.mu.Unlock()
	switch {
	case changed && braked:
		h.emit(Event{Kind: EventDiskFull})
	case changed:
		h.emit(Event{Kind: EventDiskFree})
		for _, p := range h.Partitions() { // whoever was refused may try again
			p.mu.Lock()
			p.signalLocked()
			p.mu.Unlock()
		}
	}
}

// retainAll rolls quiet segments and deletes expired ones, partition by partition.
func (h *Host) retainAll(now time.Time) {
	for _, p := range h.Partitions() {
		if h.ctx.Err() != nil {
			return
		}
		p.retain(h.ctx, now)
	}
}

// retain applies the topic's retention. Raft's first index moves first: what it may still need is never deleted.
func (p *Partition) retain(ctx context.Context, now time.Time) {
	if !p.life.TryRLock() {
		return // being started or stopped
	}
	defer p.life.RUnlock()
	if p.spec.Internal || p.stopped() {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)()
	s := p.settings.Load()
	log := p.r.currentLog()
	if _, err := log.RollIfOld(); err != nil {
		p.r.latchFor(log, err)
		return
	}
	deleted := min(p.floor.Load(), p.HighWatermark())
	if deleted == log.EndOffset() { // or the newest segment would stay for the records that come
		if err := log.Roll(); err != nil {
			p.r.latchFor(log, err)
			return
		}
	}
	rule := segment.Retention{BelowOffset: deleted, Bytes: s.RetentionBytes, Age: s.RetentionAge, Now: now, BelowIndex: ^uint64(0)}
	last, n := log.Expired(rule)
	if n == 0 {
		return
	}
	last = p.removable(last)
	if p.r.removedTo.Load() < last {
		if err := p.moveFirstIndex(ctx, last); err != nil {
			level := slog.LevelWarn
			if errors.Is(err, ErrNotLeader) {
				level = slog.LevelDebug
			}
			p.host.logger.Log(ctx, level, "retention waits: Raft's first index could not be moved", "partition", p.name(), "err", err)
			return
		}
	}
	rule.BelowIndex = p.r.removedTo.Load() + 1
	d, err := log.Retain(rule)
	if err != nil {
		p.r.latchFor(log, err)
		return
	}
	if d.Segments > 0 {
		p.host.emit(Event{Kind: EventRetention, Topic: p.spec.Topic, Partition: p.spec.Partition, Offset: log.StartOffset()})
	}
}

// moveFirstIndex makes Raft give up its entries up to index. Raft keeps its newest entry; when that is to go as well, a void one is
// proposed to stand behind it, which takes no offset.
func (p *Partition) moveFirstIndex(ctx context.Context, index uint64) error {
	bounded, cancel := context.WithTimeout(ctx, snapshotTimeout)
	defer cancel()
	err := p.raiseFirstIndex(bounded, index)
	if err != nil && bounded.Err() != nil && ctx.Err() == nil {
		return fmt.Errorf("%w: %s: Raft's first index did not move within %v", ErrBusy, p.name(), snapshotTimeout)
	}
	return err
}

func (p *Partition) raiseFirstIndex(ctx context.Context, index uint64) error {
	if p.r.currentLog().LastIndex() <= index {
		if err := p.proposeMarker(ctx); err != nil {
			return err
		}
	}
	err := p.host.guard.snapshot(ctx, p.spec.Shard, index, snapshotTimeout)
	if errors.Is(err, errRecorded) { // it comes with a record, and there is none to make
		if err = p.proposeMarker(ctx); err == nil {
			err = p.host.guard.snapshot(ctx, p.spec.Shard, index, snapshotTimeout)
		}
	}
	if err != nil {
		return err
	}
	for p.r.removedTo.Load() < index { // the step worker does it some time after the snapshot
		select {
		case <-p.r.moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// proposeMarker appends a void entry.
func (p *Partition) proposeMarker(ctx context.Context) error {
	if state, _ := p.State(); state != StateLeader { // what a follower proposes is dropped; the leader's marker comes here as well
		return fmt.Errorf("%w: %s is %s", ErrNotLeader, p.name(), state)
	}
	rs, err := p.host.guard.propose(p.session, voidMarker[1:])
	if err != nil {
		return err
	}
	for {
		p.mu.Lock()
		state, changed := p.mu.state, p.mu.changed
		p.mu.Unlock()
		if state != StateLeader { // dragonboat may never tell what became of it
			return fmt.Errorf("%w: %s is %s", ErrNotLeader, p.name(), state)
		}
		select {
		case res := <-rs.ResultC():
			if !res.Completed() {
				return fmt.Errorf("%w: %s", ErrNotLeader, p.name())
			}
			return nil
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
