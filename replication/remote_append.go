package replication

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/billetlog/billet/internal/batch"
	"github.com/billetlog/billet/transport"
)

// sendLane keeps forwarded batches in order: each has a number, and the leader appends them by number whatever overtook what on the way. A lane
// ends when a number may be missing at the leader; what comes after goes on a new one.
type sendLane struct {
	id     uint64
	before uint64 // the lane that it replaces; the leader need not wait for that one's missing numbers
	next   uint64
	flying int
	used   time.Time
	broken bool
}

// sentBatch is a forwarded batch that is not answered yet, or whose answer waits for those before it.
type sentBatch struct {
	done     func(AppendResult)
	res      AppendResult
	answered bool
}

// laneIdle is how long a lane may rest and be used again: shorter than leaders keep it.
const laneIdle = laneKeep / 3

// lanesKept bounds the nodes of which a route remembers its last lane.
const lanesKept = 64

// Append gives the batch to whoever leads the partition. The contract is that of Partition.Append; of batches appended through one route in order
// none overtakes another. ErrNotLeader means that nobody is known to lead, or not yet: Writable waits for that.
func (r *Route) Append(b batch.Batch, o AppendOptions, done func(AppendResult)) {
	p := r.here.Load()
	switch {
	case p == nil:
		r.forward(b, o, done)
	case r.router.alone:
		p.Append(b, o, done)
	default:
		r.appendHere(p, b, o, done)
	}
}

// appendHere appends in a cluster. What was sent elsewhere is answered first: the leader takes any sequence of a producer that it does not know, so a
// batch must not get to it before one that was sent earlier and refused.
func (r *Route) appendHere(p *Partition, b batch.Batch, o AppendOptions, done func(AppendResult)) {
	r.near.Add(1)
	if r.away.Load() > 0 {
		r.near.Add(-1)
		done(AppendResult{Offset: -1, Err: fmt.Errorf("%w: %s: leadership has just come here", ErrBusy, r.name())})
		return
	}
	p.Append(b, o, func(res AppendResult) {
		r.near.Add(-1)
		if res.Err != nil {
			res.Err = r.elsewhere(res.Err)
		}
		done(res)
	})
}

// elsewhere translates the error of a single replica: what it cannot do, another one may, as long as there is the topic.
func (r *Route) elsewhere(err error) error {
	var final error
	for _, target := range []error{ErrFailed, ErrQuarantined, ErrUnknownTopic, ErrClosed} {
		if errors.Is(err, target) {
			final = target
		}
	}
	if final == nil || errors.Is(err, ErrAmbiguous) || r.router.ctx.Err() != nil {
		return err
	}
	r.retarget()
	r.mu.Lock()
	gone, alone := r.mu.gone, len(r.mu.replicas) < 2
	r.mu.Unlock()
	if gone != nil || (alone && (final == ErrFailed || final == ErrQuarantined)) {
		return err
	}
	return fmt.Errorf("%w: %s: %v", ErrNotLeader, r.name(), err)
}

// forward sends the batch to the node that leads.
func (r *Route) forward(b batch.Batch, o AppendOptions, done func(AppendResult)) {
	fail := func(err error) { done(AppendResult{Offset: -1, Err: err}) }
	r.mu.Lock()
	t := r.tenureLocked()
	if t == nil {
		err := r.mu.gone
		r.mu.Unlock()
		if err == nil {
			err = r.router.closedError()
		}
		if err == nil {
			r.resolve() // there may be nobody else who waits for news
			err = fmt.Errorf("%w: nobody is known to lead %s", ErrNotLeader, r.name())
		}
		fail(err)
		return
	}
	lane := t.lane
	if lane == nil || !lane.usable() {
		if len(r.mu.sent) > 0 || r.near.Load() > 0 {
			r.mu.Unlock()
			fail(fmt.Errorf("%w: %s: batches before it are not answered", ErrBusy, r.name()))
			return
		}
		lane = r.newLaneLocked(t)
	}
	peer := r.router.peer(t.leader.node)
	if peer == nil || !peer.admit(len(b)) {
		r.mu.Unlock()
		fail(fmt.Errorf("%w: too much is on its way to node %d", ErrBusy, t.leader.node))
		return
	}
	lane.used = time.Now()
	request := appendRequest{wirePartition: r.key, acks: o.Acks, lane: lane.id, sequence: lane.next, ended: lane.before, batch: b}
	lane.next++
	lane.flying++
	leader := t.leader
	sent := &sentBatch{done: done}
	r.mu.sent = append(r.mu.sent, sent)
	r.away.Add(1)
	r.mu.Unlock()
	size, count := len(b), int64(b.LastOffsetDelta())+1
	payload := request.encode(append(make([]byte, 0, 1+appendHeaderLen+size), byte(requestAppend)))
	started := r.router.spawn(func() {
		res := r.exchange(t, lane, leader, payload)
		peer.release(size)
		if res.Err == nil && o.Acks == AcksAll {
			r.committed(res.Offset + count)
		}
		r.answer(sent, res)
	})
	if !started {
		peer.release(size)
		r.landed(lane, true)
		r.answer(sent, AppendResult{Offset: -1, Err: fmt.Errorf("%w: host", ErrClosed)})
	}
}

