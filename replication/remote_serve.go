package replication

import (
	"context"
	"fmt"
	"time"

	"github.com/billetlog/billet/segment"
)

// standingHere is where a partition stands that this node leads. ErrNotLeader when it does not: its high watermark may be behind then.
func (p *Partition) standingHere() (standing, error) {
	epoch := p.Epoch()
	if epoch == 0 {
		return standing{}, p.notLeading()
	}
	return p.standingAt(epoch), nil
}

// standingAt is where a partition stands that leads in the epoch, or just led in it.
func (p *Partition) standingAt(epoch int32) standing {
	s := standing{start: p.StartOffset(), size: p.Size(), unsynced: p.Unsynced(), epoch: epoch}
	s.hw = max(p.HighWatermark(), s.start)
	s.end = max(p.EndOffset(), s.hw)
	return s
}

// ledFor finds the replica of this node that leads the partition which a request is for.
func (r *Router) ledFor(key wirePartition) (*Partition, standing, error) {
	p, err := r.replicaOf(key)
	if err != nil {
		return nil, standing{}, err
	}
	s, err := p.standingHere()
	return p, s, err
}

// serveFetch gives batches of a partition that this node leads. At the high watermark it waits until that moves from what the asking node knows, for
// as long as it wants.
func (r *Router) serveFetch(ctx context.Context, _ int32, payload []byte) ([]byte, error) {
	q, err := decodeFetch(payload)
	if err != nil {
		return nil, err
	}
	p, s, err := r.ledFor(q.wirePartition)
	if err == nil && q.wait > 0 && q.offset == s.hw && q.hw >= s.hw {
		r.awaitMove(ctx, p, q.wait, s)
		s, err = p.standingHere()
	}
	if err != nil {
		return r.fetchError(q.wirePartition, s, err), nil
	}
	return r.read(p, q, s), nil
}

func (r *Router) fetchError(key wirePartition, s standing, err error) []byte {
	a := fetchAnswer{wireResult: resultOf(err), standing: s}
	a.leader = r.leaderFor(key)
	return a.appendTo(nil)
}

// awaitMove waits until the partition stands elsewhere, or its state changes.
func (r *Router) awaitMove(ctx context.Context, p *Partition, wait time.Duration, known standing) {
	moved := make(chan struct{}, 1)
	defer p.Notify(moved)()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		if now, err := p.standingHere(); err != nil || known.moved(&now) {
			return
		}
		select {
		case <-moved:
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		case <-r.ctx.Done():
			return
		}
	}
}

// read takes the batches.
func (r *Router) read(p *Partition, q fetchRequest, s standing) []byte {
	a := fetchAnswer{standing: s}
	a.leader = wireLeader{r.self, s.epoch, p.spec.Replica}
	head := a.appendTo(make([]byte, 0, 256))
	n := len(head)
	if q.offset == s.hw {
		return head
	}
	if q.offset > s.hw && q.offset <= s.end {
		// Replicas learn what is committed from each other, and one that follows may be quicker to apply it.
		return r.fetchError(q.wirePartition, s, fmt.Errorf("%w: offset %d is not known to be committed yet", ErrBusy, q.offset))
	}
	c := p.NewCursor()
	defer c.Close()
	out, err := c.Read(head, q.offset, int(min(q.maxBytes, fetchBytesMax)))
	if err != nil {
		return r.fetchError(q.wirePartition, s, err)
	}
	if len(out) == n && q.offset > s.hw {
		return r.fetchError(q.wirePartition, s, fmt.Errorf("%w: offset %d, high watermark %d", segment.ErrUnavailable, q.offset, s.hw))
	}
	return out
}

// serveOffsets tells where a partition stands that this node leads, and finds the offset for a time.
func (r *Router) serveOffsets(_ context.Context, _ int32, payload []byte) ([]byte, error) {
	q, err := decodeOffsets(payload)
	if err != nil {
		return nil, err
	}
	a := offsetsAnswer{}
	p, s, err := r.ledFor(q.wirePartition)
	if err == nil && q.timed {
		a.offset, a.time, a.found, err = p.OffsetForTime(q.time)
	}
	a.wireResult, a.standing = resultOf(err), s
	if err != nil {
		a.leader = r.leaderFor(q.wirePartition)
	} else {
		a.leader = wireLeader{r.self, s.epoch, p.spec.Replica}
	}
	return a.encode(), nil
}

// serveWatch answers when one of the partitions stands elsewhere than the asking node knows, with all that do.
func (r *Router) serveWatch(ctx context.Context, _ int32, payload []byte) ([]byte, error) {
	q, err := decodeWatch(payload)
	if err != nil {
		return nil, err
	}
	a := watchAnswer{entries: r.news(&q)}
	if len(a.entries) > 0 || q.wait <= 0 {
		return a.encode(), nil
	}
	moved := make(chan struct{}, 1)
	for i := range q.entries {
		if p, err := r.replicaOf(q.entries[i].wirePartition); err == nil {
			defer p.Notify(moved)()
		}
	}
	timer := time.NewTimer(q.wait)
	defer timer.Stop()
	for {
		if a.entries = r.news(&q); len(a.entries) > 0 {
			return a.encode(), nil
		}
		select {
		case <-moved:
		case <-timer.C:
			return a.encode(), nil
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-r.ctx.Done():
			return nil, r.closedError()
		}
	}
}

// news lists the partitions of a watch that stand elsewhere than is known.
func (r *Router) news(q *watchRequest) []watchNews {
	var out []watchNews
	for i := range q.entries {
		e := &q.entries[i]
		p, s, err := r.ledFor(e.wirePartition)
		if err == nil && !e.known.moved(&s) {
			continue
		}
		n := watchNews{place: int32(i), code: resultOf(err).code, standing: s}
		if err != nil {
			n.leader = r.leaderFor(e.wirePartition)
		} else {
			n.leader = wireLeader{r.self, s.epoch, p.spec.Replica}
		}
		out = append(out, n)
	}
	return out
}
