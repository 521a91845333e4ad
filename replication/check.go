package replication

import (
	"errors"
	"fmt"
	"math"

	"github.com/billetlog/billet/internal/batch"
)

// Check holds a batch that comes from a client against all rules, which Append does not: bytes, records, size and the timestamp of every record. It
// decompresses and walks the batch once. A max timestamp in the header that is not that of the records is put right, as Kafka does.
//
// Errors: ErrInvalidTopic where clients may not write, ErrTooLarge, ErrInvalidTimestamp, ErrInvalidBatch for records and producers that break a rule, and of package
// batch ErrCorrupt, ErrUnsupportedCodec and ErrUnsupportedMagic.
func (p *Partition) Check(b batch.Batch) error {
	s := p.settings.Load()
	if p.spec.Internal {
		return fmt.Errorf("%w: %s is internal", ErrInvalidTopic, p.name())
	}
	if len(b) > s.MaxMessageBytes {
		return fmt.Errorf("%w: %d bytes for %s, max.message.bytes is %d: send smaller batches or raise it", ErrTooLarge, len(b), p.name(), s.MaxMessageBytes)
	}
	times, err := b.Examine(batch.Limits{Strict: true})
	var wrong *batch.MaxTimestampError
	if errors.As(err, &wrong) && b.TimestampType() == batch.CreateTime {
		b.SetMaxTimestamp(wrong.Records)
		err = nil
	}
	if err != nil {
		return p.checkError(err)
	}
	switch {
	case b.IsControl():
		return fmt.Errorf("%w: %s: a control batch of a client", ErrInvalidBatch, p.name())
	case b.IsTransactional():
		return fmt.Errorf("%w: %s: a batch of a transaction, which are not served here", ErrInvalidBatch, p.name())
	case b.TimestampType() != batch.CreateTime:
		return fmt.Errorf("%w: %s: a client says that its timestamps are the log's", ErrInvalidTimestamp, p.name())
	}
	now := p.host.now().UnixMilli()
	if err := p.checkTimes(times, s, now); err != nil {
		return &RecordsError{Records: s.badTimes(b, now), cause: err}
	}
	return nil
}

// RecordsError is the error of a batch of which single records are at fault: the first of them, RecordErrorsMax at most.
type RecordsError struct {
	Records []RecordError
	cause   error
}

// RecordError is what is wrong with one record.
type RecordError struct {
	Index   int32 // in its batch
	Message string
}

// RecordErrorsMax bounds the records that an error names.
const RecordErrorsMax = 1000

// Error is what is wrong with the worst of them.
func (e *RecordsError) Error() string { return e.cause.Error() }

// Unwrap returns the kind of error.
func (e *RecordsError) Unwrap() error { return e.cause }

// badTimes finds the records whose timestamps are out of bounds, in a batch that can be read.
func (s *Settings) badTimes(b batch.Batch, now int64) (bad []RecordError) {
	var r batch.Reader
	if r.Reset(b, 0) != nil {
		return nil
	}
	least, most := int64(math.MinInt64), int64(math.MaxInt64)
	if s.TimestampBeforeMax >= 0 {
		least = now - s.TimestampBeforeMax.Milliseconds()
	}
	if s.TimestampAfterMax >= 0 {
		most = now + s.TimestampAfterMax.Milliseconds()
	}
	var one batch.Record
	for i := int32(0); r.Next(&one) && len(bad) < RecordErrorsMax; i++ {
		if one.Timestamp != batch.NoTimestamp && (one.Timestamp < least || one.Timestamp > most) {
			bad = append(bad, RecordError{i, fmt.Sprintf("Timestamp %d of message with offset %d is out of range. The timestamp should be within [%d, %d]",
				one.Timestamp, one.Offset, least, most)})
		}
	}
	return bad
}

// checkError says what an error of package batch means for whoever sent the batch.
func (p *Partition) checkError(err error) error {
	switch {
	case errors.Is(err, batch.ErrUnsupportedCodec), errors.Is(err, batch.ErrUnsupportedMagic), errors.Is(err, batch.ErrCorrupt):
		return fmt.Errorf("replication: %s: %w", p.name(), err)
	case errors.Is(err, batch.ErrTruncated):
		return fmt.Errorf("replication: %s: %w: %w", p.name(), batch.ErrCorrupt, err)
	case errors.Is(err, batch.ErrTooLarge):
		return fmt.Errorf("%w: %s: %w", ErrTooLarge, p.name(), err)
	}
	return fmt.Errorf("%w: %s: %w", ErrInvalidBatch, p.name(), err)
}

// checkTimes applies message.timestamp.*. A timestamp far in the future would keep retention from ever deleting, one far in the past would delete
// at once (KIP-937).
func (p *Partition) checkTimes(times batch.Times, s *Settings, now int64) error {
	if s.LogAppendTime {
		return nil
	}
	if late := times.Latest - now; s.TimestampAfterMax >= 0 && late > s.TimestampAfterMax.Milliseconds() {
		return fmt.Errorf("%w: %s: %d ms ahead of this node's clock, message.timestamp.after.max.ms is %d", ErrInvalidTimestamp, p.name(), late, s.TimestampAfterMax.Milliseconds())
	}
	if times.Earliest == batch.NoTimestamp {
		return nil
	}
	if early := now - times.Earliest; s.TimestampBeforeMax >= 0 && early > s.TimestampBeforeMax.Milliseconds() {
		return fmt.Errorf("%w: %s: %d ms behind this node's clock, message.timestamp.before.max.ms is %d", ErrInvalidTimestamp, p.name(), early, s.TimestampBeforeMax.Milliseconds())
	}
	return nil
}
