package billet

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/billetlog/billet/internal/batch"
	"github.com/billetlog/billet/replication"
)

// never is a time that does not come, in nanoseconds.
const never = math.MaxInt64

// The least time, in nanoseconds, between two batches that are sent although they
// are not full and nobody is known to wait for them. It makes batches grow under
// load, while a record that comes alone goes at once. Up to some 30,000 records a
// second batches have few records and may follow each other closely, since waiting
// would cost more time than it saves work; above that they are spaced out.
const (
	earlyRecords     = 8
	earlyIntervalFew = int64(25 * time.Microsecond)
	earlyInterval    = int64(250 * time.Microsecond)
)

// producerPartition is a Producer's side of one partition: an open batch, and in
// order those that are closed and have no result yet.
//
// Lock order: Producer.mu, then a partition's mu, then any one of the locks of
// memoryBudget, sender, dispatcher and Producer.unheard.
type producerPartition struct {
	producer *Producer
	name     string
	number   int32
	log      partitionLog
	// refused is 0, or, when the last answer was a refusal, the time from which
	// records without a key may come here again.
	refused atomic.Int64

	timer senderEntry // guarded by sender.mu

	mu struct {
		sync.Mutex
		topic    *producerTopic
		limit    int  // bytes of a batch
		closed   bool // takes no more records
		retired  bool // and neither will it: the topic is gone
		open     *pendingBatch
		queue    []*pendingBatch
		next     int // in queue, the first one to send
		inFlight int
		sending  bool // somebody is in pump, and looks again before leaving

		identity producerIdentity
		sequence int32 // of the next batch to close
		rewind   bool  // when nothing is in flight, send the queue again
		renew    bool  // when nothing is in flight, take a new identity

		backoff  time.Duration
		retryAt  int64
		lastSize int // bytes of the batch closed last
		last     closing
	}
}

func newProducerPartition(p *Producer, name string, number int32, log partitionLog,
	identity producerIdentity) *producerPartition {
	partition := &producerPartition{producer: p, name: name, number: number, log: log}
	partition.timer = senderEntry{partition: partition, at: never, index: -1}
	state, _ := log.State()
	if !takesRecords(state) && state != replication.StateStarting {
		partition.refused.Store(1)
	}
	partition.mu.identity = identity
	partition.mu.last.at = -earlyInterval
	return partition
}

// setTopic takes over what a new version of the catalog says.
func (p *producerPartition) setTopic(t *producerTopic) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.topic = t
	p.mu.limit = min(p.producer.config.BatchBytes, t.maxMessage)
	if p.mu.open != nil && p.mu.open.limit > p.mu.limit {
		p.closeOpenLocked(p.producer.now())
		p.producer.sender.schedule(p, 0)
	}
}

// usable tells whether records without a key should go here: the last answer was
// no refusal, or that is a while ago and the partition takes records by its state.
func (p *producerPartition) usable() bool {
	until := p.refused.Load()
	if until == 0 {
		return true
	}
	state, _ := p.log.State()
	return takesRecords(state) && p.producer.now() >= until
}

// avoid keeps records without a key away for a while.
func (p *producerPartition) avoid() {
	p.refused.Store(p.producer.now() + int64(p.producer.config.RetryBackoffMax))
}

// wrap says which partition a record was meant for.
func (p *producerPartition) wrap(err error) error {
	return fmt.Errorf("billet: produce to %s/%d: %w", p.name, p.number, err)
}

// add puts a record in the open batch, for which it may have to wait, and sends
// the batch if it is due.
func (p *producerPartition) add(ctx context.Context, r *Record, call func(Offset, error), w *waiter) error {
	bound := recordSizeBound(r.Key, r.Value, r.Headers)
	p.mu.Lock()
	m := &p.mu
	b := m.open
	if m.closed || b == nil || b.builder.Size()+bound > b.room {
		var err error
		if b, err = p.openFor(ctx, r, bound); err != nil { // unlocked
			return err
		}
	}
	ts := int64(0)
	if r.Timestamp.IsZero() {
		ts = b.clock.now()
	} else {
		ts = r.Timestamp.UnixMilli()
	}
	delta := int32(b.builder.Append(ts, r.Key, r.Value, batchHeaders(r.Headers)))
	if r.Key == nil {
		b.sticky = true
	}
	if call != nil {
		b.callbacks = append(b.callbacks, recordCallback{delta: delta, call: call})
	}
	if w != nil {
		b.waiters = append(b.waiters, recordWaiter{delta: delta, waiter: w})
		b.urgent = true
	}
	full := b.builder.Size()+bound > b.limit
	if full {
		p.closeOpenLocked(b.opened)
	}
	if delta > 0 && !full && w == nil {
		p.mu.Unlock() // who opened the batch has seen to its being sent
		return nil
	}
	due, idle := p.dueLocked(), !m.sending
	p.mu.Unlock()
	p.serve(due, idle)
	return nil
}

