package replication

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/lni/dragonboat/v4/client"

	"github.com/billetlog/billet/internal/batch"
	"github.com/billetlog/billet/segment"
)

// PartitionSpec says what a replica is.
type PartitionSpec struct {
	Topic     string
	TopicID   [16]byte
	Partition int32
	Shard     uint64
	Replica   uint64
	Internal  bool // not held back by the disk brake
	Settings  Settings
	// Join says that the replica was not in the group when that was made: its files begin empty, and the leader hands it its log.
	Join bool
	// Learner says that it is added without a vote at first. Like Join it counts when the files are made; they remember it.
	Learner bool

	members map[uint64]string // replica id to node name of a new group; nil: this replica alone
	start   int64             // records below it were deleted
}

func (s *PartitionSpec) key() segment.Key { return segment.Key{Shard: s.Shard, Replica: s.Replica} }

// PartitionState is what a local replica is doing.
type PartitionState int

// The states of a replica.
const (
	StateStarting    PartitionState = iota // no leader known, or its log is not caught up
	StateLeader                            // it leads and appends
	StateFollower                          // another node leads
	StateFailed                            // its disk failed; reads go on
	StateQuarantined                       // damage was found at open; it does not run
	StateClosed
)

// String names the state.
func (s PartitionState) String() string {
	return [...]string{"starting", "leader", "follower", "failed", "quarantined", "closed"}[s]
}

// Partition is the local replica of one partition. Its methods may be called from several goroutines at once.
type Partition struct {
	host     *Host
	spec     PartitionSpec
	settings atomic.Pointer[Settings]

	// life is held for writing while the replica is started, stopped or deleted, and for reading by what works on its files beside Raft.
	life   sync.RWMutex
	ctx    context.Context // ends when the partition is removed or the host closes
	cancel context.CancelFunc

	r       *replica // nil when its files could not be opened
	lossy   bool     // it lost its machine under fsync interval before it was opened
	session *client.Session
	machine atomic.Pointer[machine]

	intake intake // what is being brought up to date here

	floor    atomic.Int64             // records below it were deleted
	hw       atomic.Int64             // high watermark: the end of what is committed, as far as known here
	dirty    atomic.Bool              // it stands on the keeper's list
	changing sync.Mutex               // held while the membership is changed
	refused  atomic.Bool              // dragonboat took no proposal: who got ErrBusy is to be woken
	appended atomic.Int64             // bytes proposed since the last checkpoint
	leads    atomic.Int32             // append.epoch while append.leading, or 0: for who must not wait for the append lock
	inSync   atomic.Int32             // voters in sync, at the last look
	holding  atomic.Int32             // how many answers mu.held keeps
	voting   atomic.Pointer[[]uint64] // the voters, sorted
	damage   atomic.Pointer[error]    // the first that was found in the files

	// append is the append lock: batches get their offsets and are proposed under it, so that one proposes at a time.
	append struct {
		sync.Mutex
		leading   bool
		epoch     uint64 // the term led
		next      int64  // base offset of the next batch
		announced bool   // it was told that this node leads in epoch, and not yet that it does no longer
		handing   bool   // leadership is being handed over: nothing is taken and no epoch begins
	}

	mu struct {
		sync.Mutex
		state   PartitionState
		cause   error // of StateFailed or StateQuarantined
		applied uint64
		fold    *fold
		saved   uint64 // index of the newest checkpoint
		end     int64  // end offset of what is applied; the high watermark may be ahead while a replica replays

		captures []capture      // for snapshots whose last piece is on its way, oldest first
		pins     map[uint64]int // indexes of snapshots that other nodes are pulling

		waiters waiterQueue
		orphans []*waiter           // answered although their fate is open
		held    []heldAck           // committed, not answered
		drained bool                // somebody waits for the fate of the proposals in flight
		bytes   int64               // in flight
		pending map[int64]*inFlight // idempotent producers with batches in flight
		missing missing             // what they sent first, and was refused
		subs    map[int]chan<- struct{}
		nextSub int
		changed chan struct{} // closed and replaced when the state changes
	}
}

// Spec returns what the partition is, with its settings now.
func (p *Partition) Spec() PartitionSpec {
	s := p.spec
	s.Settings = *p.settings.Load()
	return s
}

// HighWatermark is the offset after the last committed record: what consumers may read.
func (p *Partition) HighWatermark() int64 { return p.hw.Load() }

