package replication

import (
	"cmp"
	"errors"
	"fmt"
	"math"

	"github.com/lni/dragonboat/v4"

	"github.com/billetlog/billet/internal/batch"
)

// Acks says when an append is answered.
type Acks int8

// The kinds of acknowledgement, as in Kafka.
const (
	AcksAll    Acks = -1 // committed: a majority has it as durable as the topic's policy says
	AcksNone   Acks = 0  // at once; the offset is not known
	AcksLeader Acks = 1  // the leader has it as durable as the topic's policy says
)

// AppendOptions go with a batch.
type AppendOptions struct {
	// Acks is when done is called. The zero value is AcksNone.
	Acks Acks
	// Epoch, unless it is 0, is the only one in which the batch may be appended: in another it is ErrNotLeader. It is for who knows what the
	// log held when this replica began to lead, and whose batches make no sense after anybody else's.
	Epoch int32
}

// AppendResult is what became of a batch.
type AppendResult struct {
	Offset    int64 // of the first record; -1 with AcksNone or an error
	Timestamp int64 // log append time in milliseconds, or -1 when the topic keeps the records' own
	Err       error
}

// MaxIdempotentInFlight is how many batches an idempotent producer may have in flight to one partition.
const MaxIdempotentInFlight = producerWindow

// MaxInFlightBatches bounds the batches that are proposed and not yet applied in one partition.
const MaxInFlightBatches = proposalQueueMax - 4

// waiter is a batch that was proposed. It leaves the queue when it, or one after it, is applied.
type waiter struct {
	base, next int64
	epoch      uint64
	size       int
	stamp      int64
	firstStamp int64 // of the batch that this one repeats, or -1
	acks       Acks
	done       func(AppendResult)   // nil when answered
	also       []func(AppendResult) // duplicates that arrived while it was in flight
	rs         *dragonboat.RequestState
	fate       dragonboat.RequestResult // what dragonboat said, once decided
	decided    bool
	producer   int64
	generation int16 // the producer's epoch
	first      int32 // sequences
	last       int32
}

// poll takes what dragonboat has said of the proposal, if it has.
func (w *waiter) poll() (decided bool) {
	if !w.decided && w.rs != nil {
		select {
		case w.fate = <-w.rs.ResultC():
			w.decided = true
		default:
		}
	}
	return w.decided
}

// inFlight is what an idempotent producer has proposed and not yet seen applied.
type inFlight struct {
	epoch   int16
	last    int32
	waiters []*waiter
}

// waiterQueue is the batches in flight, oldest first.
type waiterQueue struct {
	q    []*waiter
	head int
}

func (q *waiterQueue) len() int { return len(q.q) - q.head }
func (q *waiterQueue) front() *waiter {
	if q.len() == 0 {
		return nil
	}
	return q.q[q.head]
}
func (q *waiterQueue) push(w *waiter) { q.q = append(q.q, w) }
func (q *waiterQueue) pop() *waiter {
	w := q.q[q.head]
	q.q[q.head] = nil
	q.head++
	if q.head == len(q.q) {
		q.q, q.head = q.q[:0], 0
	} else if q.head >= MaxInFlightBatches {
		n := copy(q.q, q.q[q.head:])
		clear(q.q[n:])
		q.q, q.head = q.q[:n], 0
	}
	return w
}

// dropLast takes the newest one off again.
func (q *waiterQueue) dropLast(w *waiter) bool {
	if q.len() == 0 || q.q[len(q.q)-1] != w {
		return false
	}
	q.q[len(q.q)-1] = nil
	q.q = q.q[:len(q.q)-1]
	return true
}

// Append gives the batch its offsets and proposes it. It waits for nobody's disk: the answer comes to done, exactly once, on another goroutine or
// before Append returns; done must not block. b is the caller's again when Append returns; its base offset, epoch and, where
// the topic says so, timestamp were written over. The batch must be valid (batch.Validate); what Append checks itself is size, timestamps
// and the producer's sequence. ErrBusy means that the in-flight budget is used up: try again when an earlier append is done, or
// when a channel given to Notify fires.
func (p *Partition) Append(b batch.Batch, o AppendOptions, done func(AppendResult)) {
	first := p.firstStamp(b)
	p.append.Lock()
	res, answered := p.appendLocked(b, o, done, first)
	if answered && res.Err != nil {
		p.missed(b, o.Acks, res.Err)
	}
	p.append.Unlock()
	if answered {
		done(res)
	}
}

