package replication

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"github.com/billetlog/billet/segment"
)

// Readers find damage where they read: on a bad checksum, here or on another node that got the bytes from here, the segment is looked at at once. A
// reader may be wrong, or lie, so what is found good is left alone for a while.

const (
	suspectsMax     = 1024        // places that wait to be looked at
	suspectTellsMax = 16          // of what other nodes gave that are being told at a time
	lookRestMin     = time.Second // a segment that was found good is not read again within it,
	lookRestShare   = 10          // nor within this many times what reading it took
)

// scrubber is where readers leave what they found wrong.
type scrubber struct {
	wake chan struct{} // has room for one

	mu struct {
		sync.Mutex
		suspects map[suspect]struct{}
	}
	damaged atomic.Int64 // replicas in which damage was found
	tells   atomic.Int64 // under way to other nodes
}

// suspect is a place whose segment has to be looked at.
type suspect struct {
	p      *Partition
	offset int64
}

func newScrubber() *scrubber {
	s := &scrubber{wake: make(chan struct{}, 1)}
	s.mu.suspects = map[suspect]struct{}{}
	return s
}

// Suspect is told by who read the record with the offset, or the batch that begins there, that it is not what was written: the segment is verified
// at once. It never blocks.
func (p *Partition) Suspect(offset int64) {
	s := p.host.scrubber
	s.mu.Lock()
	if len(s.mu.suspects) < suspectsMax {
		s.mu.suspects[suspect{p, offset}] = struct{}{}
	}
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// suspectError looks at an error of reading the log: all but those that say where the log begins and ends are taken seriously.
func (p *Partition) suspectError(offset int64, err error) {
	for _, fine := range []error{segment.ErrCompacted, segment.ErrUnavailable, segment.ErrClosed, context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, fine) {
			return
		}
	}
	p.Suspect(offset)
}

// origin is the replica that bytes came from: one of this node, or of another one. The zero origin is none.
type origin struct {
	here           *Partition
	node           int32
	shard, replica uint64
}

// suspect has the replica look at the segment with the offset, wherever it is. It never blocks.
func (r *Router) suspect(at origin, offset int64) {
	switch {
	case at.here != nil:
		at.here.Suspect(offset)
	case at.node == r.self: // it led when the bytes were read
		if p := r.host.partitionOf(at.shard); p != nil && p.spec.Replica == at.replica {
			p.Suspect(offset)
		}
	case at.node > 0:
		s := r.host.scrubber
		if s.tells.Add(1) > suspectTellsMax || !r.spawn(func() {
			defer s.tells.Add(-1)
			r.host.tellSuspect(r.ctx, at.node, suspectRequest{at.shard, at.replica, offset})
		}) {
			s.tells.Add(-1)
		}
	}
}

// requestSuspect tells a node that bytes that it gave are not what they should be.
const requestSuspect requestKind = 34

type suspectRequest struct {
	Shard   uint64 `json:"shard"`
	Replica uint64 `json:"replica"`
	Offset  int64  `json:"offset"`
}

// tellSuspect tells a replica's node that it should look at a segment.
func (h *Host) tellSuspect(ctx context.Context, node int32, q suspectRequest) {
	ctx, cancel := context.WithTimeout(ctx, barrierTimeout)
	defer cancel()
	if _, err := h.call(ctx, node, requestSuspect, mustJSON(q)); err != nil {
		h.logger.Debug("a node was not told of damage in what it gave", "node", node, "err", err)
	}
}

func (h *Host) answerSuspect(_ context.Context, from int32, payload []byte) ([]byte, error) {
	var q suspectRequest
	if err := json.Unmarshal(payload, &q); err != nil {
		return nil, fmt.Errorf("replication: request of node %d: %w", from, err)
	}
	if p := h.partitionOf(q.Shard); p != nil && p.spec.Replica == q.Replica {
		p.Suspect(q.Offset)
	}
	return nil, nil
}

// take hands out what is suspected, by segment, and forgets it.
func (s *scrubber) take() map[suspect]struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[suspect]struct{}, len(s.mu.suspects))
	for at := range s.mu.suspects {
		if base, ok := at.p.segmentAt(at.offset); ok {
			out[suspect{at.p, base}] = struct{}{}
		}
	}
	clear(s.mu.suspects)
	return out
}

// segmentAt is the base offset of the segment that VerifySegment reads for an offset.
func (p *Partition) segmentAt(offset int64) (base int64, ok bool) {
	if p.r == nil {
		return 0, false
	}
	all := p.r.currentLog().Segments()
	n := sort.Search(len(all), func(i int) bool { return all[i].BaseOffset > offset })
	return all[max(n-1, 0)].BaseOffset, true
}

// inspect verifies what readers suspect, as fast as it can be read.
func (h *Host) inspect() {
	l := looks{rests: map[suspect]time.Time{}, later: map[suspect]struct{}{}}
	timer := time.NewTimer(lookRestMin)
	defer timer.Stop()
	for {
		select {
		case <-h.ctx.Done():
			return
		case <-h.scrubber.wake:
		case <-timer.C:
		}
		for at := range h.scrubber.take() {
			l.later[at] = struct{}{}
		}
		for _, at := range l.due(time.Now()) {
			began := time.Now()
			at.p.verify(h.ctx, at.offset, nil)
			l.rests[at] = time.Now().Add(max(lookRestMin, lookRestShare*time.Since(began)))
		}
		if len(l.later) > 0 {
			timer.Reset(lookRestMin)
		}
	}
}

// looks is which segments were looked at, and which still have to be.
type looks struct {
	rests map[suspect]time.Time // until when a segment is left alone
	later map[suspect]struct{}
}

// due takes out what has to be looked at now.
func (l *looks) due(now time.Time) (out []suspect) {
	for at, until := range l.rests {
		if !now.Before(until) || at.p.stopped() {
			delete(l.rests, at)
		}
	}
	for at := range l.later {
		if _, rests := l.rests[at]; !rests {
			out = append(out, at)
			delete(l.later, at)
		}
	}
	return out
}
