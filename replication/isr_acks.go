package replication

import (
	"fmt"
	"slices"
)

// What min.insync.replicas demands. A majority has every committed batch, so a setting up to that asks only whether enough replicas are in sync when
// a batch arrives. Above it the answer is held back until enough have the batch; readers may see the batch before.

// heldAck is a committed batch whose answer waits for more replicas.
type heldAck struct {
	index uint64 // Raft's, of the batch or one after it
	need  int    // replicas
	until int64  // host's monotonic clock
	done  []completion
}

// admitISR refuses a batch when too few replicas are in sync.
func (p *Partition) admitISR(need int) error {
	if need <= 1 {
		return nil
	}
	n := int(p.inSync.Load())
	if n >= need {
		return nil
	}
	p.host.isr.watch(p) // it may be out of date
	return fmt.Errorf("%w: %s has %d in sync, min.insync.replicas is %d: bring nodes back, add replicas or lower it", ErrNotEnoughReplicas, p.name(), n, need)
}

// replicasBeyond is how many replicas must be known to have a batch before it is answered; 0: being committed is enough.
func (p *Partition) replicasBeyond(voters []uint64) int {
	need := p.settings.Load().MinInsyncReplicas
	if need <= len(voters)/2+1 {
		return 0
	}
	return need
}

// replicatedTo says whether need voters have the log up to index.
func (p *Partition) replicatedTo(index uint64, epoch uint64, need int, voters []uint64) bool {
	g := p.r.progress.Load()
	n := 0
	for _, v := range voters {
		switch {
		case v == p.spec.Replica:
			if p.r.storedTo.Load() >= index {
				n++
			}
		case g != nil && g.term == epoch && g.matchOf(v) >= index:
			n++
		}
	}
	return n >= need
}

// holdLocked keeps the answers back if the setting demands it; whoever calls it calls releaseHeld when p.mu is free again.
func (p *Partition) holdLocked(index uint64, done []completion) bool {
	need := p.replicasBeyond(p.voters())
	if need == 0 || len(done) == 0 {
		return false
	}
	until := p.host.isr.now() + int64(p.host.cfg.ReplicaLagTimeMax)
	p.mu.held = append(p.mu.held, heldAck{index, need, until, slices.Clone(done)})
	p.holding.Store(int32(len(p.mu.held)))
	return true
}

// onProgress implements replicaHooks.
func (p *Partition) onProgress() {
	if p.holding.Load() > 0 {
		p.releaseHeld()
	}
}

// releaseHeld answers, in order, what enough replicas have by now.
func (p *Partition) releaseHeld() {
	if p.holding.Load() == 0 {
		return
	}
	voters, g := p.voters(), p.r.progress.Load()
	if g == nil {
		return
	}
	p.answerHeld(nil, func(a *heldAck) bool { return p.replicatedTo(a.index, g.term, a.need, voters) })
}

// expireHeld gives up on what has waited too long.
func (p *Partition) expireHeld(now int64) {
	if p.holding.Load() == 0 {
		return
	}
	p.releaseHeld()
	err := fmt.Errorf("%w: %s: within %v", ErrNotEnoughReplicasAfterAppend, p.name(), p.host.cfg.ReplicaLagTimeMax)
	p.answerHeld(err, func(a *heldAck) bool { return a.until <= now })
}

// failHeld gives up on all: what becomes of the other replicas is not heard any more.
func (p *Partition) failHeld(cause error) {
	if p.holding.Load() == 0 {
		return
	}
	p.answerHeld(fmt.Errorf("%w: %s: %w", ErrNotEnoughReplicasAfterAppend, p.name(), cause), func(*heldAck) bool { return true })
}

// answerHeld answers the oldest ones for which due is true, with err if there is one.
func (p *Partition) answerHeld(err error, due func(*heldAck) bool) {
	var ready []completion
	p.mu.Lock()
	n := 0
	for n < len(p.mu.held) && due(&p.mu.held[n]) {
		ready = append(ready, p.mu.held[n].done...)
		n++
	}
	if n > 0 {
		p.mu.held = slices.Delete(p.mu.held, 0, n)
		p.holding.Store(int32(len(p.mu.held)))
		p.signalLocked() // there is room for further batches
	}
	p.mu.Unlock()
	for _, c := range ready {
		if err != nil {
			c.res = AppendResult{Offset: -1, Err: err}
		}
		c.done(c.res)
	}
}
