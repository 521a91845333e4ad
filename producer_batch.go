package billet

import (
	"context"
	"encoding/binary"
	"sync/atomic"
	"time"

	"github.com/billetlog/billet/internal/batch"
)

// batchState is where a batch of a producer is.
type batchState int8

const (
	batchOpen     batchState = iota // takes records
	batchQueued                     // to be sent, or sent again
	batchInFlight                   // handed to the log, no answer yet
	batchDone                       // has its result, waits for those before it
)

// pendingBatch is one batch of a producer from its first record to its last
// callback. Its partition's lock guards it; only whoever sends touches bytes
// while it is not open.
type pendingBatch struct {
	partition *producerPartition
	done      func(appendResult) // made once, calls partition.completed

	builder batch.Builder
	bytes   batch.Batch // finished; nil before
	state   batchState
	count   int
	limit   int   // where the batch is full, in bytes
	room    int   // bytes it may take without asking the budget
	charged int64 // bytes taken from the budget

	identity producerIdentity
	sequence int32
	stamped  bool // bytes or builder have identity and sequence

	opened    int64 // nanoseconds, as Producer.now
	deadline  int64 // when it must have a result
	sticky    bool  // has a record without a key
	urgent    bool  // somebody waits: send it as soon as possible
	reported  bool  // its records have their result although it is in flight
	ambiguous bool  // an earlier attempt may have written it
	cause     error // of the last failed attempt

	offset int64 // of the first record, when done
	err    error // result, when done

	callbacks []recordCallback
	waiters   []recordWaiter
	flushes   []*flushWait

	clock recordClock
}

// recordCallback is a user's function and the record it belongs to.
type recordCallback struct {
	delta int32
	call  func(Offset, error)
}

// callbackBytes is what a callback adds to the memory that is accounted for.
const callbackBytes = 16

// recordWaiter is a goroutine that waits for a record.
type recordWaiter struct {
	delta int32
	*waiter
}

func newPendingBatch() *pendingBatch {
	b := &pendingBatch{}
	b.done = func(r appendResult) { b.partition.completed(b, r) }
	return b
}

// reset empties b, keeping what can be used again.
func (b *pendingBatch) reset() {
	clear(b.callbacks)
	clear(b.waiters)
	clear(b.flushes)
	*b = pendingBatch{done: b.done, builder: b.builder, callbacks: b.callbacks[:0],
		waiters: b.waiters[:0], flushes: b.flushes[:0]}
}

// free gives the batch's memory back, but for what its callbacks take.
func (b *pendingBatch) free(budget *memoryBudget) {
	if b.bytes != nil {
		batch.Release(b.bytes)
		b.bytes = nil
	}
	keep := min(callbackBytes*int64(len(b.callbacks)), b.charged)
	budget.release(b.charged - keep)
	b.charged = keep
}

// finish completes the bytes, with identity and sequence as they are now.
func (b *pendingBatch) finish() error {
	if b.bytes == nil {
		bytes, err := b.builder.Finish()
		if err != nil {
			return err
		}
		b.bytes = bytes
	}
	if !b.stamped {
		stampProducer(b.bytes, b.identity, b.sequence)
		b.stamped = true
	}
	return nil
}

// stampProducer gives a finished batch another identity.
func stampProducer(b batch.Batch, identity producerIdentity, sequence int32) {
	binary.BigEndian.PutUint64(b[batch.ProducerIDOffset:], uint64(identity.id))
	binary.BigEndian.PutUint16(b[batch.ProducerEpochOffset:], uint16(identity.epoch))
	binary.BigEndian.PutUint32(b[batch.BaseSequenceOffset:], uint32(sequence))
	b.SetMaxTimestamp(b.MaxTimestamp()) // for the CRC
}

// recordClock gives a batch's records the time without asking the system for
// each: while many come within one millisecond, it asks for one in 32.
type recordClock struct {
	millis int64
	stride int // records that go by the last answer, next time
	left   int // records that still do
}

func (c *recordClock) now() int64 {
	if c.left > 0 {
		c.left--
		return c.millis
	}
	const maxStride = 31
	now := time.Now().UnixMilli()
	if now == c.millis {
		c.stride = min(2*c.stride+1, maxStride)
	} else {
		c.stride = 0
	}
	c.millis, c.left = now, c.stride
	return now
}

// waiter is one goroutine that waits for one record.
type waiter struct {
	ready  chan struct{} // has room for one
	offset Offset
	err    error
}

// waiter takes one of this producer alone: where a program tests itself in virtual time, no channel may come out of its bubble.
func (p *Producer) waiter() *waiter {
	if w, ok := p.waits.Get().(*waiter); ok {
		return w
	}
	return &waiter{ready: make(chan struct{}, 1)}
}

// signal gives the result, once.
func (w *waiter) signal(offset Offset, err error) {
	w.offset, w.err = offset, err
	w.ready <- struct{}{}
}

// wait returns the result and true, or ctx's error and false when that ended
// first; then w must not be used again.
func (w *waiter) wait(ctx context.Context) (offset Offset, err error, back bool) {
	select {
	case <-w.ready:
		return w.offset, w.err, true
	default:
	}
	select {
	case <-w.ready:
		return w.offset, w.err, true
	case <-ctx.Done():
		return Offset{}, ctx.Err(), false
	}
}

// flushWait is one Flush. It is done when as many batches arrived as it waits
// for.
type flushWait struct {
	left atomic.Int64
	done chan struct{}
}

func (f *flushWait) arrive() {
	if f.left.Add(-1) == 0 {
		close(f.done)
	}
}
