package replication

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/lni/dragonboat/v4/raftio"
)

const (
	electors       = 4               // goroutines that take over leaderships
	barrierTimeout = 2 * time.Second // for one ReadIndex
	drainTimeout   = 5 * time.Second // for proposals in flight after a void or dropped one
	settleInterval = time.Millisecond
)

// elections is the queue of partitions whose leadership has to be looked at. A partition stands in it once, however often it is put there.
type elections struct {
	mu    sync.Mutex
	wake  *sync.Cond
	queue []*Partition
	state map[*Partition]*electionState
	over  bool
}

type electionState struct {
	queued, running bool
	again           bool              // put in while running
	drain           bool              // a proposal was void or dropped
	heard           raftio.LeaderInfo // the last event
}

func newElections() *elections {
	e := &elections{state: make(map[*Partition]*electionState)}
	e.wake = sync.NewCond(&e.mu)
	return e
}

func (e *elections) put(p *Partition, info *raftio.LeaderInfo, drain bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.state[p]
	if s == nil {
		s = &electionState{}
		e.state[p] = s
	}
	if info != nil {
		s.heard = *info
	}
	s.drain = s.drain || drain
	if s.running {
		s.again = true
		return
	}
	if !s.queued {
		s.queued = true
		e.queue = append(e.queue, p)
		e.wake.Signal()
	}
}

// take waits for a partition; ok is false when the host closes.
func (e *elections) take() (p *Partition, heard raftio.LeaderInfo, drain, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for len(e.queue) == 0 && !e.over {
		e.wake.Wait()
	}
	if e.over {
		return nil, heard, false, false
	}
	p = e.queue[0]
	e.queue[0] = nil
	e.queue = e.queue[1:]
	s := e.state[p]
	s.queued, s.running = false, true
	heard, drain = s.heard, s.drain
	s.drain = false
	return p, heard, drain, true
}

// done gives a partition back; retry puts it in again.
func (e *elections) done(p *Partition, retry bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.state[p]
	s.running = false
	if s.again || retry {
		s.again, s.queued = false, true
		e.queue = append(e.queue, p)
		e.wake.Signal()
		return
	}
	delete(e.state, p)
}

func (e *elections) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.over = true
	e.wake.Broadcast()
}

// LeaderUpdated implements dragonboat's listener. It lies on followers at times and says nothing of what is applied, so it only wakes an elector.
func (h *Host) LeaderUpdated(info raftio.LeaderInfo) {
	if p := h.partitionOf(info.ShardID); p != nil && p.spec.Replica == info.ReplicaID {
		h.elections.put(p, &info, false)
	}
}

func (h *Host) elect(p *Partition, drain bool) { h.elections.put(p, nil, drain) }

func (h *Host) elector() {
	for {
		p, heard, drain, ok := h.elections.take()
		if !ok {
			return
		}
		retry := p.settleLeadership(h.ctx, heard, drain)
		if retry {
			select { // a leader that is losing its lead answers at once: do not spin
			case <-time.After(settleInterval):
			case <-h.ctx.Done():
			}
		}
		h.elections.done(p, retry)
	}
}

// settleLeadership makes the appender agree with what Raft says. It returns true to be called again.
func (p *Partition) settleLeadership(ctx context.Context, heard raftio.LeaderInfo, drain bool) (retry bool) {
	leader, term, ok := p.host.guard.leader(p.spec.Shard)
	if term < heard.Term || (term == heard.Term && leader != heard.LeaderID) {
		// The event is ahead of what dragonboat publishes: a candidate and the leader that it becomes are of one term.
		return ctx.Err() == nil && !p.stopped()
	}
	p.append.Lock()
	leading, epoch := p.append.leading, p.append.epoch
	p.append.Unlock()
	self := ok && leader == p.spec.Replica
	switch {
	case !self:
		p.loseLeadership(fmt.Errorf("%w: %s: leadership was lost while the batch was in flight", ErrAmbiguous, p.name()), StateFollower, nil)
		return false
	case leading && epoch == term && !drain:
		return false
	case leading && epoch == term:
		p.drain(ctx)
	case leading:
		p.loseLeadership(fmt.Errorf("%w: %s: leadership changed while the batch was in flight", ErrAmbiguous, p.name()), StateStarting, nil)
	}
	return p.lead(ctx, term)
}

// lead begins to append in the given term, after everything of earlier terms is applied here: then the log's end is known, and the producers'
// sequences are.
func (p *Partition) lead(ctx context.Context, term uint64) (retry bool) {
	if p.stopped() || term > maxEpoch || p.handing() {
		return false
	}
	if p.hasOrphans(term) {
		return ctx.Err() == nil
	}
	barrier, cancel := context.WithTimeout(ctx, barrierTimeout)
	defer cancel()
	if err := p.host.guard.readIndex(barrier, p.spec.Shard, barrierTimeout); err != nil {
		return ctx.Err() == nil && !p.stopped()
	}
	leader, now, ok := p.host.guard.leader(p.spec.Shard)
	if !ok || leader != p.spec.Replica || now != term {
		return ok && leader == p.spec.Replica
	}
	end, ok := p.beginLeading(term)
	if ok {
		p.host.emit(Event{Kind: EventLeader, Topic: p.spec.Topic, Partition: p.spec.Partition, Offset: end})
		if len(p.voters()) > 1 {
			p.host.isr.watch(p)
		}
		p.host.leadership.tell(p)
	}
	return false
}

