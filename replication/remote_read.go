package replication

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// canRead says whether a replica that does not lead can be read. One that is damaged is left alone: the leader has all of it, or is replaced.
func canRead(p *Partition) bool {
	if p == nil || p.r == nil || p.Damage() != nil {
		return false
	}
	s, _ := p.State()
	return s == StateLeader || s == StateFollower || s == StateStarting
}

// source is the replica here to read from, nil to read from the leader elsewhere. With local it may be one that does not lead.
func (r *Route) source(local bool) *Partition {
	if p := r.here.Load(); p != nil || !local {
		return p
	}
	r.mu.Lock()
	p, at, known := r.mu.local, r.mu.at, r.mu.known
	r.mu.Unlock()
	if !canRead(p) || (known && p.HighWatermark() < at.start) { // all that it has was deleted meanwhile
		return nil
	}
	return p
}

// StartOffset is the first offset that is kept, as last heard from the leader.
func (r *Route) StartOffset() int64 { return r.startOffset(false) }

func (r *Route) startOffset(local bool) int64 {
	if p := r.source(local); p != nil {
		return p.StartOffset()
	}
	at, _ := r.standing()
	return at.start
}

// HighWatermark is the offset after the last committed record, as last heard from the leader.
func (r *Route) HighWatermark() int64 { return r.highWatermark(false) }

func (r *Route) highWatermark(local bool) int64 {
	if p := r.source(local); p != nil {
		return p.HighWatermark()
	}
	at, _ := r.standing()
	return at.hw
}

// EndOffset is the offset after the last stored record, as last heard from the leader.
func (r *Route) EndOffset() int64 { return r.endOffset(false) }

func (r *Route) endOffset(local bool) int64 {
	if p := r.source(local); p != nil {
		return p.EndOffset()
	}
	at, _ := r.standing()
	return at.end
}

// Current says whether the offsets are those of a leading replica on this node: exact at any time. Elsewhere they are what was heard last; with a channel
// of Notify they follow the leader's, and Refresh asks for them.
func (r *Route) Current() bool { return r.here.Load() != nil }

// Known says whether the offsets are known at all.
func (r *Route) Known() bool {
	if r.Current() {
		return true
	}
	_, known := r.standing()
	return known
}

// Refresh asks the leader where the partition stands, and waits for a leader as long as ctx allows.
func (r *Route) Refresh(ctx context.Context) error {
	_, err := r.offsets(ctx, offsetsRequest{wirePartition: r.key}, func(*Partition) (offsetsAnswer, error) { return offsetsAnswer{}, nil })
	return err
}

// OffsetForTime returns the first committed record whose timestamp, in milliseconds, is ts or later; ok is false when there is none.
func (r *Route) OffsetForTime(ctx context.Context, ts int64) (offset, timestamp int64, ok bool, err error) {
	return r.offsetForTime(ctx, ts, false)
}

func (r *Route) offsetForTime(ctx context.Context, ts int64, local bool) (offset, timestamp int64, ok bool, err error) {
	if p := r.source(local); p != nil {
		return p.OffsetForTime(ts)
	}
	a, err := r.offsets(ctx, offsetsRequest{wirePartition: r.key, timed: true, time: ts}, func(p *Partition) (a offsetsAnswer, err error) {
		a.offset, a.time, a.found, err = p.OffsetForTime(ts)
		return a, err
	})
	return a.offset, a.time, a.found, err
}

// offsets asks whoever leads, this node's replica or another node, until one answers or ctx ends.
func (r *Route) offsets(ctx context.Context, q offsetsRequest, here func(*Partition) (offsetsAnswer, error)) (offsetsAnswer, error) {
	for {
		if p := r.here.Load(); p != nil {
			return here(p)
		}
		err := r.Writable(ctx)
		if err != nil {
			return offsetsAnswer{}, err
		}
		r.mu.Lock()
		t := r.tenureLocked()
		r.mu.Unlock()
		if t == nil {
			continue
		}
		a, err := r.askOffsets(ctx, t, q)
		if err == nil || !again(err) {
			return a, err
		}
		if !pause(ctx, retryPause) {
			return a, fmt.Errorf("%w: %w", err, ctx.Err())
		}
	}
}

