package segment

import (
	"errors"
	"fmt"
)

// Errors to branch on. Every error of this package wraps one of them or an error of the file system.
var (
	// ErrCorrupt means that bytes on disk are not what was written. Nothing was cut or repaired. The error is a *CorruptionError;
	// only an Importer has others, for bytes that never reached the disk.
	ErrCorrupt = errors.New("segment: damaged")
	// ErrFailed means that an earlier write or sync of this log failed. No write is accepted until the log is opened again.
	ErrFailed = errors.New("segment: log failed earlier")
	// ErrClosed means that the log, reader or journal is closed.
	ErrClosed = errors.New("segment: closed")
	// ErrCompacted means that the index or offset asked for lies below the first one kept.
	ErrCompacted = errors.New("segment: no longer kept")
	// ErrUnavailable means that the index or offset asked for lies above the last one stored.
	ErrUnavailable = errors.New("segment: not stored yet")
	// ErrGap means that entries given to Append do not continue the log, or reach below what may be truncated.
	ErrGap = errors.New("segment: entries do not follow the log")
	// ErrForeign means that a file belongs to another cluster, topic, partition or replica.
	ErrForeign = errors.New("segment: file of another log")
)

// CorruptionError says where damage was found.
type CorruptionError struct {
	File   string // path of the file
	Pos    int64  // position in it of the first byte that is not right, as far as can be told
	Offset int64  // the Kafka offset expected there, -1 when it does not apply
	Reason string // what was found and what was expected
}

// Error implements error.
func (e *CorruptionError) Error() string {
	return fmt.Sprintf("segment: %s is damaged at byte %d: %s; nothing was cut: restore the file or refill the replica", e.File, e.Pos, e.Reason)
}

// Unwrap makes errors.Is(err, ErrCorrupt) true.
func (e *CorruptionError) Unwrap() error { return ErrCorrupt }

// CompactedError is an ErrCompacted that says where the log starts now.
type CompactedError struct {
	FirstIndex  uint64 // the first index kept
	StartOffset int64  // the first offset kept
}

// Error implements error.
func (e *CompactedError) Error() string {
	return fmt.Sprintf("segment: no longer kept: the log starts at offset %d, index %d", e.StartOffset, e.FirstIndex)
}

// Unwrap makes errors.Is(err, ErrCompacted) true.
func (e *CompactedError) Unwrap() error { return ErrCompacted }
