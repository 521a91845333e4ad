package transport

import (
	"context"
	"sync"
)

// keptBufferMax is the largest buffer that is kept for reuse, in bytes.
const keptBufferMax = 1 << 20

// outbox is a connection's bounded send queue. Frames are encoded into one buffer, which the writer takes as a whole, so that many
// small frames become one write and payloads need not outlive add.
type outbox struct {
	max  int
	seed uint64
	// wake has a token when there is something to take.
	wake chan struct{}

	mu struct {
		sync.Mutex
		pending []byte
		spare   []byte
		seq     uint32
		room    chan struct{} // closed when pending was taken; nil if nobody waits
		err     error
	}
}

func newOutbox(most int, seed uint64) *outbox {
	return &outbox{max: most, seed: seed, wake: make(chan struct{}, 1)}
}

// add encodes a frame. It returns ErrQueueFull if there is no room, or why the outbox was closed.
func (o *outbox) add(h header, payload []byte) error {
	o.mu.Lock()
	if o.mu.err != nil {
		defer o.mu.Unlock()
		return o.mu.err
	}
	if n := len(o.mu.pending); n > 0 && n+headerSize+len(payload) > o.max && h.kind != framePing {
		o.mu.Unlock()
		return ErrQueueFull
	}
	h.seq = o.mu.seq
	o.mu.seq++
	o.mu.pending = appendFrame(o.mu.pending, o.seed, h, payload)
	o.mu.Unlock()
	select {
	case o.wake <- struct{}{}:
	default:
	}
	return nil
}

// addWait is add that waits for room until ctx ends.
func (o *outbox) addWait(ctx context.Context, h header, payload []byte) error {
	for {
		room := o.waitForRoom()
		if err := o.add(h, payload); err != ErrQueueFull {
			return err
		}
		select {
		case <-room:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (o *outbox) waitForRoom() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.mu.room == nil {
		o.mu.room = make(chan struct{})
	}
	return o.mu.room
}

// take returns all that waits, nil if nothing does. The buffer goes back with give.
func (o *outbox) take() []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	taken := o.mu.pending
	if len(taken) == 0 {
		return nil
	}
	o.mu.pending, o.mu.spare = o.mu.spare[:0], nil
	o.freeLocked()
	return taken
}

func (o *outbox) give(buf []byte) {
	if cap(buf) > keptBufferMax {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mu.spare = buf[:0]
}

func (o *outbox) freeLocked() {
	if o.mu.room != nil {
		close(o.mu.room)
		o.mu.room = nil
	}
}

// close makes add fail with err and drops what waits.
func (o *outbox) close(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.mu.err == nil {
		o.mu.err = err
	}
	o.mu.pending, o.mu.spare = nil, nil
	o.freeLocked()
}
