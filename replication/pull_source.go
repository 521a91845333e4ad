package replication

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	pb "github.com/lni/dragonboat/v4/raftpb"

	"github.com/billetlog/billet/segment"
	"github.com/billetlog/billet/transport"
)

// snapshotConn is dragonboat's way to send one snapshot.
type snapshotConn struct {
	host   *Host
	ctx    context.Context
	node   int32
	chunks []pb.Chunk
	broken bool
}

// Close has nothing to do: the offer is over when SendChunk returns.
func (c *snapshotConn) Close() {}

// SendChunk keeps the pieces back until the last one, and then makes the offer and returns when that is over. It tells dragonboat of no failure but its own
// end: an error would make it send no message at all to the node, of any partition, for up to a second. It believes then that the snapshot arrived,
// asks the replica to go on from there, and hears that it cannot.
func (c *snapshotConn) SendChunk(chunk pb.Chunk) error {
	if len(c.chunks) >= offerChunksMax {
		c.broken = true
	}
	if !c.broken {
		forgetRemoved(&chunk.Membership)
		c.chunks = append(c.chunks, chunk)
	}
	if !chunk.IsLastChunk() {
		return c.ctx.Err()
	}
	err := fmt.Errorf("%w: more than %d pieces", errOffer, offerChunksMax)
	if !c.broken {
		err = c.host.offer(c.ctx, c.node, c.chunks)
	}
	if err != nil {
		c.host.logger.Info("a replica was not brought up to date; it will be tried again", "shard", chunk.ShardID, "node", c.node, "err", err)
	}
	return c.ctx.Err()
}

// capture is the state machine's state, as a snapshot of it must have it.
type capture struct {
	applied uint64 // index of the last batch in it
	end     int64  // end offset there
	fold    []byte
}

// capture takes the state for a snapshot that dragonboat is about to make: no batch is applied meanwhile.
func (p *Partition) capture() {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.mu.captures)
	if n > 0 && p.mu.captures[n-1].applied == p.mu.applied {
		return
	}
	if n == capturesMax {
		p.mu.captures = append(p.mu.captures[:0], p.mu.captures[1:]...)
	}
	// The snapshot's own membership covers all changes up to its index.
	p.mu.captures = append(p.mu.captures, capture{p.mu.applied, p.mu.end, p.mu.fold.encode(0)})
}

// captured returns the state at a snapshot's index. onDisk is the last batch that dragonboat has handed to the state machine by then: what stands
// between the two are entries without a batch.
func (p *Partition) captured(onDisk, index uint64) (capture, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.mu.captures {
		if c.applied >= onDisk && c.applied <= index {
			return c, true
		}
	}
	return capture{}, false
}

// outgoing is an offer that stands.
type outgoing struct {
	p      *Partition
	to     int32 // node
	extent *segment.Extent
	end    context.CancelCauseFunc

	mu struct {
		sync.Mutex
		live int         // pulls that are served
		idle *time.Timer // ends the offer when nobody pulls
		over bool
	}
}

// offer makes the offer for a snapshot and waits until the other node is done.
func (h *Host) offer(ctx context.Context, node int32, chunks []pb.Chunk) error {
	last := &chunks[len(chunks)-1]
	p := h.partitionOf(last.ShardID)
	if p == nil || p.spec.Replica != last.From || p.r == nil || p.r.latched.Load() {
		return fmt.Errorf("%w: shard %d does not run here", errOfferGone, last.ShardID)
	}
	ctx, cancel := p.endWith(ctx)
	defer cancel(nil)
	leave, err := takePlace(ctx, h.catchUps.out)
	if err != nil {
		return err
	}
	defer leave()
	// What follows the snapshot has to stay as entries, or it would be out of date when it is there.
	defer p.pin(last.Index)()
	if first := p.r.removedTo.Load(); first > last.Index {
		return fmt.Errorf("%w: it is of index %d, entries begin behind %d", errOfferStale, last.Index, first)
	}
	c, ok := p.captured(last.OnDiskIndex, last.Index)
	if !ok {
		return fmt.Errorf("%w: no state for index %d", errOfferStale, last.Index)
	}
	extent, err := p.r.currentLog().Extent(last.Index)
	if err != nil {
		return err
	}
	defer func() {
		if err := extent.Close(); err != nil {
			h.logger.Warn("deleted segments stay until retention comes again", "partition", p.name(), "err", err)
		}
	}()
	o := &offer{fold: c.fold, chunks: chunks}
	o.Shard, o.From, o.To, o.Index, o.Term, o.Extent = last.ShardID, last.From, last.ReplicaID, last.Index, last.Term, extent.Info()
	if o.Extent.EndOffset != c.end || o.Extent.LastTerm != last.Term {
		return fmt.Errorf("%w: the log ends at %d in term %d there, the state at %d in term %d", errOfferStale,
			o.Extent.EndOffset, o.Extent.LastTerm, c.end, last.Term)
	}
	var over func()
	o.ID, over = h.catchUps.register(&outgoing{p: p, to: node, extent: extent, end: cancel})
	defer over()
	request, err := o.encode()
	if err != nil {
		return err
	}
	if _, err = h.call(ctx, node, requestOffer, request); err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return err
}

