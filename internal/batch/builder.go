package batch

import (
	"encoding/binary"
	"fmt"
	"math"
)

const (
	// MaxSize is the largest batch, in bytes with its header, that a Builder
	// makes: what fits in the length field.
	MaxSize = math.MaxInt32

	// DefaultCapacity is the room, in bytes, that a Builder allocates at first
	// when BuilderOptions.Capacity is 0.
	DefaultCapacity = 16 << 10
)

// BuilderOptions say what kind of batch to build. The zero value builds an
// uncompressed batch at offset 0 of no particular producer.
type BuilderOptions struct {
	// Codec compresses the records. Default: None.
	Codec Codec
	// Level is the codec's level; see Compress. Default: 0, the codec's own.
	Level int
	// BaseOffset is the offset of the first record. Default and usual for
	// producers: 0. Must not be negative.
	BaseOffset int64

	// HasProducer says that the next three fields are set. Without it
	// NoProducer is written for all three.
	HasProducer bool
	// ProducerID, ProducerEpoch and BaseSequence identify the producer and the
	// batch among its batches.
	ProducerID    int64
	ProducerEpoch int16
	BaseSequence  int32

	// Transactional marks the batch as part of a transaction.
	Transactional bool
	// Control marks the batch as holding control records.
	Control bool

	// Capacity is how many bytes of batch to have room for at first. Default:
	// DefaultCapacity. Too small costs a copy whenever the buffer doubles.
	Capacity int
	// Headroom is how many bytes to leave free before the batch, for a frame
	// around it; see Builder.Framed. Default: 0.
	Headroom int
}

// Builder makes record batches: Reset, any number of Append, Finish, and again.
// The zero value needs a Reset first. A Builder is for one goroutine at a time.
//
// Records are encoded as they are appended, so keys, values and headers may be
// reused by the caller as soon as Append returns.
type Builder struct {
	opts BuilderOptions

	buf   []byte // headroom, header, records
	spare []byte // another buffer, or nil
	done  []byte // headroom and batch handed out by Finish
	open  bool
	err   error // sticky, reported by Finish

	count         int
	next          int64 // offset delta of the next record
	last          int64 // LastOffsetDelta so far, -1 when there is none
	baseTimestamp int64
	maxTimestamp  int64 // math.MinInt64 while there is none
	attributes    int16 // beyond what opts say
}

// Reset begins a new batch, dropping one that was not finished. Batches that
// Finish returned earlier are not touched.
func (b *Builder) Reset(opts BuilderOptions) {
	opts.Headroom = max(opts.Headroom, 0)
	if opts.Capacity <= 0 {
		opts.Capacity = DefaultCapacity
	}
	buf := b.buf
	if buf == nil {
		buf, b.spare = b.spare, nil
	}
	*b = Builder{opts: opts, spare: b.spare, open: true,
		last: -1, baseTimestamp: NoTimestamp, maxTimestamp: math.MinInt64}
	start := opts.Headroom + HeaderSize
	size := opts.Headroom + max(opts.Capacity, HeaderSize)
	if buf == nil {
		buf = takeBuffer(size)
	} else if cap(buf) < start {
		buf = make([]byte, 0, size)
	}
	b.buf = buf[:start]
}

// Append adds a record with timestamp ts in milliseconds and returns its offset
// delta. A nil key or value is a null one, an empty one is not. The first
// record's timestamp becomes the batch's base.
//
// It returns -1 and adds nothing when the batch would pass MaxSize or the
// builder is not open. Finish then returns the error.
func (b *Builder) Append(ts int64, key, value []byte, headers []Header) (delta int) {
	if !b.add(b.next, ts, key, value, headers) {
		return -1
	}
	return int(b.last)
}

// add appends a record with the given offset delta, which the caller has
// checked.
func (b *Builder) add(delta, ts int64, key, value []byte, headers []Header) bool {
	if !b.open {
		b.fail(ErrFinished)
		return false
	}
	if b.count == 0 && b.attributes&attrDeleteHorizon == 0 {
		b.baseTimestamp = ts
	}
	body := bodySize(ts-b.baseTimestamp, delta, key, value, headers)
	size := recordSize(body)
	pos := len(b.buf)
	if int64(pos-b.opts.Headroom)+size > MaxSize || delta > math.MaxInt32-1 {
		b.fail(fmt.Errorf("record %d of %d bytes after %d bytes of batch: %w",
			b.count, size, pos-b.opts.Headroom, ErrTooLarge))
		return false
	}
	if int64(cap(b.buf)-pos) < size {
		b.grow(int(size))
	}
	b.buf = b.buf[:pos+int(size)]
	putRecord(b.buf, pos, body, ts-b.baseTimestamp, delta, key, value, headers)
	if b.attributes&attrLogAppendTime == 0 {
		b.maxTimestamp = max(b.maxTimestamp, ts)
	}
	b.count++
	b.last = delta
	b.next = delta + 1
	return true
}

func (b *Builder) fail(err error) {
	if b.err == nil {
		b.err = err
	}
}

