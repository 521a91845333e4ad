package batch

import (
	"math"
	"sync"
)

// DefaultMaxDecompressed is the bound, in bytes, on what the records of one
// batch may decompress to where the caller gives none: 128 MiB.
const DefaultMaxDecompressed = 128 << 20

// Limits say what Validate accepts. The zero value suits batches read back from
// a log, which compaction may have thinned out.
type Limits struct {
	// MaxDecompressed bounds what the records may decompress to, in bytes.
	// 0 means DefaultMaxDecompressed; at most 1 GiB. Too small, and good
	// batches are refused with ErrTooLarge; too large, and one batch of a
	// hostile producer can take that much memory.
	MaxDecompressed int

	// Strict adds the rules for batches that come from a producer: at least
	// one record, offset deltas that count from 0 without gaps, a max timestamp
	// that is the maximum over the records, epoch and sequence wherever there
	// is a producer id, no delete horizon, and no compressed frames that only
	// some Kafka clients can read. Breaking them is ErrInvalidRecord or
	// ErrMaxTimestamp.
	Strict bool

	// SkipCRC leaves the checksum out, for callers who have just checked it.
	SkipCRC bool
}

// CheckHeader checks that b has a header which makes sense and is of the size
// the header says. It looks at no byte after the header, and not at the CRC.
//
// Errors: ErrTruncated, ErrUnsupportedMagic, ErrUnsupportedCodec, ErrCorrupt.
func (b Batch) CheckHeader() error {
	if len(b) < HeaderSize {
		return &TruncatedError{Have: len(b), Need: HeaderSize}
	}
	if m := b.Magic(); m != Magic {
		return headerError(b, ErrUnsupportedMagic, MagicOffset, "magic %d", m)
	}
	length := int64(b.int32(LengthOffset))
	if length < HeaderSize-PrefixSize || length+PrefixSize < int64(len(b)) {
		return headerError(b, ErrCorrupt, LengthOffset, "length %d in a batch of %d bytes", length, len(b))
	}
	if size := length + PrefixSize; size > int64(len(b)) {
		return &TruncatedError{Have: len(b), Need: int(min(size, math.MaxInt32))}
	}
	if a := b.Attributes(); a&^attrKnown != 0 {
		return headerError(b, ErrCorrupt, AttributesOffset, "unknown attribute bits in %#04x", uint16(a))
	}
	if c := b.Codec(); !c.known() {
		return headerError(b, ErrUnsupportedCodec, AttributesOffset, "codec %d", int8(c))
	}
	last, base := b.LastOffsetDelta(), b.BaseOffset()
	if last < 0 {
		return headerError(b, ErrCorrupt, LastOffsetDeltaOffset, "last offset delta %d", last)
	}
	if base < 0 || base >= math.MaxInt64-int64(last) {
		return headerError(b, ErrCorrupt, BaseOffsetOffset, "base offset %d with last delta %d", base, last)
	}
	return b.checkCount()
}

// checkCount compares the record count with the offsets and bytes there are.
func (b Batch) checkCount() error {
	count, last := int64(b.Count()), int64(b.LastOffsetDelta())
	if count < 0 || count > last+1 {
		return headerError(b, ErrCorrupt, CountOffset, "%d records with last offset delta %d", count, last)
	}
	size := int64(len(b) - HeaderSize)
	if (count == 0) != (size == 0) {
		return headerError(b, ErrCorrupt, CountOffset, "%d records in %d bytes", count, size)
	}
	if b.Codec() == None && count*minRecordSize > size {
		return headerError(b, ErrCorrupt, CountOffset, "%d records cannot fit in %d bytes", count, size)
	}
	return nil
}

// CheckCRC compares the CRC in the header with that of the bytes, from the
// attributes to the end of b. The base offset, length, leader epoch and magic
// are not covered. Errors: ErrTruncated when there is no whole header,
// ErrCorrupt.
func (b Batch) CheckCRC() error {
	if len(b) < HeaderSize {
		return &TruncatedError{Have: len(b), Need: HeaderSize}
	}
	if got, want := b.computeCRC(), b.CRC(); got != want {
		return headerError(b, ErrCorrupt, CRCOffset, "CRC is %#08x, header says %#08x", got, want)
	}
	return nil
}

