package billet

import (
	"context"
	"time"
)

// identityTimeout bounds one attempt to get a new producer id in the background.
const identityTimeout = time.Second

// pump sends what is due, in order, until nothing is. One goroutine at a time is
// in it; others leave at once, since it looks again before it leaves. Only the
// sender's goroutine, which has the time, may fetch a new identity.
func (p *producerPartition) pump(isSender bool) {
	p.mu.Lock()
	if p.mu.sending {
		p.mu.Unlock()
		return
	}
	p.mu.sending = true
	for {
		b, renew := p.takeLocked()
		switch {
		case b != nil:
			p.mu.Unlock()
			p.send(b)
			p.mu.Lock()
			continue
		case renew && isSender:
			p.mu.Unlock()
			identity, err := p.freshIdentity()
			p.mu.Lock()
			p.renewLocked(identity, err)
			continue
		}
		due := p.dueLocked()
		p.mu.sending = false
		p.mu.Unlock()
		if due < never {
			p.producer.sender.schedule(p, due)
		}
		return
	}
}

// takeLocked returns the batch to send now, or nil, and whether a new identity
// is needed before there can be one.
func (p *producerPartition) takeLocked() (b *pendingBatch, renew bool) {
	m := &p.mu
	if m.closed || m.inFlight >= p.producer.config.MaxInFlight {
		return nil, false
	}
	if m.next >= len(m.queue) && m.open == nil && !m.rewind && !m.renew {
		return nil, false
	}
	now := p.producer.now()
	if now < m.retryAt {
		return nil, false
	}
	if m.rewind || m.renew {
		if m.inFlight > 0 {
			return nil, false
		}
		m.rewind = false
		m.next = 0
		// What may have been written must be asked for by its old name.
		if m.renew && !(len(m.queue) > 0 && m.queue[0].ambiguous && m.queue[0].state == batchQueued) {
			if len(m.queue) > 0 || m.open != nil {
				return nil, true
			}
		}
	}
	for m.next < len(m.queue) && m.queue[m.next].state != batchQueued {
		m.next++
	}
	if m.next == len(m.queue) {
		if m.open == nil || p.openDueLocked() > now {
			return nil, false
		}
		p.closeOpenLocked(now)
	}
	b = m.queue[m.next]
	m.next++
	m.inFlight++
	b.state = batchInFlight
	return b, false
}

// send hands one batch to the log. p.mu is not held: the answer may come before
// Append returns.
func (p *producerPartition) send(b *pendingBatch) {
	if err := b.finish(); err != nil {
		p.completed(b, appendResult{Err: err})
		return
	}
	p.log.Append(b.bytes, p.producer.options, b.done)
}

// freshIdentity asks for a new producer id.
func (p *producerPartition) freshIdentity() (producerIdentity, error) {
	ctx, cancel := context.WithTimeout(p.producer.life, identityTimeout)
	defer cancel()
	id, epoch, err := p.producer.catalog.NewProducerID(ctx)
	return producerIdentity{id: id, epoch: epoch}, err
}

// renewLocked numbers all batches anew under a new identity, or arranges for
// another attempt to get one.
func (p *producerPartition) renewLocked(identity producerIdentity, err error) {
	m := &p.mu
	if err != nil {
		p.backOffLocked()
		return
	}
	m.renew = false
	m.identity = identity
	m.sequence = 0
	for _, b := range m.queue {
		if b.state == batchQueued {
			b.identity, b.sequence, b.stamped = m.identity, m.sequence, false
			b.ambiguous = false
			m.sequence = addSequence(m.sequence, b.count)
		}
	}
	// The open batch gets its number when it is closed.
}

// backOffLocked doubles the wait before the next attempt.
func (p *producerPartition) backOffLocked() {
	m := &p.mu
	config := &p.producer.config
	m.backoff = min(max(2*m.backoff, config.RetryBackoff), config.RetryBackoffMax)
	m.retryAt = p.producer.now() + int64(m.backoff)
}