// grow makes room for n more bytes, at least doubling the buffer.
func (b *Builder) grow(n int) {
	buf := make([]byte, len(b.buf), max(2*cap(b.buf), len(b.buf)+n))
	copy(buf, b.buf)
	Release(b.buf)
	b.buf = buf
}

// Size returns the size in bytes of the batch so far, header included, records
// not compressed. 0 if the builder is not open.
func (b *Builder) Size() int {
	if !b.open {
		return 0
	}
	return len(b.buf) - b.opts.Headroom
}

// SizeAfter returns exactly what Size would be after appending the record. It
// may be beyond MaxSize.
func (b *Builder) SizeAfter(ts int64, key, value []byte, headers []Header) int64 {
	tsDelta := ts - b.baseTimestamp
	if b.count == 0 && b.attributes&attrDeleteHorizon == 0 {
		tsDelta = 0
	}
	return int64(b.Size()) + recordSize(bodySize(tsDelta, b.next, key, value, headers))
}

// Count returns how many records have been appended since Reset.
func (b *Builder) Count() int { return b.count }

// Finish completes the batch and returns it. From then on its memory belongs to
// the caller, who may keep it, or give it back with Release when nobody refers
// to it any more. The builder needs a Reset before it is used again.
//
// Records that do not get smaller by compression are stored uncompressed and
// the batch says so: readers gain, and none cares.
//
// Errors: the first error of the Appends since Reset, ErrEmpty without records,
// those of Compress, ErrFinished. On an error there is no batch.
func (b *Builder) Finish() (Batch, error) {
	if !b.open {
		b.fail(ErrFinished)
		return nil, b.err
	}
	b.open = false
	if b.err == nil && b.last < 0 {
		b.err = ErrEmpty
	}
	if b.err == nil && b.opts.BaseOffset < 0 {
		b.err = fmt.Errorf("base offset %d: %w", b.opts.BaseOffset, ErrInvalidRecord)
	}
	if b.err != nil {
		return nil, b.err
	}
	codec, err := b.compress()
	if err != nil {
		b.err = err
		return nil, err
	}
	if codec == None {
		b.done, b.buf = b.buf, nil
	}
	batch := Batch(b.done[b.opts.Headroom:])
	b.putHeader(batch, codec)
	return batch, nil
}

// Framed returns the memory of the last batch that Finish returned since Reset,
// beginning with the headroom: Framed()[Headroom:] is that batch. The headroom's
// bytes are arbitrary. It is nil if there is no such batch.
func (b *Builder) Framed() []byte { return b.done }

// compress leaves headroom, space for a header, and compressed records in done
// and returns the codec, or returns None if the records stay as they are in buf.
func (b *Builder) compress() (Codec, error) {
	if b.opts.Codec == None || b.count == 0 {
		return None, nil
	}
	start := b.opts.Headroom + HeaderSize
	records := b.buf[start:]
	out := b.spare
	b.spare = nil
	if cap(out) < start+len(records)/2 {
		out = takeBuffer(start + len(records))
	}
	if cap(out) < start {
		out = make([]byte, 0, start+len(records))
	}
	out, err := Compress(out[:start], records, b.opts.Codec, b.opts.Level)
	if err != nil {
		return None, err
	}
	if len(out)-start >= len(records) {
		b.spare = out[:0]
		return None, nil
	}
	b.done = out
	return b.opts.Codec, nil
}

// putHeader writes the header of a batch whose records are in place.
func (b *Builder) putHeader(batch Batch, codec Codec) {
	o := &b.opts
	attributes := int16(codec) | b.attributes
	if o.Transactional {
		attributes |= attrTransactional
	}
	if o.Control {
		attributes |= attrControl
	}
	id, epoch, seq := int64(NoProducer), int16(NoProducer), int32(NoProducer)
	if o.HasProducer {
		id, epoch, seq = o.ProducerID, o.ProducerEpoch, o.BaseSequence
	}
	maxTimestamp := b.maxTimestamp
	if maxTimestamp == math.MinInt64 {
		maxTimestamp = NoTimestamp
	}
	be := binary.BigEndian
	batch.SetBaseOffset(o.BaseOffset)
	be.PutUint32(batch[LengthOffset:], uint32(len(batch)-PrefixSize))
	batch.SetLeaderEpoch(NoLeaderEpoch)
	batch[MagicOffset] = Magic
	batch.setAttributes(attributes)
	be.PutUint32(batch[LastOffsetDeltaOffset:], uint32(b.last))
	be.PutUint64(batch[BaseTimestampOffset:], uint64(b.baseTimestamp))
	be.PutUint64(batch[MaxTimestampOffset:], uint64(maxTimestamp))
	be.PutUint64(batch[ProducerIDOffset:], uint64(id))
	be.PutUint16(batch[ProducerEpochOffset:], uint16(epoch))
	be.PutUint32(batch[BaseSequenceOffset:], uint32(seq))
	be.PutUint32(batch[CountOffset:], uint32(b.count))
	batch.updateCRC()
}
