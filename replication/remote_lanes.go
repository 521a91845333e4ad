package replication

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/billetlog/billet/internal/batch"
)

// The bounds of lanes at the leader.
const (
	laneKeep    = 30 * time.Second // a lane that rests is forgotten after that
	laneWait    = 2 * time.Second  // for a number that is missing
	laneAhead   = 1024             // numbers that wait for one
	lanesMax    = 1 << 16
	lanesSweep  = 1024 // lanes from which on resting ones are looked for
	lanesSweepT = 10 * time.Second
)

// codeLane says that a lane goes no further: the batch was not appended, and no later one of the lane will be. It is frozen, as the other codes are.
const codeLane uint16 = 1000

var errLane = errors.New("replication: the batches before it did not arrive")

// servedLanes are the lanes on which other nodes' batches arrive.
type servedLanes struct {
	mu struct {
		sync.Mutex
		all   map[laneKey]*servedLane
		swept time.Time
	}
}

type laneKey struct {
	node int32
	id   uint64
}

// servedLane lets batches pass one at a time, by their numbers.
type servedLane struct {
	next    uint64
	broken  bool
	waiting map[uint64]chan struct{} // closed when the turn comes, or the lane breaks
	used    time.Time
}

// enter waits for a batch's turn. With a nil error the caller has the turn until it calls leave.
func (l *servedLanes) enter(ctx context.Context, key laneKey, number, ended uint64) error {
	l.mu.Lock()
	if ended != 0 {
		if old := l.laneLocked(laneKey{key.node, ended}); old != nil { // what of it comes later is refused, too
			old.breakLocked()
		}
	}
	lane := l.laneLocked(key)
	if lane == nil {
		l.mu.Unlock()
		return fmt.Errorf("%w: too many lanes", ErrBusy)
	}
	if lane.broken || number < lane.next || number-lane.next > laneAhead || lane.waiting[number] != nil {
		lane.breakLocked()
		l.mu.Unlock()
		return errLane
	}
	turn := make(chan struct{})
	lane.waiting[number] = turn
	lane.wakeLocked()
	l.mu.Unlock()
	timer := time.NewTimer(laneWait)
	defer timer.Stop()
	select {
	case <-turn:
	case <-timer.C:
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if number == lane.next && !lane.broken && ctx.Err() == nil {
		return nil // also when it came in the last moment
	}
	lane.breakLocked()
	return errLane
}

// leave passes the turn on, unless the batch was refused: then those behind it are, too.
func (l *servedLanes) leave(key laneKey, number uint64, refused bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lane := l.mu.all[key]
	if lane == nil {
		return
	}
	if refused {
		lane.breakLocked()
	}
	delete(lane.waiting, number)
	lane.next = number + 1
	lane.used = time.Now()
	lane.wakeLocked()
}

func (l *servedLane) wakeLocked() {
	if turn := l.waiting[l.next]; turn != nil {
		select {
		case <-turn:
		default:
			close(turn)
		}
	}
}

// breakLocked lets nobody pass any more: what waits is refused.
func (l *servedLane) breakLocked() {
	if l.broken {
		return
	}
	l.broken = true
	for _, turn := range l.waiting {
		select {
		case <-turn:
		default:
			close(turn)
		}
	}
	clear(l.waiting)
}

// laneLocked finds or makes a lane; nil when there are too many.
func (l *servedLanes) laneLocked(key laneKey) *servedLane {
	now := time.Now()
	lane := l.mu.all[key]
	if lane == nil {
		if len(l.mu.all) >= lanesSweep && now.Sub(l.mu.swept) > lanesSweepT {
			l.mu.swept = now
			for k, old := range l.mu.all {
				if len(old.waiting) == 0 && now.Sub(old.used) > laneKeep {
					delete(l.mu.all, k)
				}
			}
		}
		if len(l.mu.all) >= lanesMax {
			return nil
		}
		lane = &servedLane{waiting: map[uint64]chan struct{}{}}
		l.mu.all[key] = lane
	}
	lane.used = now
	return lane
}

// serveAppend appends what another node forwards. Its bytes are not trusted: a batch is checked whole before it waits for its turn.
func (r *Router) serveAppend(ctx context.Context, from int32, payload []byte) ([]byte, error) {
	q, err := decodeAppend(payload)
	if err != nil {
		return nil, err
	}
	p, err := r.replicaOf(q.wirePartition)
	b := batch.Batch(q.batch)
	if err == nil {
		err = r.check(ctx, p, b)
	}
	key := laneKey{from, q.lane}
	if turn := r.lanes.enter(ctx, key, q.sequence, q.ended); turn != nil {
		a := appendAnswer{wireResult: resultOf(turn), offset: -1}
		if errors.Is(turn, errLane) {
			a.code = codeLane
		}
		return a.encode(), nil
	}
	if err != nil {
		r.lanes.leave(key, q.sequence, true)
		return r.appendAnswer(q.wirePartition, AppendResult{Offset: -1, Err: err}), nil
	}
	answer := make(chan AppendResult, 1)
	p.Append(b, AppendOptions{Acks: q.acks}, func(res AppendResult) { answer <- res })
	select {
	case res := <-answer:
		r.lanes.leave(key, q.sequence, res.Err != nil)
		return r.appendAnswer(q.wirePartition, res), nil
	default:
		r.lanes.leave(key, q.sequence, false)
	}
	select {
	case res := <-answer:
		return r.appendAnswer(q.wirePartition, res), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// check looks at a foreign batch. Only so many are at it at a time: a compressed one may take memory far beyond its size.
func (r *Router) check(ctx context.Context, p *Partition, b batch.Batch) error {
	select {
	case r.checks <- struct{}{}:
		defer func() { <-r.checks }()
		return p.checkForeign(b)
	case <-ctx.Done():
		return fmt.Errorf("%w: %s: %w", ErrBusy, p.name(), ctx.Err())
	}
}

func (r *Router) appendAnswer(key wirePartition, res AppendResult) []byte {
	a := appendAnswer{wireResult: resultOf(res.Err), offset: res.Offset, timestamp: res.Timestamp}
	if res.Err != nil {
		a.leader = r.leaderFor(key)
	}
	return a.encode()
}

// checkForeign holds a batch that comes from another node against all rules that a producer of this node keeps by itself.
func (p *Partition) checkForeign(b batch.Batch) error {
	s := p.settings.Load()
	if p.spec.Shard == metadataShard {
		return fmt.Errorf("%w: %s takes no records of other nodes", ErrInvalidBatch, p.name())
	}
	if len(b) > s.MaxMessageBytes {
		return fmt.Errorf("%w: %d bytes for %s, max.message.bytes is %d: send smaller batches or raise it", ErrTooLarge, len(b), p.name(), s.MaxMessageBytes)
	}
	times, err := b.Examine(batch.Limits{Strict: true})
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrInvalidBatch, p.name(), err)
	}
	if b.IsControl() {
		return fmt.Errorf("%w: %s: a control batch", ErrInvalidBatch, p.name())
	}
	return p.checkTimes(times, s, p.host.now().UnixMilli())
}
