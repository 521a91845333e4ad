package segment

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/billetlog/billet/internal/vfs"
)

// Defaults and bounds of Options.
const (
	DefaultSegmentBytes       = 256 << 20
	MinSegmentBytes           = 512
	MaxSegmentBytes           = 1 << 30
	DefaultIndexIntervalBytes = 4096
	MaxIndexIntervalBytes     = 1 << 20
	DefaultMaxFrameBytes      = 64 << 20
	MaxMaxFrameBytes          = 1 << 30
	DefaultMaxUnsyncedBytes   = 64 << 20
)

// Fencer is the journal, as far as a log needs it.
type Fencer interface {
	// Fence makes durable that no redo record of the replica written so far
	// may be replayed. It is called with the log's files synced, before bytes
	// at a position change.
	Fence(Key) error
}

// Options say where a log is and how it behaves. FS, Dir and Identity are
// required.
type Options struct {
	FS         vfs.FS   // where all files are
	Dir        string   // the generation's folder; made when missing
	Identity   Identity // whose log it is; files of another one are refused
	Generation uint64   // which life of the log; files of another one are refused

	// SegmentBytes is the size at which the active segment is sealed and the
	// next one begun. Default DefaultSegmentBytes. Retention deletes whole
	// segments, so large ones make it coarse; small ones cost files. One frame
	// larger than this gets a segment of its own.
	SegmentBytes int64
	// SegmentAge seals an active segment whose first entry is older. Default 0:
	// never. Without it retention by time never deletes a quiet log's records.
	SegmentAge time.Duration
	// IndexIntervalBytes is how many bytes of log lie between two entries of
	// the index. Default DefaultIndexIntervalBytes. More make a look-up read
	// more; less make the index larger, 32 bytes for each.
	IndexIntervalBytes int
	// MaxFrameBytes bounds one frame, in Append and when scanning. Default
	// DefaultMaxFrameBytes. Lowered below the size of a stored frame, it makes
	// that frame look damaged.
	MaxFrameBytes int
	// MaxUnsyncedBytes bounds what Append leaves unsynced: it syncs by itself
	// before there would be more. Default DefaultMaxUnsyncedBytes. At Open it is
	// also how far behind the first invalid byte a valid frame may lie in a torn
	// tail, so it must not be lower than when the log was written.
	MaxUnsyncedBytes int64
	// LossyTail is for logs that are synced only now and then: anything above
	// the durable mark may be missing or torn after a power cut, so the first
	// invalid byte there is a torn tail, whatever follows. MaxUnsyncedBytes is
	// then without effect.
	LossyTail bool

	// Fencer is asked before a truncation. Default nil: there is no journal.
	Fencer Fencer
	// Logger gets what an operator may want to know. Default: nobody.
	Logger *slog.Logger
	// Now is the clock. Default time.Now.
	Now func() time.Time
}

func (o *Options) ensureDefaults() {
	if o.SegmentBytes == 0 {
		o.SegmentBytes = DefaultSegmentBytes
	}
	if o.IndexIntervalBytes == 0 {
		o.IndexIntervalBytes = DefaultIndexIntervalBytes
	}
	if o.MaxFrameBytes == 0 {
		o.MaxFrameBytes = DefaultMaxFrameBytes
	}
	if o.MaxUnsyncedBytes == 0 {
		o.MaxUnsyncedBytes = DefaultMaxUnsyncedBytes
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
}

func (o *Options) validate() error {
	switch {
	case o.FS == nil || o.Dir == "":
		return errors.New("segment: Options.FS and Options.Dir are required")
	case o.SegmentBytes < MinSegmentBytes || o.SegmentBytes > MaxSegmentBytes:
		return fmt.Errorf("segment: SegmentBytes %d is not in [%d, %d]", o.SegmentBytes, MinSegmentBytes, MaxSegmentBytes)
	case o.SegmentAge < 0:
		return fmt.Errorf("segment: SegmentAge %v is negative", o.SegmentAge)
	case o.IndexIntervalBytes < 1 || o.IndexIntervalBytes > MaxIndexIntervalBytes:
		return fmt.Errorf("segment: IndexIntervalBytes %d is not in [1, %d]", o.IndexIntervalBytes, MaxIndexIntervalBytes)
	case o.MaxFrameBytes < segmentHeaderSize || o.MaxFrameBytes > MaxMaxFrameBytes:
		return fmt.Errorf("segment: MaxFrameBytes %d is not in [%d, %d]", o.MaxFrameBytes, segmentHeaderSize, MaxMaxFrameBytes)
	case o.MaxUnsyncedBytes < 1:
		return fmt.Errorf("segment: MaxUnsyncedBytes %d is less than 1", o.MaxUnsyncedBytes)
	}
	return nil
}
