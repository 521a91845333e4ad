package replication

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/billetlog/billet/internal/batch"
)

// fold is what a partition's applied batches add up to: what each idempotent producer wrote last (KIP-98), and where each leader's records begin (KIP-101).
// It is a pure function of the log's prefix, but for how many producers and epochs are remembered.
type fold struct {
	producers map[int64]*producerState
	epochs    []epochStart // ascending
	maxTime   int64        // newest batch timestamp, milliseconds
}

// producerWindow is how many batches of a producer are remembered, and so how many it may have in flight. Kafka's brokers remember 5, and
// its clients keep to that.
const producerWindow = 16

// producersMax bounds the producers remembered per partition: beyond it the one that wrote longest ago is forgotten.
const producersMax = 16384

type producerState struct {
	epoch   int16
	last    int64 // timestamp of the newest batch
	n       int   // batches remembered
	batches [producerWindow]producedBatch
}

type producedBatch struct {
	first, last int32 // sequences
	offset      int64 // base offset
}

func newFold() *fold { return &fold{producers: make(map[int64]*producerState), maxTime: math.MinInt64} }

// noProducer is the producer id of batches that are not idempotent.
const noProducer = -1

// apply takes a batch that took effect.
func (f *fold) apply(b batch.Batch) {
	ts := b.MaxTimestamp()
	f.maxTime = max(f.maxTime, ts)
	f.beginEpoch(b.LeaderEpoch(), b.BaseOffset())
	id := b.ProducerID()
	if id == noProducer || b.BaseSequence() < 0 {
		return
	}
	p := f.producers[id]
	if p == nil || p.epoch != b.ProducerEpoch() {
		if p == nil && len(f.producers) >= producersMax {
			f.forgetOldest()
		}
		p = &producerState{epoch: b.ProducerEpoch()}
		f.producers[id] = p
	}
	p.last = max(p.last, ts)
	if p.n == producerWindow {
		copy(p.batches[:], p.batches[1:])
		p.n--
	}
	p.batches[p.n] = producedBatch{first: b.BaseSequence(), last: b.LastSequence(), offset: b.BaseOffset()}
	p.n++
}

func (f *fold) forgetOldest() {
	oldest, at := int64(noProducer), int64(math.MaxInt64)
	for id, p := range f.producers {
		if p.last < at || (p.last == at && id < oldest) {
			oldest, at = id, p.last
		}
	}
	delete(f.producers, oldest)
}

// judge holds a batch against what the producer wrote before: lastSeq and epoch are those of its newest batch, seen is false when the
// producer is not known (as when retention removed all it wrote), which accepts any sequence.
func judge(id int64, epoch int16, first int32, seen bool, lastEpoch int16, lastSeq int32) error {
	switch {
	case !seen:
		return nil
	case epoch < lastEpoch:
		return fmt.Errorf("%w: producer %d wrote with epoch %d, this batch has %d: stop this producer", ErrProducerFenced, id, lastEpoch, epoch)
	case epoch > lastEpoch:
		if first != 0 {
			return fmt.Errorf("%w: producer %d begins epoch %d with sequence %d instead of 0", ErrOutOfOrderSequence, id, epoch, first)
		}
		return nil
	case first != nextSequence(lastSeq):
		return fmt.Errorf("%w: producer %d epoch %d sent sequence %d after %d", ErrOutOfOrderSequence, id, epoch, first, lastSeq)
	}
	return nil
}

// nextSequence wraps to 0 after the largest int32, as Kafka does.
func nextSequence(s int32) int32 {
	if s == math.MaxInt32 {
		return 0
	}
	return s + 1
}

// find returns the base offset of a batch of the producer that is remembered with the same sequences.
func (p *producerState) find(epoch int16, first, last int32) (int64, bool) {
	if p == nil || p.epoch != epoch {
		return 0, false
	}
	for i := range p.n {
		if p.batches[i].first == first && p.batches[i].last == last {
			return p.batches[i].offset, true
		}
	}
	return 0, false
}

// The fold's encoding in a checkpoint, all integers big-endian:
//
//	version 1 | newest timestamp 8 | last membership change 8 | producers 4 | each: id 8, epoch 2, timestamp 8, batches 1,
//	each batch: first sequence 4, last sequence 4, base offset 8
//	then epochs 4 | each: epoch 4, offset 8
//
// The checkpoint's own checksum covers it. One of another version is no fold: the log is read instead.
const foldVersion = 2

var errFold = errors.New("replication: fold in the checkpoint")

func (f *fold) encode(lastConfig uint64) []byte {
	b := make([]byte, 0, 25+len(f.producers)*(19+producerWindow*16)+len(f.epochs)*epochStartSize)
	b = append(b, foldVersion)
	b = binary.BigEndian.AppendUint64(b, uint64(f.maxTime))
	b = binary.BigEndian.AppendUint64(b, lastConfig)
	b = binary.BigEndian.AppendUint32(b, uint32(len(f.producers)))
	for id, p := range f.producers {
		b = binary.BigEndian.AppendUint64(b, uint64(id))
		b = binary.BigEndian.AppendUint16(b, uint16(p.epoch))
		b = binary.BigEndian.AppendUint64(b, uint64(p.last))
		b = append(b, byte(p.n))
		for _, w := range p.batches[:p.n] {
			b = binary.BigEndian.AppendUint32(b, uint32(w.first))
			b = binary.BigEndian.AppendUint32(b, uint32(w.last))
			b = binary.BigEndian.AppendUint64(b, uint64(w.offset))
		}
	}
	return f.encodeEpochs(b)
}

func decodeFold(b []byte) (f *fold, lastConfig uint64, err error) {
	if len(b) < 21 || b[0] != foldVersion {
		return nil, 0, fmt.Errorf("%w: %d bytes of an unknown version", errFold, len(b))
	}
	f = newFold()
	f.maxTime = int64(binary.BigEndian.Uint64(b[1:]))
	lastConfig = binary.BigEndian.Uint64(b[9:])
	n := binary.BigEndian.Uint32(b[17:])
	b = b[21:]
	for range n {
		if len(b) < 19 {
			return nil, 0, fmt.Errorf("%w: cut in a producer", errFold)
		}
		id := int64(binary.BigEndian.Uint64(b))
		p := &producerState{epoch: int16(binary.BigEndian.Uint16(b[8:])), last: int64(binary.BigEndian.Uint64(b[10:])), n: int(b[18])}
		b = b[19:]
		if p.n > producerWindow || len(b) < p.n*16 {
			return nil, 0, fmt.Errorf("%w: producer %d has %d batches in %d bytes", errFold, id, p.n, len(b))
		}
		for i := range p.n {
			p.batches[i] = producedBatch{
				first:  int32(binary.BigEndian.Uint32(b)),
				last:   int32(binary.BigEndian.Uint32(b[4:])),
				offset: int64(binary.BigEndian.Uint64(b[8:])),
			}
			b = b[16:]
		}
		f.producers[id] = p
	}
	return f, lastConfig, f.decodeEpochs(b)
}