// serve sends what is due or sees to its being sent.
func (p *producerPartition) serve(due int64, idle bool) {
	if due == never {
		return
	}
	if due > 0 && due > p.producer.now() {
		p.producer.sender.schedule(p, due)
	} else if idle {
		p.pump(false)
	}
}

// openFor returns the open batch with room for the record, opening one if need
// be, with p.mu held; or an error with p.mu not held. It is called with p.mu
// held and may give it up meanwhile.
func (p *producerPartition) openFor(ctx context.Context, r *Record, bound int) (*pendingBatch, error) {
	granted := int64(0)
	for {
		b, need, err := p.roomLocked(r, bound, &granted)
		if b != nil || err != nil {
			if b == nil {
				p.mu.Unlock()
			}
			p.producer.budget.release(granted)
			return b, err
		}
		due, idle := p.dueLocked(), !p.mu.sending
		p.mu.Unlock()
		p.serve(due, idle)
		if p.producer.budget.tryAcquire(need - granted) {
			granted = need
		} else {
			p.producer.budget.release(granted)
			granted = 0
			p.producer.hurry()
			if p.producer.config.FailFast {
				return nil, p.wrap(fmt.Errorf("%w: try again when records are acknowledged, or raise BufferBytes", ErrBufferFull))
			}
			if err := p.producer.budget.acquire(ctx, need); err != nil {
				return nil, p.wrap(err)
			}
			granted = need
		}
		p.mu.Lock()
	}
}

// roomLocked returns the open batch when it has room for the record, or opens
// one if granted bytes from the budget suffice, of which it takes what it needs.
// Otherwise it returns how many bytes are needed.
func (p *producerPartition) roomLocked(r *Record, bound int, granted *int64) (
	b *pendingBatch, need int64, err error) {
	m := &p.mu
	if m.closed {
		if m.retired {
			return nil, 0, p.wrap(fmt.Errorf("%w: the topic was deleted: %s", ErrUnknownTopic, adviceUnknownTopic))
		}
		return nil, 0, p.wrap(fmt.Errorf("%w: make a new Producer", ErrClosed))
	}
	if b := m.open; b != nil {
		size := b.builder.SizeAfter(timestampMillis(r.Timestamp, b.clock.millis), r.Key, r.Value, batchHeaders(r.Headers))
		// Headers aside the clock may add a byte or two to a delta.
		size = min(size+2, int64(b.builder.Size()+bound))
		if size <= int64(b.room) {
			return b, 0, nil
		}
		if size <= int64(b.limit) {
			room := min(int64(b.limit), max(2*int64(b.room), size))
			if p.producer.budget.tryAcquire(room - int64(b.room)) {
				b.charged += room - int64(b.room)
				b.room = int(room)
				return b, 0, nil
			}
		}
		p.closeOpenLocked(p.producer.now())
	}
	single := int64(batch.HeaderSize + bound)
	if single > int64(m.topic.maxMessage) {
		single = singleSize(r)
		if single > int64(m.topic.maxMessage) {
			return nil, 0, p.wrap(fmt.Errorf("%w: it takes %d bytes, max.message.bytes is %d: %s",
				ErrRecordTooLarge, single, m.topic.maxMessage, adviceTooLarge))
		}
	}
	need = max(single, p.capacityLocked())
	if *granted < need && !p.producer.budget.tryAcquire(need-*granted) {
		return nil, need, nil
	}
	*granted = max(*granted-need, 0)
	p.openLocked(need)
	return m.open, 0, nil
}

// singleSize returns exactly what the record takes in a batch of its own.
func singleSize(r *Record) int64 {
	var builder batch.Builder
	builder.Reset(batch.BuilderOptions{Capacity: batch.HeaderSize})
	return builder.SizeAfter(0, r.Key, r.Value, batchHeaders(r.Headers))
}

