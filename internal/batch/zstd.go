package batch

import (
	"errors"
	"fmt"
	"sync"

	"github.com/klauspost/compress/zstd"
)

const (
	// zstdWindow is how far back, in bytes, the encoder looks. Memory of an
	// encoder is in proportion.
	zstdWindow = 1 << 20
	// zstdMaxWindow is the largest window the decoder takes, as large as
	// Java's and librdkafka's decoders take by default.
	zstdMaxWindow = 128 << 20
	// zstdSlack is room that lets the decoder copy without looking.
	zstdSlack = 16
)

// zstdEncoders has a pool for each speed of the encoder; zstdDecoders one for
// all. Neither has goroutines, as long as only EncodeAll and DecodeAll are used.
var (
	zstdEncoders [zstd.SpeedBestCompression + 1]sync.Pool
	zstdDecoders sync.Pool
)

// compressZstd appends src as one frame. level is from 0, the default, to 22.
func compressZstd(dst, src []byte, level int) ([]byte, error) {
	speed := zstd.SpeedDefault
	if level > 0 {
		speed = zstd.EncoderLevelFromZstd(level)
	}
	pool := &zstdEncoders[speed]
	enc, ok := pool.Get().(*zstd.Encoder)
	if !ok {
		var err error
		enc, err = zstd.NewWriter(nil,
			zstd.WithEncoderLevel(speed),
			zstd.WithEncoderConcurrency(1),
			zstd.WithLowerEncoderMem(true),
			zstd.WithWindowSize(zstdWindow),
			zstd.WithEncoderCRC(false),
			zstd.WithZeroFrames(true))
		if err != nil {
			return nil, fmt.Errorf("zstd level %d: %w", level, err)
		}
	}
	defer pool.Put(enc)
	return enc.EncodeAll(src, dst), nil
}

// decompressZstd appends all frames in src. The size that a frame claims serves
// as a first guess only, so far as it is likely; when there is no room for what
// the frames yield, it tries again with four times as much.
func decompressZstd(dst, src []byte, max int) ([]byte, error) {
	guess := 4*len(src) + 1<<10
	var h zstd.Header
	if err := h.Decode(src); err == nil && h.HasFCS {
		if h.FrameContentSize > uint64(max) {
			return nil, fmt.Errorf("content size %d, limit is %d: %w", h.FrameContentSize, max, ErrTooLarge)
		}
		guess = min(int(h.FrameContentSize), 64*len(src)+64<<10)
	}
	dec, ok := zstdDecoders.Get().(*zstd.Decoder)
	if !ok {
		var err error
		dec, err = zstd.NewReader(nil,
			zstd.WithDecoderConcurrency(1),
			zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxMemory(maxDecompressed+zstdSlack),
			zstd.WithDecoderMaxWindow(zstdMaxWindow),
			zstd.WithDecodeAllCapLimit(true))
		if err != nil {
			return nil, fmt.Errorf("decoder: %w", err)
		}
	}
	defer zstdDecoders.Put(dec)
	start := len(dst)
	room := min(guess, max)
	if free := cap(dst) - start - zstdSlack; free > room {
		room = min(free, max)
	}
	for {
		dst = reserve(dst, room+zstdSlack, start+max+zstdSlack)
		out, err := dec.DecodeAll(src, dst[start:start:start+room+zstdSlack])
		if len(out) > max {
			return nil, fmt.Errorf("more than %d bytes: %w", max, ErrTooLarge)
		}
		switch {
		case err == nil && sameStart(out, dst[start:cap(dst)]):
			return dst[:start+len(out)], nil
		case err == nil:
			return append(dst, out...), nil
		case !errors.Is(err, zstd.ErrDecoderSizeExceeded):
			return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
		case room == max:
			return nil, fmt.Errorf("more than %d bytes: %w: %w", max, ErrTooLarge, err)
		}
		room = min(4*room+64<<10, max)
	}
}