// readers serve Validate, which needs one for the length of a call.
var readers = sync.Pool{New: func() any { return &Reader{skipHeaders: true} }}

// Validate checks all of b: header, CRC, that the records decompress within
// bounds, and that each of them decodes with nothing left over. It allocates
// only to decompress, and never beyond Limits.MaxDecompressed except while its
// buffer grows, when the old and the new one exist together.
//
// A batch that passes can be read by Reader without an error. ErrMaxTimestamp
// is reported last: with it, everything else is sound. Batches whose
// timestamps the leader gave have no such check, since their max timestamp
// holds for all records.
//
// Errors: those of CheckHeader and CheckCRC, ErrCorrupt, ErrTooLarge, and with
// Strict also ErrInvalidRecord and ErrMaxTimestamp.
func (b Batch) Validate(l Limits) error {
	_, err := b.Examine(l)
	return err
}

// Times are the earliest and the latest timestamp of a batch's records, of those
// that have one; NoTimestamp when none has.
type Times struct{ Earliest, Latest int64 }

// Examine is Validate for who wants to know the records' timestamps as well. They
// are right also when the error is ErrMaxTimestamp.
func (b Batch) Examine(l Limits) (Times, error) {
	none := Times{NoTimestamp, NoTimestamp}
	if err := b.CheckHeader(); err != nil {
		return none, err
	}
	if !l.SkipCRC {
		if err := b.CheckCRC(); err != nil {
			return none, err
		}
	}
	if l.Strict {
		if err := b.checkProducer(); err != nil {
			return none, err
		}
	}
	r := readers.Get().(*Reader)
	defer func() {
		// Nothing the caller owns may stay reachable from the pool.
		r.data, r.err = nil, nil
		if cap(r.buf) > keepBuffer {
			r.buf = nil
		}
		readers.Put(r)
	}()
	if err := r.Reset(b, l.MaxDecompressed); err != nil {
		return none, err
	}
	maxTimestamp, earliest := int64(math.MinInt64), int64(math.MaxInt64)
	var rec Record
	for r.Next(&rec) {
		maxTimestamp = max(maxTimestamp, rec.Timestamp)
		if rec.Timestamp != NoTimestamp {
			earliest = min(earliest, rec.Timestamp)
		}
	}
	if r.err != nil {
		return none, r.err
	}
	times := none
	if earliest != math.MaxInt64 {
		times = Times{earliest, maxTimestamp}
	}
	// Deltas increase and there are as many as the last one allows, so they
	// have no gaps.
	if l.Strict && maxTimestamp != b.MaxTimestamp() {
		return times, &MaxTimestampError{Header: b.MaxTimestamp(), Records: maxTimestamp}
	}
	return times, nil
}

// checkProducer checks the rules for the header of a batch from a producer, and
// that its compressed frame is one that every client reads.
func (b Batch) checkProducer() error {
	count := b.Count()
	if count == 0 {
		return headerError(b, ErrInvalidRecord, CountOffset, "no records")
	}
	if last := b.LastOffsetDelta(); int64(last) != int64(count)-1 {
		return headerError(b, ErrInvalidRecord, LastOffsetDeltaOffset,
			"last offset delta %d with %d records", last, count)
	}
	if b.HasDeleteHorizon() {
		return headerError(b, ErrInvalidRecord, AttributesOffset, "delete horizon set")
	}
	id, epoch, seq := b.ProducerID(), b.ProducerEpoch(), b.BaseSequence()
	if id >= 0 && (epoch < 0 || (seq < 0 && !b.IsControl())) {
		return headerError(b, ErrInvalidRecord, ProducerIDOffset,
			"producer id %d with epoch %d and sequence %d", id, epoch, seq)
	}
	if b.IsTransactional() && id < 0 {
		return headerError(b, ErrInvalidRecord, ProducerIDOffset, "transactional without a producer id")
	}
	if err := checkPortable(b.Records(), b.Codec()); err != nil {
		return &PositionError{Kind: ErrInvalidRecord, BaseOffset: b.BaseOffset(), Record: -1,
			Pos: HeaderSize, Detail: "not readable by every client", Cause: err}
	}
	return nil
}
