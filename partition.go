package billet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/billetlog/billet/internal/batch"
	"github.com/billetlog/billet/replication"
	"github.com/billetlog/billet/segment"
)

// Partition reads one partition without the state of a Consumer, from the node
// that leads it. It is safe for concurrent use and needs no Close. Its offsets
// are asked for where another node leads; while that does not answer within a
// second they are those heard last.
type Partition struct {
	log    *Log
	topic  string
	number int32
	local  partitionLog
}

// Partition returns a partition of a topic. Errors: ErrUnknownTopic, ErrClosed,
// ctx's own.
func (l *Log) Partition(ctx context.Context, topic string, n int32) (*Partition, error) {
	if err := l.check(ctx); err != nil {
		return nil, err
	}
	local, err := l.catalog.Partition(topic, n)
	if err != nil {
		return nil, fmt.Errorf("billet: partition %s/%d: %w", topic, n, wrapSeam(err))
	}
	return &Partition{log: l, topic: topic, number: n, local: local}, nil
}

// Info describes the partition at this moment.
func (p *Partition) Info() PartitionInfo {
	p.refresh()
	return p.log.describePartition(p.topic, p.number)
}

func (p *Partition) refresh() { refreshAll(context.Background(), []partitionLog{p.local}) }

// StartOffset returns the first offset that can be read.
func (p *Partition) StartOffset() int64 {
	p.refresh()
	return p.local.StartOffset()
}

// HighWatermark returns the offset up to which records can be read: that after the
// last one.
func (p *Partition) HighWatermark() int64 {
	p.refresh()
	return p.local.HighWatermark()
}

// EndOffset returns the offset that the next record gets.
func (p *Partition) EndOffset() int64 {
	p.refresh()
	return p.local.EndOffset()
}

// OffsetForTime returns the offset of the first record whose timestamp is t or
// later, or the high watermark when there is none. Errors: ErrCorrupt,
// ErrQuarantined, ErrClosed, ctx's own.
func (p *Partition) OffsetForTime(ctx context.Context, t time.Time) (int64, error) {
	if err := p.log.check(ctx); err != nil {
		return 0, err
	}
	offset, err := offsetForTime(ctx, p.local, t)
	if err != nil {
		return 0, fmt.Errorf("billet: find %v in %s/%d: %w", t, p.topic, p.number, p.explain(err))
	}
	return offset, nil
}

func offsetForTime(ctx context.Context, log partitionLog, t time.Time) (int64, error) {
	if err := log.Refresh(ctx); err != nil {
		return 0, wrapSeam(err)
	}
	high := log.HighWatermark() // before the search: what is later was not there
	offset, _, ok, err := log.OffsetForTime(ctx, t.UnixMilli())
	if err != nil {
		return 0, wrapSeam(err)
	}
	if !ok {
		return high, nil
	}
	return offset, nil
}

// Read returns up to maxRecords records from offset on, fewer if there are fewer
// or if they are large: about 1 MiB at a time, and at least one if there is one.
// At the high watermark it returns none. The records have memory of their own.
// It waits for a leader of the partition as long as ctx allows.
//
// Errors: ErrOffsetOutOfRange, ErrCorrupt, ErrQuarantined, ErrClosed, ctx's own.
func (p *Partition) Read(ctx context.Context, offset int64, maxRecords int) ([]Record, error) {
	if err := p.log.check(ctx); err != nil {
		return nil, err
	}
	c := p.local.NewCursor()
	defer c.Close()
	bytes, err := p.readBatches(ctx, c, offset)
	if err != nil {
		return nil, fmt.Errorf("billet: read %s/%d: %w", p.topic, p.number, p.explain(err))
	}
	var d decoder
	d.reset(p.topic, p.number, bytes, offset)
	var records []Record
	for len(records) < maxRecords {
		var ok bool
		if records, ok, err = d.next(records, maxRecords-len(records)); err != nil {
			suspect(c, d.end, err)
			return nil, fmt.Errorf("billet: read %s/%d: %w", p.topic, p.number, err)
		}
		if !ok {
			break
		}
	}
	return records, nil
}

// readBatches waits for what has to come from another node.
func (p *Partition) readBatches(ctx context.Context, c cursor, offset int64) ([]byte, error) {
	if err := p.local.Refresh(ctx); err != nil {
		return nil, wrapSeam(err)
	}
	for {
		bytes, err := readBatches(c, nil, p.local, offset, defaultMaxPollBytes)
		if len(bytes) > 0 || err != nil || p.local.Current() || offset == p.local.HighWatermark() {
			return bytes, err
		}
		if err := c.Wait(ctx); err != nil {
			return nil, err
		}
	}
}

// explain tells that a partition is closed because its topic was deleted.
func (p *Partition) explain(err error) error {
	if errors.Is(err, ErrClosed) && !errors.Is(err, ErrUnknownTopic) && !p.log.closed.Load() {
		if state, _ := p.local.State(); state == replication.StateClosed {
			return fmt.Errorf("%w: the topic was deleted: %w", ErrUnknownTopic, err)
		}
	}
	return err
}