// beginLeading opens the appender, unless the partition was stopped meanwhile: whoever stops it closes the appender under the same locks.
func (p *Partition) beginLeading(term uint64) (end int64, ok bool) {
	p.append.Lock()
	defer p.append.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.state.stopped() || p.r.latched.Load() || p.append.handing {
		return 0, false
	}
	end = p.r.currentLog().EndOffset()
	p.append.leading, p.append.epoch, p.append.next, p.append.announced = true, term, end, true
	p.leads.Store(int32(term))
	p.inSync.Store(int32(len(p.voters()))) // a new leader doubts nobody at first
	p.setStateLocked(StateLeader, nil)
	return end, true
}

// hasOrphans says whether a proposal of the epoch that was given up may still take effect. The next batch of the epoch would get the same
// offset and be taken for it.
func (p *Partition) hasOrphans(epoch uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	left := p.mu.orphans[:0]
	for _, w := range p.mu.orphans {
		if w.epoch == epoch && !w.poll() {
			left = append(left, w)
		}
	}
	clear(p.mu.orphans[len(left):])
	p.mu.orphans = left
	return len(left) > 0
}

func (p *Partition) stopped() bool {
	s, _ := p.State()
	return s.stopped()
}

// loseLeadership stops appending and answers everybody in flight with err.
func (p *Partition) loseLeadership(err error, state PartitionState, cause error) {
	p.stopAppending(state, cause)
	p.failWaiters(err)
	p.failHeld(err)
	p.append.Lock()
	was := p.append.announced
	p.append.announced = false
	p.append.Unlock()
	if !was {
		return
	}
	if state != StateClosed {
		p.host.emit(Event{Kind: EventLeaderLost, Topic: p.spec.Topic, Partition: p.spec.Partition, Err: cause})
	}
	p.host.leadership.tell(p)
}

// stopAppending closes the appender and changes the state.
func (p *Partition) stopAppending(state PartitionState, cause error) {
	p.append.Lock()
	defer p.append.Unlock()
	p.append.leading = false
	p.leads.Store(0)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.setStateLocked(state, cause)
}

// drain waits until all that is in flight has met its fate, after one proposal was void or dropped and so made those behind it void.
func (p *Partition) drain(ctx context.Context) {
	p.stopAppending(StateStarting, nil)
	p.setDrained(true)
	defer p.setDrained(false)
	ctx, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	for {
		w, decided := p.oldestWaiter()
		if w == nil {
			return
		}
		if !decided {
			select {
			case fate := <-w.rs.ResultC():
				p.mu.Lock()
				w.fate, w.decided = fate, true
				p.mu.Unlock()
			case <-ctx.Done():
				p.failWaiters(fmt.Errorf("%w: %s: the proposal has no answer yet", ErrAmbiguous, p.name()))
				return
			}
		}
		p.failWaiter(w, p.fateError(w))
	}
}

// setDrained says who takes what dragonboat says of the proposals in flight: drain alone, or others.
func (p *Partition) setDrained(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.drained = on
}

// fateError is the answer for a batch whose fate is decided and that did not leave the queue by taking effect.
func (p *Partition) fateError(w *waiter) error {
	switch {
	case !w.fate.Completed() && !w.fate.Dropped():
		return fmt.Errorf("%w: %s: the proposal was given up", ErrAmbiguous, p.name())
	case p.r.latched.Load(): // what a latched replica applies is told to nobody, and may be on its disk
		return fmt.Errorf("%w: %s: the replica failed", ErrAmbiguous, p.name())
	}
	return fmt.Errorf("%w: %s: the batch was not appended", ErrNotLeader, p.name())
}

func (p *Partition) oldestWaiter() (w *waiter, decided bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w = p.mu.waiters.front()
	return w, w != nil && w.decided
}

// failWaiter answers w with err if it is still the oldest in flight. It was applied without effect, or never: what took effect was popped by then.
func (p *Partition) failWaiter(w *waiter, err error) {
	p.mu.Lock()
	if p.mu.waiters.front() != w {
		p.mu.Unlock()
		return
	}
	p.mu.waiters.pop()
	p.forgetLocked(w)
	p.missedLocked(w)
	ready := w.finish(AppendResult{Offset: -1, Err: err}, nil)
	p.signalLocked()
	p.mu.Unlock()
	for _, c := range ready {
		c.done(c.res)
	}
}

// noteDropped looks whether the oldest proposal was dropped, as happens while leadership is handed over: no void entry tells of that.
// Nobody is answered before the appender is closed: a producer that sends the batch again must not find those behind it in flight.
func (p *Partition) noteDropped() (idle bool) {
	p.mu.Lock()
	w := p.mu.waiters.front()
	// Completed after it took effect is not in the queue any more; completed and still there means void.
	undone := w != nil && !p.mu.drained && w.poll()
	p.mu.Unlock()
	if undone {
		p.host.elect(p, true)
	}
	return w == nil
}
