package batch

import (
	"fmt"
	"unsafe"
)

// keepBuffer is the largest decompression buffer, in bytes, that a Reader keeps
// from one batch to the next.
const keepBuffer = 4 << 20

// Reader walks the records of a batch. The zero value is ready for Reset. A
// Reader is meant to be reused: it keeps its decompression buffer, up to 4 MiB,
// from batch to batch. It is for one goroutine at a time.
//
// A Reader checks structure, not the CRC. It does not require offset deltas to
// be contiguous, since compaction leaves gaps, but they must increase and stay
// within the batch.
type Reader struct {
	data  []byte // records, decompressed
	pos   int    // in data
	index int    // of the next record
	count int    // of records in the batch
	prev  int32  // offset delta of the record before, -1 at first
	last  int32  // greatest offset delta allowed

	baseOffset    int64
	baseTimestamp int64
	maxTimestamp  int64
	logAppendTime bool
	skipHeaders   bool // check headers but do not collect them

	buf []byte // decompression buffer
	err error
}

// Reset starts on batch b, decompressing it if need be. maxDecompressed bounds
// in bytes what its records may decompress to; 0 means DefaultMaxDecompressed.
// The reader refers to b until the next Reset. Records that an earlier Next
// returned are invalid from now on.
//
// Errors: those of Batch.CheckHeader, and ErrCorrupt or ErrTooLarge when the
// records do not decompress. After an error Next returns false and Err returns
// that error.
func (r *Reader) Reset(b Batch, maxDecompressed int) error {
	r.data, r.pos, r.index, r.count, r.prev = nil, 0, 0, 0, -1
	if r.err = b.CheckHeader(); r.err != nil {
		return r.err
	}
	r.last = b.LastOffsetDelta()
	r.baseOffset = b.BaseOffset()
	r.baseTimestamp = b.BaseTimestamp()
	r.maxTimestamp = b.MaxTimestamp()
	r.logAppendTime = b.TimestampType() == LogAppendTime
	codec, count := b.Codec(), b.Count()
	if codec == None || count == 0 {
		r.data, r.count = b.Records(), count
		return nil
	}
	if cap(r.buf) > keepBuffer {
		r.buf = nil
	}
	out, err := Decompress(r.buf[:0], b.Records(), codec, maxDecompressed)
	if err != nil {
		r.err = &PositionError{Kind: kindOf(err), BaseOffset: r.baseOffset, Record: -1,
			Pos: HeaderSize, Detail: "decompressing " + codec.String(), Cause: err}
		return r.err
	}
	r.buf = out
	if int64(count)*minRecordSize > int64(len(out)) {
		r.err = headerError(b, ErrCorrupt, CountOffset,
			"%d records cannot fit in %d decompressed bytes", count, len(out))
		return r.err
	}
	r.data, r.count = out, count
	return nil
}

// Next decodes the next record into rec and tells whether there was one. At the
// end, or on an error, it returns false; Err tells which.
//
// Key, Value and Headers, header names included, alias the batch or the
// reader's buffer: they are valid until the next Reset of this reader, and only
// as long as the batch's bytes stay as they are. The Headers slice of rec is
// reused by a Next with the same rec. Use Record.Clone to keep a record.
//
// Next allocates nothing besides growing rec.Headers, 40 bytes for each header,
// of which each takes at least 2 bytes in the batch.
func (r *Reader) Next(rec *Record) bool {
	if r.index >= r.count {
		r.finish()
		return false
	}
	length, pos := varint(r.data, r.pos)
	if pos < 0 || length < 0 || int(length) > len(r.data)-pos {
		return r.fail()
	}
	end := pos + int(length)
	body := r.data[:end]
	pos++ // attributes; when that passes the end, the next read fails
	tsDelta, pos := varlong(body, pos)
	delta, pos := varint(body, pos)
	key, pos := field(body, pos)
	value, pos := field(body, pos)
	headers, pos := varint(body, pos)
	rec.Headers = rec.Headers[:0]
	if headers != 0 {
		pos = r.headers(rec, body, pos, int(headers))
	}
	if pos != end || delta <= r.prev || delta > r.last {
		return r.fail()
	}
	rec.Offset = r.baseOffset + int64(delta)
	rec.Timestamp = r.baseTimestamp + tsDelta
	if r.logAppendTime {
		rec.Timestamp = r.maxTimestamp
	}
	rec.Key, rec.Value = key, value
	r.prev, r.pos = delta, end
	r.index++
	return true
}