func failed(err error) (AppendResult, bool) { return AppendResult{Offset: -1, Err: err}, true }

// firstStamp is the log append time of a batch that the log has already, -1 for others and where the topic keeps the records' own. It reads the log, so it is
// looked for before anybody waits; what is applied in between was appended just now.
func (p *Partition) firstStamp(b batch.Batch) int64 {
	if !p.settings.Load().LogAppendTime || b.ProducerID() == noProducer || b.BaseSequence() < 0 {
		return batch.NoTimestamp
	}
	p.mu.Lock()
	at, ok := p.mu.fold.producers[b.ProducerID()].find(b.ProducerEpoch(), b.BaseSequence(), b.LastSequence())
	p.mu.Unlock()
	if !ok || p.r == nil {
		return batch.NoTimestamp
	}
	_, stamp, ok, err := p.r.currentLog().MaxTimestamp(at, at+int64(b.LastOffsetDelta())+1)
	if !ok || err != nil {
		return batch.NoTimestamp
	}
	return stamp
}

func (p *Partition) appendLocked(b batch.Batch, o AppendOptions, done func(AppendResult), first int64) (AppendResult, bool) {
	if !p.append.leading {
		return failed(p.notLeading())
	}
	if o.Epoch != 0 && uint64(o.Epoch) != p.append.epoch {
		return failed(fmt.Errorf("%w: %s is led in epoch %d, and the batch is for epoch %d", ErrNotLeader, p.name(), p.append.epoch, o.Epoch))
	}
	s := p.settings.Load()
	if len(b) > s.MaxMessageBytes {
		return failed(fmt.Errorf("%w: %d bytes for %s, max.message.bytes is %d: send smaller batches or raise it", ErrTooLarge, len(b), p.name(), s.MaxMessageBytes))
	}
	if !p.spec.Internal {
		if err := p.host.disk.admit(len(b)); err != nil {
			return failed(fmt.Errorf("%w (%s)", err, p.name()))
		}
	}
	if o.Acks == AcksAll {
		if err := p.admitISR(s.MinInsyncReplicas); err != nil {
			return failed(err)
		}
	}
	stamp, err := p.stamp(b, s)
	if err != nil {
		return failed(err)
	}
	w := &waiter{
		base: p.append.next, next: p.append.next + int64(b.LastOffsetDelta()) + 1, epoch: p.append.epoch,
		size: len(b), stamp: stamp, firstStamp: first, acks: o.Acks, done: done, producer: noProducer,
	}
	if res, answered, err := p.enqueue(b, w, done); err != nil {
		return failed(err)
	} else if answered {
		return res, res.Offset >= 0
	}
	b.SetBaseOffset(w.base)
	b.SetLeaderEpoch(int32(p.append.epoch))
	rs, err := p.host.guard.propose(p.session, b)
	if err != nil {
		if errors.Is(err, dragonboat.ErrSystemBusy) { // there may be nothing in flight whose end would wake the caller
			p.refused.Store(true)
			p.host.markDirty(p)
		}
		if !p.unqueue(w) {
			return AppendResult{}, false // failed with all others meanwhile, and answered
		}
		return failed(p.proposeError(err))
	}
	p.append.next = w.next
	p.appended.Add(int64(len(b)))
	p.mu.Lock()
	w.rs = rs
	p.mu.Unlock()
	p.host.markDirty(p)
	if o.Acks == AcksNone {
		return AppendResult{Offset: -1, Timestamp: stamp}, true
	}
	return AppendResult{}, false
}

