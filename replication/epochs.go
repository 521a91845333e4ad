package replication

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sort"
)

// epochStart is where the records of one leader's epoch begin. An epoch without records has none.
type epochStart struct {
	epoch  int32
	offset int64
}

const (
	epochStartSize = 12

	// epochsMax bounds the epochs remembered per partition: beyond it the oldest is forgotten.
	epochsMax = 8192
)

// beginEpoch notes the epoch of a batch.
func (f *fold) beginEpoch(epoch int32, offset int64) {
	if n := len(f.epochs); epoch < 0 || (n > 0 && epoch <= f.epochs[n-1].epoch) {
		return
	}
	f.epochs = append(f.epochs, epochStart{epoch, offset})
	if len(f.epochs) > epochsMax {
		f.epochs = slices.Delete(f.epochs, 0, len(f.epochs)-epochsMax)
	}
}

// forgetEpochs forgets those whose records are all below the log's start.
func (f *fold) forgetEpochs(start int64) {
	f.epochs = slices.Delete(f.epochs, 0, f.epochsBelow(start))
}

// epochsBelow is how many of the epochs end at or below an offset.
func (f *fold) epochsBelow(start int64) int {
	n := sort.Search(len(f.epochs), func(i int) bool { return f.epochs[i].offset > start })
	return max(n-1, 0)
}

// epochEnd returns the largest of the epochs that is not above the given one, and where the next one begins; end when it is the last.
func (f *fold) epochEnd(epoch int32, start, end int64) (largest int32, at int64, ok bool) {
	kept := f.epochs[f.epochsBelow(start):]
	n := sort.Search(len(kept), func(i int) bool { return kept[i].epoch > epoch })
	if n == 0 || start >= end {
		return 0, 0, false
	}
	if n < len(kept) {
		end = kept[n].offset
	}
	return kept[n-1].epoch, end, true
}

// epochAt is the epoch of the record with the offset, which is one that is kept; -1 when it is not remembered.
func (f *fold) epochAt(offset int64) int32 {
	n := sort.Search(len(f.epochs), func(i int) bool { return f.epochs[i].offset > offset })
	if n == 0 {
		return -1
	}
	return f.epochs[n-1].epoch
}

func (f *fold) encodeEpochs(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(f.epochs)))
	for _, e := range f.epochs {
		b = binary.BigEndian.AppendUint32(b, uint32(e.epoch))
		b = binary.BigEndian.AppendUint64(b, uint64(e.offset))
	}
	return b
}

func (f *fold) decodeEpochs(b []byte) error {
	if len(b) < 4 {
		return fmt.Errorf("%w: cut before the epochs", errFold)
	}
	n := int64(binary.BigEndian.Uint32(b))
	if b = b[4:]; int64(len(b)) != n*epochStartSize || n > epochsMax {
		return fmt.Errorf("%w: %d epochs in %d bytes", errFold, n, len(b))
	}
	for ; len(b) > 0; b = b[epochStartSize:] {
		e := epochStart{int32(binary.BigEndian.Uint32(b)), int64(binary.BigEndian.Uint64(b[4:]))}
		if k := len(f.epochs); e.epoch < 0 || e.offset < 0 || (k > 0 && (e.epoch <= f.epochs[k-1].epoch || e.offset <= f.epochs[k-1].offset)) {
			return fmt.Errorf("%w: epoch %d at offset %d is out of order", errFold, e.epoch, e.offset)
		}
		f.epochs = append(f.epochs, e)
	}
	return nil
}

// EpochEnd returns the largest epoch that has committed records and is not above the given one, and where it ends: the offset at which the next epoch that has
// records begins, or the end of what is committed. Where this replica leads, its own epoch counts as well, without records too. ok is false
// when there is none such. What is not applied yet is not seen: ask the leader.
func (p *Partition) EpochEnd(epoch int32) (largest int32, end int64, ok bool) {
	led := p.Epoch()
	start := p.StartOffset()
	p.mu.Lock()
	defer p.mu.Unlock()
	if led > 0 && epoch >= led {
		return led, max(p.mu.end, start), true
	}
	return p.mu.fold.epochEnd(epoch, start, p.mu.end)
}

// EpochAt returns the epoch of the committed record with the offset, -1 when there is none or it is not known.
func (p *Partition) EpochAt(offset int64) int32 {
	start := p.StartOffset()
	p.mu.Lock()
	defer p.mu.Unlock()
	if offset < start || offset >= p.mu.end {
		return -1
	}
	return p.mu.fold.epochAt(offset)
}
