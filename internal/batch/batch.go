package batch

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
)

// Batch is one whole record batch, header first, nothing after it. It is a view:
// whoever owns the bytes owns the batch, and methods that set fields write into
// them.
//
// Accessors check nothing. They need HeaderSize bytes, and their results mean
// something only once CheckHeader or Validate has passed.
type Batch []byte

// TimestampType says whose clock a batch's timestamps come from.
type TimestampType int8

const (
	// CreateTime timestamps were given by the producer, one for each record.
	CreateTime TimestampType = 0
	// LogAppendTime timestamps were given by the leader: all records of the
	// batch have its max timestamp.
	LogAppendTime TimestampType = 1
)

// Split takes the first batch off b. The batch and the rest alias b.
//
// It checks the length field and the magic byte only. maxSize bounds the size
// of the batch in bytes, header included; 0 means no bound but the format's.
//
// Errors: ErrTruncated (as *TruncatedError) when b ends before the batch does,
// which includes an empty b; ErrCorrupt when the length cannot be one;
// ErrTooLarge when it is beyond maxSize; ErrUnsupportedMagic. On an error batch
// is nil and rest is b.
func Split(b []byte, maxSize int) (batch Batch, rest []byte, err error) {
	if len(b) < PrefixSize {
		return nil, b, &TruncatedError{Have: len(b), Need: PrefixSize}
	}
	length := int64(int32(binary.BigEndian.Uint32(b[LengthOffset:])))
	const oldest = MagicOffset + 1 - PrefixSize
	if length >= oldest && len(b) > MagicOffset && b[MagicOffset] != Magic {
		return nil, b, headerError(b, ErrUnsupportedMagic, MagicOffset,
			"magic %d", int8(b[MagicOffset]))
	}
	if length < HeaderSize-PrefixSize {
		return nil, b, headerError(b, ErrCorrupt, LengthOffset,
			"length %d is less than a header", length)
	}
	size := length + PrefixSize
	if maxSize <= 0 {
		maxSize = math.MaxInt32
	}
	if size > int64(maxSize) {
		return nil, b, headerError(b, ErrTooLarge, LengthOffset,
			"%d bytes, limit is %d", size, maxSize)
	}
	if size > int64(len(b)) {
		return nil, b, &TruncatedError{Have: len(b), Need: int(size)}
	}
	return Batch(b[:size:size]), b[size:], nil
}

// headerError builds a PositionError for byte pos of the header of b.
func headerError(b []byte, kind error, pos int, format string, args ...any) error {
	base := int64(-1)
	if len(b) >= LengthOffset {
		base = int64(binary.BigEndian.Uint64(b))
	}
	return &PositionError{Kind: kind, BaseOffset: base, Record: -1, Pos: pos,
		Detail: fmt.Sprintf(format, args...)}
}

// BaseOffset returns the offset that deltas of the batch's records add to. It
// is the first record's offset, except after compaction removed that one.
func (b Batch) BaseOffset() int64 { return b.int64(BaseOffsetOffset) }

// Size returns the size in bytes of the whole batch by its length field.
func (b Batch) Size() int { return int(b.int32(LengthOffset)) + PrefixSize }

// LeaderEpoch returns the epoch of the leader that appended the batch, or
// NoLeaderEpoch.
func (b Batch) LeaderEpoch() int32 { return b.int32(LeaderEpochOffset) }

// Magic returns the message format, 2 in every valid batch.
func (b Batch) Magic() int8 { return int8(b[MagicOffset]) }

// CRC returns the checksum stored in the header.
func (b Batch) CRC() uint32 { return binary.BigEndian.Uint32(b[CRCOffset:]) }

// Attributes returns the attribute bits. The accessors from Codec to
// HasDeleteHorizon take them apart.
func (b Batch) Attributes() int16 { return b.int16(AttributesOffset) }

// Codec returns how the records are compressed. An unchecked batch may give a
// codec that is not known.
func (b Batch) Codec() Codec { return Codec(b.Attributes() & attrCodecMask) }

// TimestampType returns whose clock the timestamps come from.
func (b Batch) TimestampType() TimestampType {
	if b.Attributes()&attrLogAppendTime != 0 {
		return LogAppendTime
	}
	return CreateTime
}

// IsTransactional tells whether the batch belongs to a transaction.
func (b Batch) IsTransactional() bool { return b.Attributes()&attrTransactional != 0 }