// stamp applies message.timestamp.*: it returns the log append time, or -1.
func (p *Partition) stamp(b batch.Batch, s *Settings) (int64, error) {
	now := p.host.now().UnixMilli()
	if s.LogAppendTime {
		b.SetLogAppendTime(now)
		return now, nil
	}
	return -1, p.checkTimes(batch.Times{Earliest: b.BaseTimestamp(), Latest: b.MaxTimestamp()}, s, now)
}

// enqueue checks the producer's sequence and the budget and puts w into the queue. answered with offset -1 means that the batch is in flight
// already and done was attached to it.
func (p *Partition) enqueue(b batch.Batch, w *waiter, done func(AppendResult)) (res AppendResult, answered bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if id := b.ProducerID(); id != noProducer && b.BaseSequence() >= 0 {
		epoch := b.ProducerEpoch()
		w.producer, w.generation, w.first, w.last = id, epoch, b.BaseSequence(), b.LastSequence()
		fly := p.mu.pending[id]
		known := p.mu.fold.producers[id]
		if dup := fly.find(epoch, w.first, w.last); dup != nil {
			dup.attach(done)
			return AppendResult{Offset: -1}, true, nil
		}
		if at, ok := known.find(epoch, w.first, w.last); ok {
			res = AppendResult{Offset: at, Timestamp: cmp.Or(max(w.firstStamp, 0), w.stamp)}
			if w.acks == AcksAll && p.holdLocked(p.mu.applied, []completion{{done, res}}) {
				p.host.isr.watch(p) // nothing may be applied whose end would look at it
				res.Offset = -1
			}
			return res, true, nil
		}
		lastEpoch, lastSeq, seen := newestSequence(fly, known)
		err := judge(id, epoch, w.first, seen, lastEpoch, lastSeq)
		if !seen {
			err = p.mu.missing.judge(id, epoch, w.first, p.host.now())
		}
		if err != nil {
			return res, false, fmt.Errorf("%w (%s)", err, p.name())
		}
	}
	if p.mu.waiters.len()+len(p.mu.held) >= MaxInFlightBatches || (p.mu.bytes > 0 && p.mu.bytes+int64(w.size) > p.host.cfg.MaxInFlightBytes) {
		return res, false, fmt.Errorf("%w: %s has %d batches, %d bytes in flight", ErrBusy, p.name(), p.mu.waiters.len(), p.mu.bytes)
	}
	if w.acks == AcksNone {
		w.done = nil
	}
	p.mu.waiters.push(w)
	p.mu.bytes += int64(w.size)
	if w.producer != noProducer {
		delete(p.mu.missing, w.producer)
		fly := p.mu.pending[w.producer]
		if fly == nil {
			fly = &inFlight{}
			p.mu.pending[w.producer] = fly
		}
		fly.epoch, fly.last = w.generation, w.last
		fly.waiters = append(fly.waiters, w)
	}
	return res, false, nil
}

func newestSequence(fly *inFlight, known *producerState) (epoch int16, last int32, seen bool) {
	switch {
	case fly != nil:
		return fly.epoch, fly.last, true
	case known != nil && known.n > 0:
		return known.epoch, known.batches[known.n-1].last, true
	}
	return 0, 0, false
}

func (f *inFlight) find(epoch int16, first, last int32) *waiter {
	if f == nil {
		return nil
	}
	for _, w := range f.waiters {
		if w.generation == epoch && w.first == first && w.last == last {
			return w
		}
	}
	return nil
}

func (w *waiter) attach(done func(AppendResult)) { w.also = append(w.also, done) }

// finish answers everybody who waits for w.
func (w *waiter) finish(res AppendResult, ready []completion) []completion {
	if w.done != nil {
		ready = append(ready, completion{w.done, res})
		w.done = nil
	}
	for _, done := range w.also {
		ready = append(ready, completion{done, res})
	}
	w.also = nil
	return ready
}

// forgetLocked settles the accounts of a waiter that left the queue.
func (p *Partition) forgetLocked(w *waiter) {
	p.mu.bytes -= int64(w.size)
	fly := p.mu.pending[w.producer]
	if w.producer == noProducer || fly == nil {
		return
	}
	for i, x := range fly.waiters {
		if x == w {
			fly.waiters = append(fly.waiters[:i], fly.waiters[i+1:]...)
			break
		}
	}
	if len(fly.waiters) == 0 {
		delete(p.mu.pending, w.producer)
	} else {
		newest := fly.waiters[len(fly.waiters)-1]
		fly.epoch, fly.last = newest.generation, newest.last
	}
}