// capacityLocked guesses what the next batch will need: a small buffer while
// batches are small.
func (p *producerPartition) capacityLocked() int64 {
	if p.mu.lastSize <= smallBatchCapacity {
		return int64(min(smallBatchCapacity, p.mu.limit))
	}
	return int64(p.mu.limit)
}

// openLocked opens a batch with room for as many bytes as were taken from the
// budget for it.
func (p *producerPartition) openLocked(room int64) {
	m := &p.mu
	b := p.producer.pool.Get().(*pendingBatch)
	config := &p.producer.config
	b.partition = p
	b.state = batchOpen
	b.limit = m.limit
	b.room = int(room)
	b.charged = room
	b.identity, b.sequence, b.stamped = m.identity, m.sequence, true
	b.opened = p.producer.now()
	b.deadline = never
	if config.DeliveryTimeout > 0 {
		b.deadline = b.opened + int64(config.DeliveryTimeout)
	}
	b.builder.Reset(batch.BuilderOptions{
		Codec: batch.Codec(config.Compression), Level: config.CompressionLevel,
		HasProducer: m.identity != noIdentity, ProducerID: m.identity.id,
		ProducerEpoch: m.identity.epoch, BaseSequence: m.sequence,
		Capacity: int(room),
	})
	m.open = b
}

// closeOpenLocked moves the open batch to the queue.
func (p *producerPartition) closeOpenLocked(now int64) {
	m := &p.mu
	b := m.open
	m.open = nil
	b.state = batchQueued
	b.count = b.builder.Count()
	m.lastSize = b.builder.Size()
	if m.identity != noIdentity {
		if b.identity != m.identity || b.sequence != m.sequence {
			b.identity, b.sequence, b.stamped = m.identity, m.sequence, false
		}
		m.sequence = addSequence(m.sequence, b.count)
	}
	if n := callbackBytes * int64(len(b.callbacks)); n > 0 {
		p.producer.budget.force(n)
		b.charged += n
	}
	m.queue = append(m.queue, b)
	m.last = closing{at: now, records: b.count,
		awaited: b.count == 1 && len(b.callbacks)+len(b.waiters) > 0}
	if b.sticky {
		m.topic.shared.close(m.last)
		m.topic.shared.advance(m.topic.partitions, p.number)
	}
}

// addSequence adds to a sequence number, which wraps to 0.
func addSequence(sequence int32, n int) int32 {
	return int32((int64(sequence) + int64(n)) & math.MaxInt32)
}

// dueLocked returns when the partition needs service: 0 for at once, never, or a
// time.
func (p *producerPartition) dueLocked() int64 {
	m := &p.mu
	due := int64(never)
	if m.closed {
		return due
	}
	if len(m.queue) > 0 {
		due = p.deadlineLocked()
	} else if m.open != nil {
		due = m.open.deadline
	}
	if m.inFlight >= p.producer.config.MaxInFlight || (m.rewind || m.renew) && m.inFlight > 0 {
		return due
	}
	again := (m.rewind || m.renew) && len(m.queue) > 0
	if again || m.next < len(m.queue) {
		return min(due, m.retryAt)
	}
	if m.open != nil {
		return min(due, max(m.retryAt, p.openDueLocked()))
	}
	return due
}

// deadlineLocked returns the deadline of the first batch without a result.
func (p *producerPartition) deadlineLocked() int64 {
	for _, b := range p.mu.queue {
		if !b.reported && b.state != batchDone {
			return b.deadline
		}
	}
	if p.mu.open != nil {
		return p.mu.open.deadline
	}
	return never
}

// openDueLocked returns when the open batch is to be sent although it is not
// full: 0 for at once, never for when something in flight is answered.
func (p *producerPartition) openDueLocked() int64 {
	m := &p.mu
	b := m.open
	config := &p.producer.config
	switch {
	case b.urgent:
		return 0
	case config.Linger > 0:
		return b.opened + int64(config.Linger)
	case m.inFlight > 0:
		return never
	}
	last := m.last
	if b.sticky {
		last = m.topic.shared.closing()
	}
	if last.awaited && p.producer.undelivered.Load() == 0 {
		return 0 // each record is waited for before the next one is made
	}
	interval := earlyInterval
	if last.records <= earlyRecords {
		interval = earlyIntervalFew
	}
	if due := last.at + interval; due > b.opened {
		return due
	}
	return 0
}

// closing says how a batch was closed.
type closing struct {
	at      int64 // when
	records int
	awaited bool // it was a single record that somebody waits for
}
