package transport

import (
	"context"
	"sync"
)

// keptBufferMax is the largest receive buffer that a connection keeps for reuse, in bytes.
const keptBufferMax = 1 << 20

// chunkSize is up to where frames are gathered for one write, in bytes; a frame may be larger.
const chunkSize = 128 << 10

// outbox is a connection's bounded send queue. Frames are encoded into chunks, which the writer takes one by one, so that many small
// frames become one write and payloads need not outlive add. Written chunks are used again, until there is nothing to send for a while.
type outbox struct {
	max  int
	seed uint64
	// wake has a token when there is something to take.
	wake chan struct{}

	mu struct {
		sync.Mutex
		chunks [][]byte
		size   int // of all chunks
		kept   [][]byte
		seq    uint32
		room   chan struct{} // closed when a chunk was taken; nil if nobody waits
		err    error
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
	need := headerSize + len(payload)
	if o.mu.size > 0 && o.mu.size+need > o.max && h.kind != framePing {
		o.mu.Unlock()
		return ErrQueueFull
	}
	h.seq = o.mu.seq
	o.mu.seq++
	chunk := o.chunkLocked(need)
	*chunk = appendFrame(*chunk, o.seed, h, payload)
	o.mu.size += need
	o.mu.Unlock()
	o.awake()
	return nil
}

// chunkLocked returns the chunk to which a frame of that size goes.
func (o *outbox) chunkLocked(need int) *[]byte {
	last := len(o.mu.chunks) - 1
	if last >= 0 && len(o.mu.chunks[last])+need <= chunkSize {
		return &o.mu.chunks[last]
	}
	var fresh []byte
	if n := len(o.mu.kept); n > 0 {
		fresh, o.mu.kept = o.mu.kept[n-1], o.mu.kept[:n-1]
	}
	o.mu.chunks = append(o.mu.chunks, fresh)
	return &o.mu.chunks[last+1]
}

// awake wakes the writer.
func (o *outbox) awake() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
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

// take returns the oldest chunk, nil if nothing waits. The buffer goes back with give.
func (o *outbox) take() []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.mu.chunks) == 0 {
		return nil
	}
	taken := o.mu.chunks[0]
	n := copy(o.mu.chunks, o.mu.chunks[1:])
	o.mu.chunks[n] = nil
	o.mu.chunks = o.mu.chunks[:n]
	o.mu.size -= len(taken)
	o.freeLocked()
	return taken
}

// give lets a buffer be used again.
func (o *outbox) give(chunk []byte) {
	if cap(chunk) > 2*chunkSize {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.mu.kept)*chunkSize < o.max && o.mu.err == nil {
		o.mu.kept = append(o.mu.kept, chunk[:0])
	}
}

// rest lets go of what was kept for use under load.
func (o *outbox) rest() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mu.kept = nil
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
	o.mu.chunks, o.mu.kept, o.mu.size = nil, nil, 0
	o.freeLocked()
}