// unqueue takes back a waiter whose proposal was refused; false when it was failed meanwhile.
func (p *Partition) unqueue(w *waiter) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.mu.waiters.dropLast(w) {
		return false
	}
	p.forgetLocked(w)
	return true
}

// applyLocked takes a batch that took effect: the fold, the high watermark, and those who wait for it or for one before it.
func (p *Partition) applyLocked(b batch.Batch, index uint64, ready []completion) []completion {
	p.mu.fold.apply(b)
	base, next, epoch := b.BaseOffset(), b.NextOffset(), b.LeaderEpoch()
	p.mu.end = next
	if next > p.hw.Load() { // it is not when a replica that was started again replays
		p.hw.Store(next)
	}
	for w := p.mu.waiters.front(); w != nil && w.base < next; w = p.mu.waiters.front() {
		p.mu.waiters.pop()
		p.forgetLocked(w)
		if w.base == base && int32(w.epoch) == epoch {
			answered := len(ready)
			ready = w.finish(AppendResult{Offset: base, Timestamp: w.stamp}, ready)
			if w.acks == AcksAll && p.holdLocked(index, ready[answered:]) {
				ready = ready[:answered]
			}
		} else {
			p.missedLocked(w)
			ready = w.finish(AppendResult{Offset: -1, Err: fmt.Errorf("%w: %s: another batch took offset %d", ErrNotLeader, p.name(), w.base)}, ready)
		}
	}
	return ready
}

// completeStored answers those who wait for the leader's own copy only.
func (p *Partition) completeStored(end int64) {
	var ready []completion
	p.mu.Lock()
	for _, w := range p.mu.waiters.q[p.mu.waiters.head:] {
		if w.next > end {
			break
		}
		if w.acks == AcksLeader && w.done != nil {
			ready = append(ready, completion{w.done, AppendResult{Offset: w.base, Timestamp: w.stamp}})
			w.done = nil
		}
	}
	p.mu.Unlock()
	for _, c := range ready {
		c.done(c.res)
	}
}

// failWaiters empties the queue and answers everybody with err. Proposals whose fate is open may still take effect in their epoch.
func (p *Partition) failWaiters(err error) {
	var ready []completion
	p.mu.Lock()
	for p.mu.waiters.len() > 0 {
		w := p.mu.waiters.pop()
		if p.mu.drained || !w.poll() {
			p.mu.orphans = append(p.mu.orphans, w)
		}
		p.forgetLocked(w)
		p.missedLocked(w)
		ready = w.finish(AppendResult{Offset: -1, Err: err}, ready)
	}
	p.signalLocked()
	p.mu.Unlock()
	for _, c := range ready {
		c.done(c.res)
	}
}

func (p *Partition) notLeading() error {
	state, cause := p.State()
	switch state {
	case StateFailed, StateQuarantined:
		return cause
	case StateClosed:
		return p.whyStopped()
	}
	return fmt.Errorf("%w: %s is %s", ErrNotLeader, p.name(), state)
}

func (p *Partition) proposeError(err error) error {
	switch {
	case errors.Is(err, dragonboat.ErrSystemBusy):
		return fmt.Errorf("%w: %s: %w", ErrBusy, p.name(), err)
	case errors.Is(err, dragonboat.ErrClosed), errors.Is(err, ErrClosed):
		return fmt.Errorf("%w: %s", ErrClosed, p.name())
	case errors.Is(err, dragonboat.ErrPayloadTooBig):
		return fmt.Errorf("%w: %s: %w", ErrTooLarge, p.name(), err)
	}
	return fmt.Errorf("%w: %s: %w", ErrNotLeader, p.name(), err)
}

// maxEpoch is the largest term that fits a batch's leader epoch.
const maxEpoch = math.MaxInt32
