package replication

import (
	"errors"
	"fmt"
	"time"

	"github.com/billetlog/billet/internal/batch"
)

// The bounds of what is remembered of refused batches.
const (
	missingKeep = 10 * time.Second // far longer than batches behind one take to come in
	missingMax  = 4096             // producers in one partition
)

// missing remembers the first batches of producers of which the log knows nothing, when they were refused. Any sequence is taken from such a producer
// (KIP-360: what it wrote may have been deleted), so a batch that was sent behind a refused one would get in before it, and the first could never be written
// under its number. Until the producer sends the refused one again, those behind it are refused as well.
type missing map[int64]missingBatch

type missingBatch struct {
	epoch int16
	first int32 // sequence
	at    time.Time
}

// note takes a batch that was refused and will be sent again.
func (m *missing) note(producer int64, epoch int16, first int32, now time.Time) {
	if old, ok := (*m)[producer]; ok && old.epoch >= epoch && now.Sub(old.at) < missingKeep {
		return
	}
	if len(*m) >= missingMax {
		for id, old := range *m {
			if now.Sub(old.at) >= missingKeep {
				delete(*m, id)
			}
		}
		if len(*m) >= missingMax {
			return
		}
	}
	if *m == nil {
		*m = missing{}
	}
	(*m)[producer] = missingBatch{epoch, first, now}
}

// judge holds a batch of a producer of which the log knows nothing against the one that was refused.
func (m missing) judge(producer int64, epoch int16, first int32, now time.Time) error {
	due, ok := m[producer]
	if !ok || due.epoch != epoch || due.first == first || now.Sub(due.at) >= missingKeep {
		return nil
	}
	return fmt.Errorf("%w: producer %d epoch %d sent sequence %d, and %d before it was refused", ErrOutOfOrderSequence, producer, epoch, first, due.first)
}

// missed notes a batch that Append refused, if it can be sent again.
func (p *Partition) missed(b batch.Batch, acks Acks, err error) {
	id := b.ProducerID()
	if id == noProducer || b.BaseSequence() < 0 || acks == AcksNone {
		return
	}
	if !errors.Is(err, ErrNotLeader) && !errors.Is(err, ErrBusy) && !errors.Is(err, ErrNotEnoughReplicas) && !errors.Is(err, ErrDiskFull) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.pending[id] == nil && p.mu.fold.producers[id] == nil {
		p.mu.missing.note(id, b.ProducerEpoch(), b.BaseSequence(), p.host.now())
	}
}

// missedLocked notes a batch in flight that is about to be refused, unless its producer was told already that it is stored.
func (p *Partition) missedLocked(w *waiter) {
	if w.producer == noProducer || w.acks == AcksNone || (w.done == nil && len(w.also) == 0) || p.mu.fold.producers[w.producer] != nil {
		return
	}
	p.mu.missing.note(w.producer, w.generation, w.first, p.host.now())
}
