package batch

import (
	"bytes"
	"strings"
)

// Record is one decoded record.
type Record struct {
	// Offset is absolute.
	Offset int64
	// Timestamp is in milliseconds since the Unix epoch.
	Timestamp int64
	// Key is nil for a null key; an empty key is not nil.
	Key []byte
	// Value is nil for a null value (a tombstone on a compacted topic); an
	// empty value is not nil.
	Value []byte
	// Headers are in the order they were written.
	Headers []Header
}

// Header is a name and a value attached to a record. Names may repeat.
type Header struct {
	Key string
	// Value is nil for a null value; an empty value is not nil.
	Value []byte
}

// Clone returns a copy of the record that shares no memory with it, for records
// that must outlive the Reader they came from. Null and empty stay apart.
func (r *Record) Clone() Record {
	c := *r
	c.Key = bytes.Clone(r.Key)
	c.Value = bytes.Clone(r.Value)
	c.Headers = nil
	if len(r.Headers) > 0 {
		c.Headers = make([]Header, len(r.Headers))
		for i, h := range r.Headers {
			c.Headers[i] = Header{Key: strings.Clone(h.Key), Value: bytes.Clone(h.Value)}
		}
	}
	return c
}

// bodySize returns the value of a record's length field: the encoded size
// without that field itself. The result is an int64 so that it cannot overflow.
func bodySize(tsDelta, offsetDelta int64, key, value []byte, headers []Header) int64 {
	n := int64(1+varlongSize(tsDelta)+varlongSize(offsetDelta)) +
		fieldSize(key) + fieldSize(value)
	if len(headers) == 0 {
		return n + 1
	}
	n += int64(varlongSize(int64(len(headers))))
	for i := range headers {
		h := &headers[i]
		n += int64(varlongSize(int64(len(h.Key)))) + int64(len(h.Key)) + fieldSize(h.Value)
	}
	return n
}

// recordSize returns the encoded size of a record whose body has n bytes.
func recordSize(n int64) int64 { return int64(varlongSize(n)) + n }

// fieldSize returns the encoded size of a nullable byte string.
func fieldSize(f []byte) int64 {
	if f == nil {
		return 1
	}
	return int64(varlongSize(int64(len(f)))) + int64(len(f))
}

// putRecord writes a record at b[pos:], which must have room for
// recordSize(body), and returns the position after it.
func putRecord(b []byte, pos int, body, tsDelta, offsetDelta int64, key, value []byte, headers []Header) int {
	pos = putVarlong(b, pos, body)
	b[pos] = 0
	pos = putVarlong(b, pos+1, tsDelta)
	pos = putVarlong(b, pos, offsetDelta)
	pos = putField(b, pos, key)
	pos = putField(b, pos, value)
	pos = putVarlong(b, pos, int64(len(headers)))
	for i := range headers {
		h := &headers[i]
		pos = putVarlong(b, pos, int64(len(h.Key)))
		pos += copy(b[pos:], h.Key)
		pos = putField(b, pos, h.Value)
	}
	return pos
}

func putField(b []byte, pos int, f []byte) int {
	if f == nil {
		return putVarlong(b, pos, -1)
	}
	pos = putVarlong(b, pos, int64(len(f)))
	return pos + copy(b[pos:], f)
}

// field reads a nullable byte string at b[pos:] and returns it, aliasing b, and
// the position after it, or -1 when there is none.
func field(b []byte, pos int) ([]byte, int) {
	n, pos := varint(b, pos)
	if pos < 0 || int(n) > len(b)-pos {
		return nil, -1
	}
	if n < 0 {
		if n == -1 {
			return nil, pos
		}
		return nil, -1
	}
	end := pos + int(n)
	return b[pos:end:end], end
}