// StartOffset is the first offset that is to be read: retention or DeleteRecords took what was below.
func (p *Partition) StartOffset() int64 {
	if p.r == nil {
		return 0
	}
	// A replica that is behind knows what was deleted before it has it.
	return max(p.r.currentLog().StartOffset(), min(p.floor.Load(), p.hw.Load()))
}

// EndOffset is the offset after the last stored record, committed or not.
func (p *Partition) EndOffset() int64 {
	if p.r == nil {
		return 0
	}
	return p.r.currentLog().EndOffset()
}

// Size is the bytes of the log's segments on disk.
func (p *Partition) Size() int64 {
	if p.r == nil {
		return 0
	}
	return p.r.currentLog().Size()
}

// Epoch is the term that this replica leads, or 0.
func (p *Partition) Epoch() int32 {
	return p.leads.Load()
}

// State tells what the replica is doing and, when it failed or is quarantined, why.
func (p *Partition) State() (PartitionState, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.state, p.mu.cause
}

// Writable waits until this node leads the partition. It returns at once with the reason when it never will.
func (p *Partition) Writable(ctx context.Context) error {
	return p.await(ctx, func(s PartitionState) bool { return s == StateLeader })
}

// led waits until the partition has a leader, here or elsewhere. Otherwise as Writable.
func (p *Partition) led(ctx context.Context) error {
	return p.await(ctx, func(s PartitionState) bool { return s == StateLeader || s == StateFollower })
}

func (p *Partition) await(ctx context.Context, holds func(PartitionState) bool) error {
	for {
		p.mu.Lock()
		state, cause, changed := p.mu.state, p.mu.cause, p.mu.changed
		p.mu.Unlock()
		switch {
		case holds(state):
			return nil
		case state == StateFailed || state == StateQuarantined:
			return cause
		case state == StateClosed:
			return p.whyStopped()
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%w: %s is %s: %w", ErrNotLeader, p.name(), state, context.Cause(ctx))
		}
	}
}

// Notify makes the partition send on ch, without ever blocking, whenever its high watermark or its state changes. Give ch a buffer of one.
func (p *Partition) Notify(ch chan<- struct{}) (cancel func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	id := p.mu.nextSub
	p.mu.nextSub++
	p.mu.subs[id] = ch
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.mu.subs, id)
	}
}

