package replication

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/billetlog/billet/internal/batch"
	"github.com/billetlog/billet/segment"
)

// RouteCursor reads a partition's committed batches in order, from a replica on this node or from the leader elsewhere, of which it reads ahead a
// little. Read and Close are for one goroutine at a time.
type RouteCursor struct {
	route *Route
	local bool // prefer this node's replica

	near *Cursor // into the replica here
	of   *Partition
	gave origin // what the last Read returned

	mu struct {
		sync.Mutex
		chunks   []fetched
		err      error     // what the last fetch came to
		errAt    int64     // and where it was
		errUntil time.Time // it is not tried again before
		flight   *fetchFlight
	}
}

// fetched is whole batches that arrived.
type fetched struct {
	from int64 // offset that was asked for
	next int64 // offset after the last one
	data []byte
	by   origin
}

// fetchFlight is a fetch under way.
type fetchFlight struct {
	from   int64
	cancel context.CancelFunc
	done   chan struct{}
}

// NewCursor makes a cursor. It costs nothing before its first Read; Close frees what it holds.
func (r *Route) NewCursor() *RouteCursor { return &RouteCursor{route: r} }

// Read appends to dst whole batches beginning with the one that contains offset, as Cursor.Read does. It never waits for the network: when the
// batches have to come from another node and have not arrived, it returns dst as it is, and channels of Notify are told when they have. Wait waits
// for that.
func (c *RouteCursor) Read(dst []byte, offset int64, maxBytes int) ([]byte, error) {
	p := c.route.source(c.local)
	if p != nil && p != c.route.here.Load() && offset > p.HighWatermark() {
		if offset <= p.EndOffset() {
			return dst, nil
		}
		p = nil // it is behind, or new: what it lacks, and whether that is there at all, the leader knows
	}
	if p == nil {
		c.closeNear()
		return c.readFar(dst, offset, maxBytes)
	}
	c.forgetFar()
	if c.near == nil || c.of != p {
		c.closeNear()
		c.near, c.of = p.NewCursor(), p
	}
	c.gave = origin{here: p}
	out, err := c.near.Read(dst, offset, maxBytes)
	if err != nil && !c.route.router.alone {
		err = c.route.elsewhere(err)
		if again(err) {
			return dst, nil
		}
	}
	return out, err
}

// Suspect is told by who decodes what the last Read returned that the record with the offset, or the batch that begins there, is not what was written:
// the replica that gave it looks at its segment, on whichever node that is, and what was read ahead is asked for again. It never blocks.
func (c *RouteCursor) Suspect(offset int64) {
	c.route.router.suspect(c.gave, offset)
	c.forgetFar()
}

func (c *RouteCursor) closeNear() {
	if c.near != nil {
		c.near.Close()
		c.near, c.of = nil, nil
	}
}

// readFar takes from what has arrived, and sees to it that more comes.
func (c *RouteCursor) readFar(dst []byte, offset int64, maxBytes int) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seekLocked(offset)
	next := offset
	if len(c.mu.chunks) > 0 {
		var err error
		if dst, next, err = c.takeLocked(dst, offset, maxBytes); err != nil {
			c.resetLocked()
			return dst, err
		}
	} else if err := c.mu.err; err != nil && c.mu.errAt == offset {
		c.mu.err = nil
		if !again(err) {
			return dst, err
		}
	}
	c.fetchLocked(next)
	return dst, nil
}

// seekLocked drops what does not help to read on at offset.
func (c *RouteCursor) seekLocked(offset int64) {
	for len(c.mu.chunks) > 0 && c.mu.chunks[0].next <= offset {
		c.dropLocked()
	}
	if len(c.mu.chunks) > 0 && offset < c.mu.chunks[0].from {
		c.resetLocked()
	}
	if f := c.mu.flight; f != nil && len(c.mu.chunks) == 0 && f.from != offset {
		c.resetLocked()
	}
}

func (c *RouteCursor) dropLocked() {
	c.route.router.ahead.Add(-int64(len(c.mu.chunks[0].data)))
	c.mu.chunks[0] = fetched{}
	c.mu.chunks = c.mu.chunks[1:]
}

// resetLocked drops all, what is under way included.
func (c *RouteCursor) resetLocked() {
	for len(c.mu.chunks) > 0 {
		c.dropLocked()
	}
	c.mu.chunks = nil
	if f := c.mu.flight; f != nil {
		f.cancel()
		c.mu.flight = nil
	}
	c.mu.err = nil
}

func (c *RouteCursor) forgetFar() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.mu.chunks) > 0 || c.mu.flight != nil {
		c.resetLocked()
	}
}

// takeLocked appends batches from offset on: as many as fit, and at least one.
func (c *RouteCursor) takeLocked(dst []byte, offset int64, maxBytes int) (_ []byte, next int64, err error) {
	chunk := &c.mu.chunks[0]
	data, taken := chunk.data, 0
	c.gave = chunk.by
	next = offset
	for len(data) > 0 {
		b, rest, err := batch.Split(data, 0)
		if err != nil {
			return dst, offset, fmt.Errorf("%s at %d, from another node: %w", c.route.name(), offset, err)
		}
		if b.NextOffset() > offset {
			if taken > 0 && taken+len(b) > maxBytes {
				break
			}
			dst = append(dst, b...)
			taken += len(b)
			next = b.NextOffset()
		}
		data = rest
	}
	if taken == 0 || len(data) == 0 {
		next = chunk.next
		c.dropLocked()
	}
	return dst, next, nil
}

