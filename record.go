package billet

import (
	"bytes"
	"fmt"
	"strings"
	"time"
	"unsafe"

	"github.com/billetlog/billet/internal/batch"
)

// Record is one record, to be produced or as consumed.
type Record struct {
	// Topic is the topic's name. Required when producing.
	Topic string
	// Partition is the partition the record was read from. When producing it
	// counts only with ManualPartitioner; otherwise the key decides.
	Partition int32
	// Offset is the record's place in its partition. Ignored when producing.
	Offset int64
	// Timestamp is kept in milliseconds, as Kafka does. When producing, the
	// zero time means now, and times before 1970 are refused. Topics with message.timestamp.type=LogAppendTime
	// replace it, and every topic refuses one too far from the clock, see
	// message.timestamp.before.max.ms and message.timestamp.after.max.ms.
	Timestamp time.Time
	// Key chooses the partition and may be nil, which is not the same as
	// empty: records without a key are spread over partitions, records with an
	// empty key are all in one.
	Key []byte
	// Value may be nil (a tombstone, for topics that will be compacted) or
	// empty; the difference is kept.
	Value []byte
	// Headers are kept in order. Names may repeat.
	Headers []Header
}

// Header is a name and a value attached to a record.
type Header struct {
	Key string
	// Value may be nil or empty; the difference is kept.
	Value []byte
}

// Clone returns a copy that shares no memory with the record, for records that
// must outlive the Poll they came from.
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

// Offset says where a record went.
type Offset struct {
	// Partition is the partition's number, from 0.
	Partition int32
	// Offset is the record's offset in it, from 0; UnknownOffset with AcksNone.
	Offset int64
}

// UnknownOffset is the Offset of records that were produced without waiting for
// an answer.
const UnknownOffset = -1

// PartitionForKey returns the partition, from 0 to partitions-1, in which every
// Kafka client's default partitioner puts records with this key. It is -1 if
// partitions is not positive. A nil key is treated as an empty one here,
// although records without a key are spread over all partitions.
func PartitionForKey(key []byte, partitions int) int {
	return batch.PartitionForKey(key, partitions)
}

// batchHeaders views headers as those of package batch: the two structs have
// the same fields, so only the name of the type differs.
func batchHeaders(headers []Header) []batch.Header {
	if len(headers) == 0 {
		return nil
	}
	return unsafe.Slice((*batch.Header)(unsafe.Pointer(unsafe.SliceData(headers))), len(headers))
}

// The conversion compiles only while both structs are the same.
var _ = batch.Header(Header{})

// recordSizeBound returns what the record can take at most in a batch, in bytes,
// without reading more than lengths.
func recordSizeBound(key, value []byte, headers []Header) int {
	const (
		fixed  = 36 // length, attributes, two deltas, two field lengths, header count
		header = 10 // two lengths
	)
	n := fixed + len(key) + len(value)
	for i := range headers {
		n += header + len(headers[i].Key) + len(headers[i].Value)
	}
	return n
}

// timestampRule is what a topic allows of timestamps. The zero value allows all from
// 1970 on.
type timestampRule struct {
	bounded       bool
	before, after time.Duration // of the clock; negative: no bound
}

// check returns an ErrInvalidRecord for a timestamp that a record must not have.
// A record is refused alone this way, and not with those it would share a batch
// with.
func (r *timestampRule) check(t time.Time) error {
	if t.IsZero() {
		return nil
	}
	ms := t.UnixMilli()
	if ms < 0 {
		return fmt.Errorf("%w: timestamp %v: give one from 1970 on, or none for the clock's", ErrInvalidRecord, t)
	}
	if !r.bounded {
		return nil
	}
	ahead := ms - time.Now().UnixMilli()
	if r.after >= 0 && ahead > r.after.Milliseconds() {
		return fmt.Errorf("%w: timestamp %v is %d ms ahead of the clock, message.timestamp.after.max.ms is %d",
			ErrInvalidRecord, t, ahead, r.after.Milliseconds())
	}
	if r.before >= 0 && -ahead > r.before.Milliseconds() {
		return fmt.Errorf("%w: timestamp %v is %d ms behind the clock, message.timestamp.before.max.ms is %d",
			ErrInvalidRecord, t, -ahead, r.before.Milliseconds())
	}
	return nil
}

// timestampMillis returns the record's timestamp in milliseconds, or now when it
// has none.
func timestampMillis(t time.Time, now int64) int64 {
	if t.IsZero() {
		return now
	}
	return t.UnixMilli()
}

// timestampOf returns the record's timestamp in milliseconds, or the clock's.
func timestampOf(t time.Time) int64 {
	if t.IsZero() {
		return time.Now().UnixMilli()
	}
	return t.UnixMilli()
}