// again says whether a question may find an answer elsewhere, or later.
func again(err error) bool { return errors.Is(err, ErrNotLeader) || errors.Is(err, ErrBusy) }

func (r *Route) askOffsets(ctx context.Context, t *tenure, q offsetsRequest) (a offsetsAnswer, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	defer context.AfterFunc(t.ctx, cancel)()
	leader := r.leaderNow(t)
	b, err := r.ask(ctx, leader, append([]byte{byte(requestOffsets)}, q.encode()...))
	if err != nil {
		return a, err
	}
	if a, err = decodeOffsetsAnswer(b); err != nil {
		return a, err
	}
	if err := r.answered(leader, &a.wireResult); err != nil {
		return a, err
	}
	r.learn(a.standing)
	return a, nil
}

// leaderNow is the leader of a tenure in its newest epoch.
func (r *Route) leaderNow(t *tenure) wireLeader {
	r.mu.Lock()
	defer r.mu.Unlock()
	return t.leader
}

// ask sends a question that can be asked again elsewhere: that no answer came is ErrNotLeader.
func (r *Route) ask(ctx context.Context, leader wireLeader, request []byte) ([]byte, error) {
	b, err := r.router.ask(ctx, leader.node, request)
	if err == nil {
		return b, nil
	}
	if err := r.router.closedError(); err != nil {
		return nil, err
	}
	r.retarget()
	return nil, fmt.Errorf("%w: %s: node %d: %v", ErrNotLeader, r.name(), leader.node, err)
}

// answered is the error of an answer to a question. It follows the hint of a node that does not lead.
func (r *Route) answered(leader wireLeader, res *wireResult) error {
	err := res.err(leader.node)
	if err == nil {
		return nil
	}
	if errors.Is(err, ErrNotLeader) || errors.Is(err, ErrUnknownTopic) || errors.Is(err, ErrClosed) {
		r.refused(leader, res.leader)
		return fmt.Errorf("%w: %s: %v", ErrNotLeader, r.name(), err)
	}
	return err
}

// Size is the bytes of the log's segments on disk, as last heard from the leader.
func (r *Route) Size() int64 {
	if p := r.here.Load(); p != nil {
		return p.Size()
	}
	at, _ := r.standing()
	return at.size
}

// Unsynced is the age of the oldest record that is acknowledged and not durable at the leader, as last heard.
func (r *Route) Unsynced() time.Duration {
	if p := r.here.Load(); p != nil {
		return p.Unsynced()
	}
	at, _ := r.standing()
	return at.unsynced
}

// LocalRoute is a Route whose reading side prefers this node's replica, whether it leads or not. Its high watermark may lag behind the leader's by a
// heartbeat. Where there is no replica, or none that can be read, it reads as the Route does.
type LocalRoute struct{ *Route }

// ReadLocal returns the route with reads from this node's replica.
func (r *Route) ReadLocal() LocalRoute { return LocalRoute{r} }

// StartOffset is the first offset that the replica keeps.
func (r LocalRoute) StartOffset() int64 { return r.startOffset(true) }

// HighWatermark is the offset after the last record that the replica knows to be committed.
func (r LocalRoute) HighWatermark() int64 { return r.highWatermark(true) }

// EndOffset is the offset after the last record that the replica has.
func (r LocalRoute) EndOffset() int64 { return r.endOffset(true) }

// Known is true where there is a replica to read.
func (r LocalRoute) Known() bool { return r.source(true) != nil || r.Route.Known() }

// Refresh does nothing where there is a replica to read.
func (r LocalRoute) Refresh(ctx context.Context) error {
	if r.source(true) != nil {
		return nil
	}
	return r.Route.Refresh(ctx)
}

// OffsetForTime finds the record in the replica.
func (r LocalRoute) OffsetForTime(ctx context.Context, ts int64) (offset, timestamp int64, ok bool, err error) {
	return r.offsetForTime(ctx, ts, true)
}

// Notify tells of changes of the replica.
func (r LocalRoute) Notify(ch chan<- struct{}) (cancel func()) { return r.notify(ch, true) }

// NewCursor reads the replica.
func (r LocalRoute) NewCursor() *RouteCursor { return &RouteCursor{route: r.Route, local: true} }
