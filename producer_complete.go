package billet

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// busyBackoff is the wait after ErrBusy, which ends as soon as something else in
// the partition is stored.
const busyBackoff = time.Millisecond

// completed takes the log's answer for b. It may run on a worker of the log, and
// neither blocks nor runs foreign code.
func (p *producerPartition) completed(b *pendingBatch, r appendResult) {
	p.mu.Lock()
	m := &p.mu
	m.inFlight--
	if r.Err == nil {
		b.state = batchDone
		b.offset = r.Offset
		if p.producer.config.Acks == AcksNone {
			b.offset = UnknownOffset
		}
		m.backoff, m.retryAt = 0, 0
		p.refused.Store(0)
	} else {
		p.refusedLocked(b, wrapSeam(r.Err))
	}
	p.popLocked()
	due, idle := p.dueLocked(), !m.sending
	p.mu.Unlock()
	if idle && due < never {
		p.producer.sender.schedule(p, due)
	}
}

// refusedLocked decides what becomes of a batch that was not acknowledged.
func (p *producerPartition) refusedLocked(b *pendingBatch, err error) {
	m := &p.mu
	idempotent := b.identity != noIdentity
	b.state = batchQueued
	switch {
	case b.reported:
		p.failLocked(b, err)
	case m.closed:
		p.failLocked(b, err)
	case p.producer.config.Acks == AcksNone:
		p.failLocked(b, err)
	case errors.Is(err, ErrAmbiguous):
		if !idempotent {
			p.failLocked(b, err)
			return
		}
		b.ambiguous = true
		b.cause = err
		m.rewind = true
		p.avoid()
		p.backOffLocked()
	case errors.Is(err, ErrBusy):
		b.cause = err
		m.rewind = true
		m.retryAt = p.producer.now() + int64(busyBackoff)
	case retriableAnswer(err):
		b.cause = err
		m.rewind = true
		p.avoid()
		p.backOffLocked()
	case errors.Is(err, ErrOutOfOrderSequence) && (m.renew || m.queue[0] != b):
		// One before it was refused, and waits or has failed; it is its turn again after that one. That one after it wait as well says nothing:
		// the first would be sent again and again.
		b.ambiguous = false
		b.cause = err
		m.rewind = true
	default:
		if errors.Is(err, ErrClosed) && p.goneLocked() {
			err = fmt.Errorf("%w: the topic was deleted: %w", ErrUnknownTopic, err)
		}
		if errors.Is(err, ErrPartitionFailed) || errors.Is(err, ErrQuarantined) {
			p.avoid()
		}
		p.failLocked(b, err)
	}
}

// goneLocked tells whether the topic is no more.
func (p *producerPartition) goneLocked() bool {
	state, ok := p.producer.catalog.Topic(p.name)
	return !ok || state.ID != p.mu.topic.id
}

// failLocked gives a batch that is not in flight a result for good. What follows
// it is sent under a new identity, because its sequence numbers are missing.
func (p *producerPartition) failLocked(b *pendingBatch, err error) {
	if !b.reported {
		if b.ambiguous && !errors.Is(err, ErrAmbiguous) {
			err = fmt.Errorf("%w; an earlier attempt has an unknown outcome: %w", err, ErrAmbiguous)
		}
		b.err = p.wrap(err)
	}
	b.state = batchDone
	if b.identity != noIdentity {
		p.mu.renew = true
	}
}

// popLocked takes finished batches off the queue, up to the first one whose
// records have no result yet, so that results are given in order.
func (p *producerPartition) popLocked() {
	m := &p.mu
	kept := m.queue[:0]
	i := 0
	for ; i < len(m.queue); i++ {
		b := m.queue[i]
		if b.state != batchDone {
			if !b.reported {
				break
			}
			kept = append(kept, b)
			continue
		}
		b.free(&p.producer.budget)
		if b.reported {
			b.reset()
			p.producer.pool.Put(b)
		} else {
			p.deliverLocked(b)
		}
	}
	if gone := i - len(kept); gone > 0 {
		m.next = max(m.next-gone, 0)
		m.queue = slices.Delete(m.queue, len(kept), i)
	}
}