// register lets the other node pull what is offered. The offer ends when nobody does.
func (c *catchUps) register(o *outgoing) (id uint64, over func()) {
	o.mu.Lock()
	o.mu.idle = time.AfterFunc(offerIdleMax, func() { o.end(errOfferIdle) })
	o.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.last++
	id = c.mu.last
	c.mu.offers[id] = o
	return id, func() {
		c.mu.Lock()
		delete(c.mu.offers, id)
		c.mu.Unlock()
		o.mu.Lock()
		defer o.mu.Unlock()
		o.mu.over = true
		o.mu.idle.Stop()
	}
}

// deposed ends the offers of a partition that this node does not lead any more: who leads now makes its own.
func (c *catchUps) deposed(p *Partition) {
	if leader, _, ok := p.host.guard.leader(p.spec.Shard); ok && leader == p.spec.Replica {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range c.mu.offers {
		if o.p == p {
			o.end(fmt.Errorf("%w: %s", ErrNotLeader, p.name()))
		}
	}
}

// begin counts a pull. While there is one the offer is not idle: transport ends those that make no progress.
func (o *outgoing) begin() (end func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mu.live++
	o.mu.idle.Stop()
	return sync.OnceFunc(func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.mu.live--; o.mu.live == 0 && !o.mu.over {
			o.mu.idle.Reset(offerIdleMax)
		}
	})
}

// A pull's request names the offer (8 bytes) and the segment (4); offset and length travel beside it.
const pullNameSize = 12

func pullName(offer uint64, segment int) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(nil, offer), uint32(segment))
}

// openPull opens a range of what was offered to the node that asks.
func (h *Host) openPull(_ context.Context, from int32, r transport.PullRequest) (transport.Source, error) {
	if len(r.Payload) != pullNameSize {
		return transport.Source{}, errors.New("replication: a pull that names no offer")
	}
	id, n := binary.BigEndian.Uint64(r.Payload), binary.BigEndian.Uint32(r.Payload[8:])
	c := h.catchUps
	c.mu.Lock()
	o := c.mu.offers[id]
	c.mu.Unlock()
	if o == nil || o.to != from {
		return transport.Source{}, errOfferGone
	}
	segments := o.extent.Info().Segments
	if uint64(n) >= uint64(len(segments)) || r.Offset > segments[n].Bytes {
		return transport.Source{}, fmt.Errorf("replication: pull of segment %d from %d", n, r.Offset)
	}
	length := segments[n].Bytes - r.Offset
	if r.Length > 0 {
		length = min(length, r.Length)
	}
	reader, err := o.extent.Open(int(n), r.Offset, length)
	if err != nil {
		return transport.Source{}, err
	}
	s := transport.Source{Length: length, Reader: reader, Close: reader.Close}
	if f, pos, length := reader.File(); f != nil {
		if s, err = transport.FileRange(f, pos, length); err != nil {
			return transport.Source{}, errors.Join(err, reader.Close())
		}
	}
	end, closeFile := o.begin(), s.Close
	s.Close = func() error {
		defer end()
		return closeFile()
	}
	return s, nil
}

// pin keeps entries behind index, so that a replica that will have the log through index can go on with them.
func (p *Partition) pin(index uint64) (unpin func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.pins == nil {
		p.mu.pins = make(map[uint64]int)
	}
	p.mu.pins[index]++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.mu.pins[index]--; p.mu.pins[index] == 0 {
			delete(p.mu.pins, index)
		}
	}
}

// removable is index, or the lowest one that is pinned.
func (p *Partition) removable(index uint64) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	for pinned := range p.mu.pins {
		index = min(index, pinned)
	}
	return index
}
