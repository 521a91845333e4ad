package batch

import (
	"errors"
	"strconv"
	"strings"
)

// Errors to branch on with errors.Is. Where a position is known the error is
// also a *PositionError.
var (
	// ErrCorrupt says that bytes cannot be what a correct writer wrote: a
	// checksum differs, a length points outside, a compressed frame is broken.
	ErrCorrupt = errors.New("corrupt batch")

	// ErrTruncated says that the bytes end before the batch does. More bytes
	// may complete it. The error is a *TruncatedError telling how many.
	ErrTruncated = errors.New("truncated batch")

	// ErrTooLarge says that a batch, or what it decompresses to, is beyond the
	// limit given by the caller or by the format.
	ErrTooLarge = errors.New("batch too large")

	// ErrUnsupportedMagic says that the batch has a message format other
	// than 2.
	ErrUnsupportedMagic = errors.New("unsupported message format")

	// ErrUnsupportedCodec says that the compression codec is unknown.
	ErrUnsupportedCodec = errors.New("unsupported compression codec")

	// ErrInvalidLevel says that a compression level is out of its codec's
	// range.
	ErrInvalidLevel = errors.New("invalid compression level")

	// ErrInvalidRecord says that the bytes are sound but break a rule that
	// producers must keep, such as offset deltas counting 0, 1, 2 and so on.
	// Only validation with Limits.Strict returns it.
	ErrInvalidRecord = errors.New("invalid record")

	// ErrMaxTimestamp says that the header's max timestamp is not the maximum
	// over the records, everything else being sound. The error is a
	// *MaxTimestampError; Batch.SetMaxTimestamp repairs it.
	ErrMaxTimestamp = errors.New("max timestamp does not match the records")

	// ErrEmpty says that a Builder was finished with neither a record nor a
	// retained offset.
	ErrEmpty = errors.New("empty batch")

	// ErrFinished says that a Builder was used between Finish and Reset, or
	// before its first Reset.
	ErrFinished = errors.New("builder is not open")
)

// PositionError is an error at a known place in a batch. Unwrap leads to its
// Kind, one of the sentinels of this package, and to its Cause.
type PositionError struct {
	// Kind is the sentinel to branch on. Never nil.
	Kind error
	// BaseOffset is the base offset in the batch's header, -1 if the header is
	// not complete.
	BaseOffset int64
	// Record is the index of the record in the batch, counted from 0; -1 when
	// the header or the batch as a whole is at fault.
	Record int
	// Pos is a byte position: in the batch when Record is -1, otherwise in the
	// decompressed records.
	Pos int
	// Detail says what was found there.
	Detail string
	// Cause is the error of a codec, or nil.
	Cause error
}

// Error says what is wrong, where, and what was found.
func (e *PositionError) Error() string {
	var s strings.Builder
	s.WriteString(e.Kind.Error())
	s.WriteString(" at base offset ")
	s.WriteString(strconv.FormatInt(e.BaseOffset, 10))
	if e.Record >= 0 {
		s.WriteString(", record ")
		s.WriteString(strconv.Itoa(e.Record))
	}
	s.WriteString(", byte ")
	s.WriteString(strconv.Itoa(e.Pos))
	if e.Detail != "" {
		s.WriteString(": ")
		s.WriteString(e.Detail)
	}
	if e.Cause != nil {
		s.WriteString(": ")
		s.WriteString(e.Cause.Error())
	}
	return s.String()
}

// Unwrap returns the kind and, if there is one, the cause.
func (e *PositionError) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Cause}
}

// TruncatedError is an ErrTruncated that tells how many bytes are wanted.
type TruncatedError struct {
	// Have is how many bytes there are.
	Have int
	// Need is how many bytes are needed to go on: the batch's whole size, or
	// PrefixSize while the length field itself is not complete.
	Need int
}

// Error tells both sizes.
func (e *TruncatedError) Error() string {
	return ErrTruncated.Error() + ": have " + strconv.Itoa(e.Have) +
		" bytes, need " + strconv.Itoa(e.Need)
}

// Unwrap returns ErrTruncated.
func (e *TruncatedError) Unwrap() error { return ErrTruncated }

// MaxTimestampError is an ErrMaxTimestamp with both values, in milliseconds
// since the Unix epoch.
type MaxTimestampError struct {
	// Header is the max timestamp in the batch's header.
	Header int64
	// Records is the maximum over the records' timestamps.
	Records int64
}

// Error tells both values.
func (e *MaxTimestampError) Error() string {
	return ErrMaxTimestamp.Error() + ": header has " + strconv.FormatInt(e.Header, 10) +
		", records have " + strconv.FormatInt(e.Records, 10)
}

// Unwrap returns ErrMaxTimestamp.
func (e *MaxTimestampError) Unwrap() error { return ErrMaxTimestamp }