// deliverLocked gives the batch's records their result: to waiting goroutines
// at once, to callbacks on the dispatcher's goroutine.
func (p *producerPartition) deliverLocked(b *pendingBatch) {
	for _, w := range b.waiters {
		if b.err != nil {
			w.signal(Offset{}, b.err)
		} else {
			w.signal(b.offsetOf(w.delta), nil)
		}
	}
	if b.err != nil {
		p.producer.noteLost(b.count-len(b.callbacks)-len(b.waiters), b.err)
	}
	p.producer.calls.push(b)
}

// offsetOf returns the offset of a record of a batch that was acknowledged.
func (b *pendingBatch) offsetOf(delta int32) Offset {
	if b.offset == UnknownOffset {
		return Offset{Partition: b.partition.number, Offset: UnknownOffset}
	}
	return Offset{Partition: b.partition.number, Offset: b.offset + int64(delta)}
}

// reportLocked gives a batch's records an error although the batch stays in the
// queue: it may be in flight, and its sequence numbers are taken.
func (p *producerPartition) reportLocked(b *pendingBatch, err error) {
	if b.state == batchInFlight || b.ambiguous {
		err = fmt.Errorf("%w: %w", err, ErrAmbiguous)
	}
	shell := p.producer.pool.Get().(*pendingBatch)
	shell.partition = p
	shell.state = batchDone
	shell.count = b.count
	shell.err = p.wrap(err)
	shell.callbacks, b.callbacks = b.callbacks, shell.callbacks
	shell.waiters, b.waiters = b.waiters, shell.waiters
	shell.flushes, b.flushes = b.flushes, shell.flushes
	shell.charged = min(callbackBytes*int64(len(shell.callbacks)), b.charged)
	b.charged -= shell.charged
	b.reported = true
	if b.state != batchInFlight {
		p.failLocked(b, err)
		b.free(&p.producer.budget)
	}
	p.deliverLocked(shell)
}

// expireLocked fails what has waited longer than DeliveryTimeout.
func (p *producerPartition) expireLocked(now int64) {
	m := &p.mu
	if m.open != nil && now >= m.open.deadline {
		p.closeOpenLocked(now)
	}
	for _, b := range m.queue {
		if now < b.deadline {
			break
		}
		if b.reported || b.state == batchDone {
			continue
		}
		err := fmt.Errorf("%w after %v", ErrTimeout, p.producer.config.DeliveryTimeout)
		if b.cause != nil {
			err = fmt.Errorf("%w: %w", err, b.cause)
		}
		p.reportLocked(b, err)
	}
	p.popLocked()
}

// flush makes the partition send all it has, and f wait for it.
func (p *producerPartition) flush(f *flushWait) {
	p.mu.Lock()
	m := &p.mu
	var last *pendingBatch
	if m.open != nil {
		last = m.open
		last.urgent = true
	} else if n := len(m.queue); n > 0 {
		last = m.queue[n-1]
	}
	// Callbacks of batches that left the queue may still have to run.
	f.left.Add(1)
	if last == nil || last.reported {
		p.producer.calls.pushFlush(p, f)
		p.mu.Unlock()
		return
	}
	last.flushes = append(last.flushes, f)
	due, idle := p.dueLocked(), !m.sending
	p.mu.Unlock()
	p.serve(due, idle)
}

// retire closes the partition if it holds no record, and tells whether it did.
func (p *producerPartition) retire() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.open != nil || len(p.mu.queue) > 0 {
		return false
	}
	p.mu.closed, p.mu.retired = true, true
	return true
}

// abort closes the partition, fails all it holds and returns how many records
// that were.
func (p *producerPartition) abort() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := &p.mu
	if m.open != nil {
		p.closeOpenLocked(p.producer.now())
	}
	m.closed = true
	records := 0
	for _, b := range m.queue {
		if !b.reported && b.state != batchDone {
			records += b.count
			err := fmt.Errorf("%w: flush before closing", ErrClosed)
			if b.cause != nil {
				err = fmt.Errorf("%w: %w", err, b.cause)
			}
			p.reportLocked(b, err)
		}
	}
	p.popLocked()
	return records
}