// headers reads n headers at body[pos:] and returns the position after them, or
// -1.
func (r *Reader) headers(rec *Record, body []byte, pos, n int) int {
	const minHeaderSize = 2
	if pos < 0 || n < 0 || n > (len(body)-pos)/minHeaderSize {
		return -1
	}
	for range n {
		var key, value []byte
		key, pos = field(body, pos)
		value, pos = field(body, pos)
		if pos < 0 || key == nil {
			return -1
		}
		if !r.skipHeaders {
			rec.Headers = append(rec.Headers, Header{
				Key:   unsafe.String(unsafe.SliceData(key), len(key)),
				Value: value,
			})
		}
	}
	return pos
}

// Err returns the error that ended the walk, nil when all records were read or
// more are to come. It is a *PositionError of kind ErrCorrupt, or the error of
// Reset.
func (r *Reader) Err() error { return r.err }

// finish looks for bytes after the last record.
func (r *Reader) finish() {
	if r.err == nil && r.pos != len(r.data) {
		r.err = r.errorAt(r.pos, "%d bytes after the last record", len(r.data)-r.pos)
	}
}

// fail ends the walk at the record that starts at r.pos. It reads the record a
// second time, slowly, to say what is wrong with it.
func (r *Reader) fail() bool {
	r.err = r.explain()
	r.index = r.count
	return false
}

func (r *Reader) explain() error {
	length, pos := varint(r.data, r.pos)
	if pos < 0 {
		return r.errorAt(r.pos, "no record length")
	}
	if length < 0 || int(length) > len(r.data)-pos {
		return r.errorAt(r.pos, "record length %d, but %d bytes are left", length, len(r.data)-pos)
	}
	end := pos + int(length)
	body := r.data[:end]
	at := pos + 1
	if _, pos = varlong(body, at); pos < 0 {
		return r.errorAt(at, "bad timestamp delta")
	}
	at = pos
	delta, pos := varint(body, at)
	if pos < 0 {
		return r.errorAt(at, "bad offset delta")
	}
	if delta <= r.prev || delta > r.last {
		return r.errorAt(at, "offset delta %d is not between %d and %d", delta, int64(r.prev)+1, r.last)
	}
	at = pos
	if _, pos = field(body, at); pos < 0 {
		return r.errorAt(at, "bad key")
	}
	at = pos
	if _, pos = field(body, at); pos < 0 {
		return r.errorAt(at, "bad value")
	}
	at = pos
	headers, pos := varint(body, at)
	if pos < 0 || headers < 0 {
		return r.errorAt(at, "bad header count")
	}
	skip := Reader{skipHeaders: true}
	if pos = skip.headers(nil, body, pos, int(headers)); pos < 0 {
		return r.errorAt(at, "%d bad headers", headers)
	}
	return r.errorAt(pos, "record has %d bytes too many", end-pos)
}

func (r *Reader) errorAt(pos int, format string, args ...any) error {
	return &PositionError{Kind: ErrCorrupt, BaseOffset: r.baseOffset, Record: r.index,
		Pos: pos, Detail: fmt.Sprintf(format, args...)}
}

// DecodeAll returns all records of b. They alias b when it is not compressed,
// and otherwise a buffer of their own that lives as long as they do; each has
// its own Headers. A Record takes 88 bytes, and at least 7 in the batch, so of
// batches from strangers a Reader makes less. maxDecompressed is as for Reader.Reset, and so are the
// errors. On an error no records are returned.
func DecodeAll(b Batch, maxDecompressed int) ([]Record, error) {
	var r Reader
	if err := r.Reset(b, maxDecompressed); err != nil {
		return nil, err
	}
	records := make([]Record, 0, r.count)
	for {
		var rec Record
		if !r.Next(&rec) {
			break
		}
		records = append(records, rec)
	}
	if r.err != nil {
		return nil, r.err
	}
	return records, nil
}