// IsControl tells whether the batch holds control records, which applications
// never see, such as the marker that ends a transaction.
func (b Batch) IsControl() bool { return b.Attributes()&attrControl != 0 }

// HasDeleteHorizon tells whether compaction has put into BaseTimestamp the
// time, in milliseconds, from which tombstones in the batch may go.
func (b Batch) HasDeleteHorizon() bool { return b.Attributes()&attrDeleteHorizon != 0 }

// LastOffsetDelta returns LastOffset minus BaseOffset. Compaction keeps it.
func (b Batch) LastOffsetDelta() int32 { return b.int32(LastOffsetDeltaOffset) }

// LastOffset returns the last offset the batch stands for. After compaction no
// record need have it.
func (b Batch) LastOffset() int64 { return b.BaseOffset() + int64(b.LastOffsetDelta()) }

// NextOffset returns the offset that follows the batch.
func (b Batch) NextOffset() int64 { return b.LastOffset() + 1 }

// BaseTimestamp returns what timestamp deltas of the records add to, in
// milliseconds.
func (b Batch) BaseTimestamp() int64 { return b.int64(BaseTimestampOffset) }

// MaxTimestamp returns the largest timestamp of the batch's records, in
// milliseconds, or NoTimestamp.
func (b Batch) MaxTimestamp() int64 { return b.int64(MaxTimestampOffset) }

// ProducerID returns the id of the idempotent or transactional producer, or
// NoProducer.
func (b Batch) ProducerID() int64 { return b.int64(ProducerIDOffset) }

// ProducerEpoch returns the producer's epoch, or NoProducer.
func (b Batch) ProducerEpoch() int16 { return b.int16(ProducerEpochOffset) }

// BaseSequence returns the sequence number of the first record, or NoProducer.
func (b Batch) BaseSequence() int32 { return b.int32(BaseSequenceOffset) }

// LastSequence returns the sequence number of the last record, or NoProducer.
// Sequence numbers wrap from 2^31-1 to 0.
func (b Batch) LastSequence() int32 {
	base := b.BaseSequence()
	if base < 0 {
		return NoProducer
	}
	return int32((int64(base) + int64(b.LastOffsetDelta())) & math.MaxInt32)
}

// Count returns how many records the header says there are.
func (b Batch) Count() int { return int(b.int32(CountOffset)) }

// Records returns the bytes after the header, compressed as Codec says. They
// alias the batch.
func (b Batch) Records() []byte { return b[HeaderSize:] }

// SetBaseOffset sets the base offset, which the CRC does not cover.
func (b Batch) SetBaseOffset(offset int64) {
	binary.BigEndian.PutUint64(b[BaseOffsetOffset:], uint64(offset))
}

// SetLeaderEpoch sets the leader epoch, which the CRC does not cover.
func (b Batch) SetLeaderEpoch(epoch int32) {
	binary.BigEndian.PutUint32(b[LeaderEpochOffset:], uint32(epoch))
}

// SetLogAppendTime makes the batch one whose records all have the timestamp
// ts, in milliseconds, and computes the CRC anew. The records' bytes stay.
func (b Batch) SetLogAppendTime(ts int64) {
	b.setAttributes(b.Attributes() | attrLogAppendTime)
	b.SetMaxTimestamp(ts)
}

// SetMaxTimestamp sets the max timestamp, in milliseconds, and computes the CRC
// anew. It is the repair for ErrMaxTimestamp.
func (b Batch) SetMaxTimestamp(ts int64) {
	binary.BigEndian.PutUint64(b[MaxTimestampOffset:], uint64(ts))
	b.updateCRC()
}

func (b Batch) setAttributes(bits int16) {
	binary.BigEndian.PutUint16(b[AttributesOffset:], uint16(bits))
}

func (b Batch) computeCRC() uint32 {
	return crc32.Checksum(b[AttributesOffset:], castagnoli)
}

func (b Batch) updateCRC() {
	binary.BigEndian.PutUint32(b[CRCOffset:], b.computeCRC())
}

func (b Batch) int16(pos int) int16 { return int16(binary.BigEndian.Uint16(b[pos:])) }
func (b Batch) int32(pos int) int32 { return int32(binary.BigEndian.Uint32(b[pos:])) }
func (b Batch) int64(pos int) int64 { return int64(binary.BigEndian.Uint64(b[pos:])) }
