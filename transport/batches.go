package transport

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// FullPolicy says what Send does when the queue is full.
type FullPolicy uint8

// What Send does when the queue is full.
const (
	// FullFails returns ErrQueueFull at once.
	FullFails FullPolicy = iota
	// FullDrops drops the batch, counts it in Stats.BatchesDropped and returns nil.
	FullDrops
	// FullWaits waits until there is room or the stream ends.
	FullWaits
)

// Batches sends batches of Raft messages to one peer. Safe for concurrent use; the order is that in which calls of Send took effect.
type Batches struct {
	s    *stream
	full FullPolicy
}

// OpenBatches makes a connection for batches, the bulk of them, which ends with ctx, with the Node, and when SetAddress names another address. It waits
// for dial and handshake at most until ctx ends. Errors: ErrUnknownPeer, ErrUnreachable with the cause, *RefusedError, ErrClosed.
// A peer takes one such connection from a node: a second ends the first.
func (n *Node) OpenBatches(ctx context.Context, id int32, full FullPolicy) (*Batches, error) {
	return n.openBatches(ctx, id, KindBatches, full)
}

// OpenUrgent makes a connection of its own for batches that must not wait behind the others where the way is narrow. They may overtake those. All else
// is as with OpenBatches.
func (n *Node) OpenUrgent(ctx context.Context, id int32, full FullPolicy) (*Batches, error) {
	return n.openBatches(ctx, id, KindUrgent, full)
}

func (n *Node) openBatches(ctx context.Context, id int32, kind Kind, full FullPolicy) (*Batches, error) {
	s, err := n.dial(ctx, id, kind)
	if err != nil {
		return nil, err
	}
	// What comes back is pings, and the end.
	read := func() {
		defer n.leave(s)
		_ = s.read(nil)
	}
	if !s.start() || !n.spawn(read) {
		s.close(ErrClosed)
		n.leave(s)
		return nil, ErrClosed
	}
	return &Batches{s: s, full: full}, nil
}

// Peer is the other side.
func (b *Batches) Peer() Peer { return b.s.peer }

// Send queues a batch, which may be changed when Send returns. It does not wait for the network; what is queued is lost, without a word,
// when the connection ends. Errors: ErrTooLarge (above Options.BatchBytesMax), ErrQueueFull, and why the stream ended.
func (b *Batches) Send(payload []byte) error {
	err := b.send(payload)
	if b.full == FullWaits && errors.Is(err, ErrQueueFull) {
		return b.wait(b.s.ctx, payload)
	}
	if errors.Is(err, ErrQueueFull) {
		b.s.node.stats.batchesDropped.Add(1)
		if b.full == FullDrops {
			return nil
		}
	}
	return err
}

// SendWithin is Send that waits for room for so long at most, and then returns ErrQueueFull whatever the policy.
func (b *Batches) SendWithin(payload []byte, patience time.Duration) error {
	err := b.send(payload)
	if patience > 0 && errors.Is(err, ErrQueueFull) {
		ctx, cancel := context.WithTimeoutCause(b.s.ctx, patience, ErrQueueFull)
		defer cancel()
		err = b.wait(ctx, payload)
	}
	if errors.Is(err, ErrQueueFull) {
		b.s.node.stats.batchesDropped.Add(1)
	}
	return err
}

// send queues a batch if there is room.
func (b *Batches) send(payload []byte) error {
	if len(payload) > b.s.node.opts.BatchBytesMax {
		return fmt.Errorf("%w: a batch of %d bytes, at most %d are allowed", ErrTooLarge, len(payload), b.s.node.opts.BatchBytesMax)
	}
	err := b.s.out.add(header{kind: frameBatch}, payload)
	if err == nil {
		b.s.node.stats.batchesSent.Add(1)
	}
	return err
}

// wait queues a batch when there is room, or returns why ctx ended.
func (b *Batches) wait(ctx context.Context, payload []byte) error {
	err := b.s.out.addWait(ctx, header{kind: frameBatch}, payload)
	switch {
	case err == nil:
		b.s.node.stats.batchesSent.Add(1)
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return err
}

// Done is closed when the stream has ended.
func (b *Batches) Done() <-chan struct{} { return b.s.ctx.Done() }

// Err is why the stream ended, nil while it stands.
func (b *Batches) Err() error { return b.s.cause() }

// Close ends the stream. What is queued is dropped.
func (b *Batches) Close() error {
	b.s.close(ErrClosed)
	return nil
}

// serveBatches delivers what a peer sends, once its connection before this one has delivered.
func (n *Node) serveBatches(s *stream, k *known) {
	select {
	case k.delivering[s.kind] <- struct{}{}:
	case <-s.ctx.Done():
		return
	}
	defer func() { <-k.delivering[s.kind] }()
	var buf []byte
	_ = s.read(func(h header) error {
		size := int64(h.length)
		if !s.charge.take(size) {
			n.stats.batchesRefused.Add(1)
			return s.in.discard(h)
		}
		defer s.charge.give(size)
		payload, err := s.in.payload(h, buf)
		if err != nil {
			return err
		}
		n.stats.batchesReceived.Add(1)
		n.opts.OnBatch(s.peer, payload)
		if cap(payload) <= keptBufferMax {
			buf = payload[:0]
		}
		return nil
	})
}