func (p *Partition) signalLocked() {
	for _, ch := range p.mu.subs {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}

// stopped says whether no call of setStateLocked but that to StateClosed changes the state any more.
func (s PartitionState) stopped() bool {
	return s == StateFailed || s == StateQuarantined || s == StateClosed
}

func (p *Partition) setStateLocked(s PartitionState, cause error) {
	if p.mu.state == StateClosed || (p.mu.state.stopped() && s != StateClosed) {
		return
	}
	p.enterStateLocked(s, cause)
}

func (p *Partition) enterStateLocked(s PartitionState, cause error) {
	p.mu.state, p.mu.cause = s, cause
	close(p.mu.changed)
	p.mu.changed = make(chan struct{})
	p.signalLocked()
}

func (p *Partition) name() string { return fmt.Sprintf("%s-%d", p.spec.Topic, p.spec.Partition) }

// SetSettings changes how the partition behaves from now on.
func (p *Partition) SetSettings(s Settings) {
	p.settings.Store(&s)
	if p.r != nil {
		p.r.setLazySync(s.Fsync == FsyncInterval)
		if err := p.r.currentLog().Configure(s.SegmentBytes, max(s.SegmentAge, 0)); err != nil {
			p.host.logger.Warn("the segments' size was not changed", "partition", p.name(), "err", err)
		}
	}
}

// reloadInstalled reads the fold of a log that was installed. It is called where dragonboat applies, and so never twice at once.
func (p *Partition) reloadInstalled() {
	if !p.r.reloadDue.Load() {
		return
	}
	log := p.r.currentLog()
	if err := p.loadFold(log); err != nil {
		p.r.latchFor(log, err)
		return
	}
	p.r.reloadDue.Store(false)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.captures = nil
	p.signalLocked()
}

// loadFold brings the fold to the newest point that is certainly committed: the checkpoint's, or the snapshot record's when that is newer.
func (p *Partition) loadFold(log *segment.Log) error {
	f, lastConfig := newFold(), uint64(0)
	cp, ok := log.Checkpoint()
	if ok {
		var err error
		if f, lastConfig, err = decodeFold(cp.Payload); err != nil {
			ok = false
			f, lastConfig = newFold(), 0
		}
	}
	if !ok {
		cp = segment.Checkpoint{Index: log.FirstIndex() - 1, Offset: log.StartOffset()}
	}
	p.r.mu.Lock()
	saved := newestRecord(p.r.mu.records)
	p.r.mu.Unlock()
	if saved.Index > cp.Index {
		if err := foldUpTo(log, f, &cp, saved.Index); err != nil {
			return err
		}
	}
	p.r.mu.Lock()
	p.r.mu.lastConfig = max(p.r.mu.lastConfig, lastConfig)
	p.r.mu.handed = startRecord(saved, cp, p.r.mu.lastConfig)
	p.r.removedTo.Store(p.r.mu.handed.Index)
	p.r.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.fold, p.mu.applied, p.mu.saved, p.mu.end = f, cp.Index, cp.Index, cp.Offset
	// What readers have seen stays to be seen while a replica that was started again replays.
	p.hw.Store(max(cp.Offset, min(p.hw.Load(), log.EndOffset())))
	return nil
}

// foldUpTo reads the log on from the checkpoint to index, which is committed. It happens when a checkpoint was lost.
func foldUpTo(log *segment.Log, f *fold, cp *segment.Checkpoint, index uint64) error {
	for next := max(cp.Index+1, log.FirstIndex()); next <= min(index, log.LastIndex()); {
		entries, err := log.Entries(nil, next, index+1, foldReadBytes)
		if err != nil && len(entries) == 0 {
			return err
		}
		for _, e := range entries {
			if e.Kind == segment.KindData {
				b := batch.Batch(e.Data)
				f.apply(b)
				cp.Offset = b.NextOffset()
			}
			cp.Index, cp.Term = e.Index, e.Term
			next = e.Index + 1
		}
	}
	if cp.Index < index {
		cp.Index = index
	}
	return nil
}

const foldReadBytes = 4 << 20

// checkpoint saves the fold, so that a restart replays only what comes after it. The log is durable up to there when it returns.
func (p *Partition) checkpoint(durable bool) {
	if p.r.latched.Load() || p.r.reloadDue.Load() {
		return
	}
	log := p.r.currentLog()
	p.mu.Lock()
	index, offset := p.mu.applied, p.mu.end
	if index <= p.mu.saved {
		p.mu.Unlock()
		return
	}
	p.r.mu.Lock()
	lastConfig := p.r.mu.lastConfig
	p.r.mu.Unlock()
	p.mu.fold.forgetEpochs(log.StartOffset())
	payload := p.mu.fold.encode(lastConfig)
	p.mu.Unlock()
	term, err := log.Term(index)
	if err == nil {
		err = log.SaveCheckpoint(segment.Checkpoint{Index: index, Term: term, Offset: offset, Payload: payload}, durable)
	}
	if errors.Is(err, segment.ErrCompacted) || errors.Is(err, segment.ErrUnavailable) {
		return // the log has no frame at genesis
	}
	if err != nil {
		p.r.latchFor(log, err)
		return
	}
	p.appended.Store(0)
	p.mu.Lock()
	p.mu.saved = max(p.mu.saved, index)
	p.mu.Unlock()
}

// onStored implements replicaHooks.
func (p *Partition) onStored(end int64, voids int) {
	if voids > 0 {
		p.host.elect(p, true)
	}
	p.host.markDirty(p)
	p.completeStored(end)
}

// onLatched implements replicaHooks.
func (p *Partition) onLatched(cause error) {
	p.host.spawn(func() { p.fail(cause) })
}

// fail takes the replica out of service after a disk error: everybody who waits is told, the group is stopped, reads go on. It comes back by
// itself when a write found the disk full. What a failed sync has lost is not known, so the files are opened again with the host only.
func (p *Partition) fail(cause error) {
	p.intake.stop(cause)
	if errors.Is(cause, errDamaged) {
		p.failDamaged(cause)
		return
	}
	full := isDiskFull(cause) && !errors.Is(cause, errSync)
	err := fmt.Errorf("%w: %s: %w", ErrFailed, p.name(), cause)
	if full {
		err = fmt.Errorf("%w: %s: %w", ErrDiskFull, p.name(), cause)
	}
	p.loseLeadership(fmt.Errorf("%w: %s: %w", ErrAmbiguous, p.name(), cause), StateFailed, err)
	p.host.tellReplicaGone(p)
	p.host.replicaFailed(p, err, full)
}