// answer gives batches their answers in the order in which they were sent: a producer counts on that, since the leader remembers only so many of its
// batches. One goroutine at a time does it.
func (r *Route) answer(sent *sentBatch, res AppendResult) {
	r.mu.Lock()
	sent.res, sent.answered = res, true
	if r.mu.answering {
		r.mu.Unlock()
		return
	}
	r.mu.answering = true
	for len(r.mu.sent) > 0 && r.mu.sent[0].answered {
		first := r.mu.sent[0]
		r.mu.sent[0] = nil
		r.mu.sent = r.mu.sent[1:]
		r.away.Add(-1)
		r.mu.Unlock()
		first.done(first.res)
		r.mu.Lock()
	}
	r.mu.answering = false
	r.mu.Unlock()
}

func (l *sendLane) usable() bool {
	return !l.broken && (l.flying > 0 || time.Since(l.used) < laneIdle)
}

// newLaneLocked begins a lane. Nothing of the ones before it is unanswered; what of the last one to the same node still arrives there is refused.
func (r *Route) newLaneLocked(t *tenure) *sendLane {
	l := &sendLane{id: rand.Uint64() | 1, before: r.mu.lanes[t.leader.node]}
	if r.mu.lanes == nil || len(r.mu.lanes) > lanesKept {
		r.mu.lanes = map[int32]uint64{}
	}
	r.mu.lanes[t.leader.node] = l.id
	t.lane = l
	return l
}

// landed notes that a batch of the lane was answered, or that its number may never arrive.
func (r *Route) landed(lane *sendLane, lost bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	lane.flying--
	lane.broken = lane.broken || lost
}

// exchange sends one batch and waits for what became of it.
func (r *Route) exchange(t *tenure, lane *sendLane, leader wireLeader, payload []byte) AppendResult {
	ctx, cancel := context.WithTimeout(t.ctx, forwardTimeout)
	defer cancel()
	b, err := r.router.ask(ctx, leader.node, payload)
	if err != nil {
		r.landed(lane, true)
		return AppendResult{Offset: -1, Err: r.lost(t, leader, err)}
	}
	a, err := decodeAppendAnswer(b)
	if err != nil {
		r.landed(lane, true)
		return AppendResult{Offset: -1, Err: fmt.Errorf("%w: %s: node %d: %w", ErrAmbiguous, r.name(), leader.node, err)}
	}
	r.landed(lane, a.code != codeNone)
	switch err = a.err(leader.node); {
	case err == nil:
		return AppendResult{Offset: a.offset, Timestamp: a.timestamp}
	case a.code == codeLane:
		err = fmt.Errorf("%w: %s: one before it did not arrive: %w", ErrBusy, r.name(), err)
	case errors.Is(err, ErrNotLeader):
		r.refused(leader, a.leader)
	case errors.Is(err, ErrUnknownTopic), errors.Is(err, ErrClosed):
		// The other node's view may be behind, and its end is not this partition's.
		r.refused(leader, a.leader)
		err = fmt.Errorf("%w: %s: %v", ErrNotLeader, r.name(), err)
	case a.code == codeOther:
		err = fmt.Errorf("%w: %s: %w", ErrAmbiguous, r.name(), err)
	default:
		err = r.elsewhere(err)
	}
	return AppendResult{Offset: -1, Err: err}
}

// lost is the error of a batch that no answer came for. What is known to be as if it was not sent wraps nothing else: the end of a dial's
// context is not that of its producer's.
func (r *Route) lost(t *tenure, leader wireLeader, err error) error {
	switch {
	case errors.Is(err, transport.ErrQueueFull), errors.Is(err, transport.ErrBusy):
		return fmt.Errorf("%w: %s: node %d: %v", ErrBusy, r.name(), leader.node, err)
	case errors.Is(err, transport.ErrTooLarge):
		return fmt.Errorf("%w: %s: %w", ErrTooLarge, r.name(), err)
	case didNotRun(err):
		return fmt.Errorf("%w: %s: node %d: %v", ErrNotLeader, r.name(), leader.node, err)
	}
	if cause := context.Cause(t.ctx); cause != nil && errors.Is(cause, errTenure) {
		err = cause
	}
	return fmt.Errorf("%w: %s: no answer from node %d: %v", ErrAmbiguous, r.name(), leader.node, err)
}

// admit takes a batch into what is on its way to the node. One that is larger than the bound goes alone.
func (p *remotePeer) admit(size int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.batches > 0 && (p.mu.batches >= peerBatchesMax || p.mu.bytes+int64(size) > peerBytesMax) {
		return false
	}
	p.mu.batches++
	p.mu.bytes += int64(size)
	return true
}

func (p *remotePeer) release(size int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.batches--
	p.mu.bytes -= int64(size)
}
