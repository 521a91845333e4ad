package batch

import "fmt"

// What compaction needs of a Builder: batches that keep offsets, the last
// offset, timestamps and the delete horizon of the batch they replace.

// AppendAt is Append with a chosen offset delta, for compaction, which leaves
// gaps. It must be greater than the delta before and less than 2^31-1; Finish
// fails with ErrInvalidRecord otherwise. AppendAt tells whether the record was
// added.
func (b *Builder) AppendAt(delta int32, ts int64, key, value []byte, headers []Header) bool {
	if int64(delta) < b.next {
		b.fail(fmt.Errorf("offset delta %d where %d is the least: %w", delta, b.next, ErrInvalidRecord))
		return false
	}
	return b.add(int64(delta), ts, key, value, headers)
}

// RetainOffsets makes LastOffsetDelta at least delta, so that the batch stands
// for the same offsets as one it replaces. A batch with a retained last offset
// may be finished without any record. Records may be appended only after
// deltas that were retained.
func (b *Builder) RetainOffsets(delta int32) {
	if b.open && int64(delta) > b.last {
		b.last = int64(delta)
		b.next = b.last + 1
	}
}

// RetainMaxTimestamp makes MaxTimestamp at least ts, in milliseconds: for empty
// batches, which keep that of the batch they replace.
func (b *Builder) RetainMaxTimestamp(ts int64) {
	if b.open {
		b.maxTimestamp = max(b.maxTimestamp, ts)
	}
}

// RetainLogAppendTime makes the batch one whose records all have the timestamp
// ts, in milliseconds.
func (b *Builder) RetainLogAppendTime(ts int64) {
	if b.open {
		b.attributes |= attrLogAppendTime
		b.maxTimestamp = ts
	}
}

// SetDeleteHorizon puts into BaseTimestamp the time, in milliseconds, from which
// tombstones of the batch may go. It must come before the first Append, and
// does nothing after it. It tells whether it was done.
func (b *Builder) SetDeleteHorizon(ts int64) bool {
	if !b.open || b.count > 0 {
		return false
	}
	b.attributes |= attrDeleteHorizon
	b.baseTimestamp = ts
	return true
}