// OffsetError is an ErrOffsetOutOfRange with what is there.
type OffsetError struct {
	Topic     string
	Partition int32
	// Offset is the position that was asked for.
	Offset int64
	// Start and End are the first offset there is and the one after the last.
	Start, End int64
}

// Error tells position and range.
func (e *OffsetError) Error() string {
	return fmt.Sprintf("%v: position %d, %d to %d can be read: seek there",
		ErrOffsetOutOfRange, e.Offset, e.Start, e.End)
}

// Unwrap returns ErrOffsetOutOfRange.
func (e *OffsetError) Unwrap() error { return ErrOffsetOutOfRange }

// readBatches appends whole batches from offset on to dst[:0].
func readBatches(c cursor, dst []byte, log partitionLog, offset int64, maxBytes int) ([]byte, error) {
	// Where another node leads, that node knows.
	if log.Current() {
		start, high := log.StartOffset(), log.HighWatermark()
		if offset < start || offset > high {
			return dst[:0], &OffsetError{Offset: offset, Start: start, End: high}
		}
	}
	bytes, err := c.Read(dst[:0], offset, maxBytes)
	if errors.Is(err, segment.ErrCompacted) || errors.Is(err, segment.ErrUnavailable) {
		return dst[:0], &OffsetError{Offset: offset, Start: log.StartOffset(), End: log.HighWatermark()}
	}
	return bytes, wrapSeam(err)
}

// suspect passes on that what a cursor gave is damaged, if that is what the error
// says.
func suspect(c cursor, offset int64, err error) {
	if errors.Is(err, ErrCorrupt) {
		c.Suspect(offset)
	}
}

// decoder takes records out of whole batches, checking each batch's CRC. Records
// alias the bytes, or for compressed batches buffers of the decoder that live
// until release.
type decoder struct {
	topic  string
	number int32
	rest   []byte // batches not begun
	from   int64  // records below this offset are skipped
	end    int64  // the offset after the batch begun last

	reader  *batch.Reader // of the batch that is begun, or nil
	readers []*batch.Reader
	used    int // readers whose buffer has records that are handed out
	record  batch.Record
	headers []Header
}

// reset begins with bytes, dropping what was left.
func (d *decoder) reset(topic string, number int32, bytes []byte, from int64) {
	d.topic, d.number, d.rest, d.from, d.end = topic, number, bytes, from, from
	d.reader = nil
}

// release says that no record handed out before is in use any more. A batch that
// is begun keeps its buffer.
func (d *decoder) release() {
	if d.reader != nil && d.used > 0 {
		last := d.used - 1
		d.readers[0], d.readers[last] = d.readers[last], d.readers[0]
		d.used = 1
	} else {
		d.used = 0
	}
	d.headers = d.headers[:0]
}

// pending tells whether there is more to decode.
func (d *decoder) pending() bool { return d.reader != nil || len(d.rest) > 0 }

// next appends up to limit records of one batch. ok is false when there are no
// batches left.
func (d *decoder) next(out []Record, limit int) (_ []Record, ok bool, err error) {
	if d.reader == nil {
		if len(d.rest) == 0 {
			return out, false, nil
		}
		if err := d.begin(); err != nil {
			return out, false, err
		}
		if d.reader == nil {
			return out, true, nil // a control batch
		}
	}
	rec := &d.record
	for limit > 0 {
		if !d.reader.Next(rec) {
			err := d.reader.Err()
			d.reader = nil
			return out, true, wrapSeam(err)
		}
		if rec.Offset < d.from {
			continue
		}
		out = append(out, Record{Topic: d.topic, Partition: d.number, Offset: rec.Offset,
			Timestamp: time.UnixMilli(rec.Timestamp), Key: rec.Key, Value: rec.Value})
		if len(rec.Headers) > 0 {
			out[len(out)-1].Headers = d.keepHeaders(rec.Headers)
		}
		d.from = rec.Offset + 1
		limit--
	}
	return out, true, nil
}

// keepHeaders copies headers to memory that lives until release.
func (d *decoder) keepHeaders(headers []batch.Header) []Header {
	n := len(d.headers)
	for _, h := range headers {
		d.headers = append(d.headers, Header(h))
	}
	return d.headers[n:len(d.headers):len(d.headers)]
}

// begin takes the next batch.
func (d *decoder) begin() error {
	b, rest, err := batch.Split(d.rest, 0)
	if err == nil {
		err = b.CheckCRC()
	}
	if err != nil {
		return wrapSeam(err)
	}
	d.rest = rest
	d.end = b.NextOffset()
	if b.IsControl() {
		d.from = max(d.from, d.end)
		return nil
	}
	if d.used == len(d.readers) {
		d.readers = append(d.readers, &batch.Reader{})
	}
	r := d.readers[d.used]
	if err := r.Reset(b, maxInflated); err != nil {
		return wrapSeam(err)
	}
	if b.Codec() != batch.None {
		d.used++
	}
	d.reader = r
	return nil
}

// maxInflated bounds what one batch may decompress to, in bytes.
const maxInflated = batch.DefaultMaxDecompressed