// fetchLocked asks for what follows, unless that is under way or enough has arrived. At the high watermark the leader is asked to wait.
func (c *RouteCursor) fetchLocked(next int64) {
	if len(c.mu.chunks) > 0 {
		next = c.mu.chunks[len(c.mu.chunks)-1].next
	}
	r := c.route
	if c.mu.flight != nil || len(c.mu.chunks) > 1 || time.Now().Before(c.mu.errUntil) {
		return
	}
	r.mu.Lock()
	t := r.tenureLocked()
	r.mu.Unlock()
	if t == nil {
		return // Notify tells of the next leader
	}
	q := fetchRequest{wirePartition: r.key, offset: next, maxBytes: fetchBytes}
	peer := r.router.peer(r.leaderNow(t).node)
	if at, known := r.standing(); known && at.hw == next {
		if !peer.takePoll() {
			return // the watch tells when there is more
		}
		q.hw, q.wait = at.hw, waitMax
	}
	if r.router.ahead.Load() > readAheadMax {
		q.maxBytes = fetchBytesFew
	}
	f := &fetchFlight{from: next, done: make(chan struct{})}
	var ctx context.Context
	ctx, f.cancel = context.WithTimeout(t.ctx, askTimeout+q.wait)
	c.mu.flight = f
	started := r.router.spawn(func() {
		defer close(f.done)
		defer f.cancel()
		a, err := r.fetch(ctx, t, q)
		if q.wait > 0 {
			peer.givePoll()
		}
		c.arrived(f, a, err)
	})
	if !started {
		c.mu.flight = nil
		f.cancel()
		if q.wait > 0 {
			peer.givePoll()
		}
	}
}

// fetch asks the leader once.
func (r *Route) fetch(ctx context.Context, t *tenure, q fetchRequest) (fetched, error) {
	leader := r.leaderNow(t)
	b, err := r.ask(ctx, leader, append([]byte{byte(requestFetch)}, q.encode()...))
	if err != nil {
		return fetched{}, err
	}
	a, err := decodeFetchAnswer(b)
	if err != nil {
		return fetched{}, err
	}
	if a.code == codeNone || a.epoch > 0 {
		r.learn(a.standing)
	}
	err = r.answered(leader, &a.wireResult)
	if at, known := r.standing(); known && q.offset <= at.hw && errors.Is(err, segment.ErrUnavailable) {
		r.retarget()
		err = fmt.Errorf("%w: %s: node %d was deposed and has not heard of it: %v", ErrNotLeader, r.name(), leader.node, err)
	}
	if err != nil {
		return fetched{}, err
	}
	out := fetched{from: q.offset, next: q.offset, data: a.data, by: origin{node: leader.node, shard: r.shard.Load(), replica: a.leader.replica}}
	if err := out.check(); err != nil {
		r.router.suspect(out.by, q.offset)
		return fetched{}, err
	}
	r.committed(out.next) // the leader may have moved on between saying where it stands and reading
	return out, nil
}

// check walks over the batches: they are whole, begin with the one that was asked for, and follow one another.
func (f *fetched) check() error {
	for data := f.data; len(data) > 0; {
		b, rest, err := batch.Split(data, 0)
		if err == nil && (b.NextOffset() <= f.next || f.next == f.from && b.BaseOffset() > f.from || f.next != f.from && b.BaseOffset() < f.next) {
			err = fmt.Errorf("%w: offsets %d to %d where %d is expected", batch.ErrCorrupt, b.BaseOffset(), b.NextOffset(), f.next)
		}
		if err != nil {
			return fmt.Errorf("%w: %w", errWire, err)
		}
		f.next, data = b.NextOffset(), rest
	}
	return nil
}

// arrived takes the end of a fetch.
func (c *RouteCursor) arrived(f *fetchFlight, got fetched, err error) {
	c.mu.Lock()
	if c.mu.flight != f { // nobody wants it any more
		c.mu.Unlock()
		return
	}
	c.mu.flight = nil
	c.mu.err, c.mu.errAt = err, f.from
	switch {
	case err != nil && again(err):
		c.mu.errUntil = time.Now().Add(retryPause)
	case err == nil && len(got.data) > 0:
		c.mu.chunks = append(c.mu.chunks, got)
		c.route.router.ahead.Add(int64(len(got.data)))
	}
	c.mu.Unlock()
	r := c.route
	if again(err) {
		pause(r.router.ctx, retryPause)
	}
	r.mu.Lock()
	r.signalLocked()
	r.mu.Unlock()
}

// Wait waits until what Read has asked for has arrived, or failed to. It returns at once when nothing is under way.
func (c *RouteCursor) Wait(ctx context.Context) error {
	c.mu.Lock()
	f := c.mu.flight
	failed := c.mu.err != nil
	c.mu.Unlock()
	if f == nil {
		if failed || c.route.Current() {
			return nil
		}
		pause(ctx, retryPause)
		return ctx.Err()
	}
	select {
	case <-f.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close frees what the cursor holds. It can be used again.
func (c *RouteCursor) Close() {
	c.closeNear()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.resetLocked()
}

// takePoll takes one of the long polls that cursors may have at the node.
func (p *remotePeer) takePoll() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.polls >= peerPollsMax {
		return false
	}
	p.mu.polls++
	return true
}

func (p *remotePeer) givePoll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.polls--
}
