package batch

import (
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
	// zstdMaxBlock is the most bytes that a block holds, and that it yields.
	zstdMaxBlock = 128 << 10
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

// decompressZstd appends all frames in src. Before it allocates it adds up, from
// the headers of frames and blocks, what they can yield at most.
func decompressZstd(dst, src []byte, max int) ([]byte, error) {
	yield, err := zstdYield(src)
	if err != nil {
		return nil, err
	}
	dec, ok := zstdDecoders.Get().(*zstd.Decoder)
	if !ok {
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
	room := int(min(yield, uint64(max))) + zstdSlack
	dst = reserve(dst, room, start+room)
	out, err := dec.DecodeAll(src, dst[start:start:start+room])
	switch {
	case err == nil && len(out) > max:
		return nil, fmt.Errorf("more than %d bytes: %w", max, ErrTooLarge)
	case err == nil && sameStart(out, dst[start:cap(dst)]):
		return dst[:start+len(out)], nil
	case err == nil:
		return append(dst, out...), nil
	case yield > uint64(max):
		return nil, fmt.Errorf("more than %d bytes, or corrupt: %w: %w", max, ErrTooLarge, err)
	}
	return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
}

// zstdYield returns how many bytes the frames in src can yield at most. A frame:
//
//	header, then blocks, the last of which is flagged, then a checksum if flagged
//	block   3 bytes little endian: bit 0 last, bits 1-2 type, then the size
//	        types: 0 stored, 1 one byte repeated size times, 2 compressed
//
// The error is ErrCorrupt when the frames do not fill src, or when one claims
// more than its blocks can yield.
func zstdYield(src []byte) (uint64, error) {
	var total uint64
	for pos := 0; pos < len(src); {
		var h zstd.Header
		if err := h.Decode(src[pos:]); err != nil {
			return 0, fmt.Errorf("frame at %d: header: %w: %w", pos, ErrCorrupt, err)
		}
		size, yield := uint64(h.HeaderSize), uint64(0)
		if h.Skippable {
			size += uint64(h.SkippableSize)
		} else {
			var err error
			size, yield, err = zstdBlocks(src[pos:], h)
			if err != nil {
				return 0, fmt.Errorf("frame at %d: %w", pos, err)
			}
		}
		if size > uint64(len(src)-pos) {
			return 0, fmt.Errorf("frame at %d: ends %d bytes after the data: %w",
				pos, size-uint64(len(src)-pos), ErrCorrupt)
		}
		total += yield
		pos += int(size)
	}
	return total, nil
}

// zstdBlocks returns how long the frame at frame[0] is and how much it can
// yield.
func zstdBlocks(frame []byte, h zstd.Header) (size, yield uint64, err error) {
	pos := uint64(h.HeaderSize)
	for last := false; !last; {
		if pos+3 > uint64(len(frame)) {
			return 0, 0, fmt.Errorf("no block at %d: %w", pos, ErrCorrupt)
		}
		b := frame[pos : pos+3]
		bits := uint64(b[0]) | uint64(b[1])<<8 | uint64(b[2])<<16
		n := bits >> 3
		last = bits&1 != 0
		if n > zstdMaxBlock {
			return 0, 0, fmt.Errorf("block of %d bytes at %d: %w", n, pos, ErrCorrupt)
		}
		pos += 3
		switch bits >> 1 & 3 {
		case 0:
			pos, yield = pos+n, yield+n
		case 1:
			pos, yield = pos+1, yield+n
		case 2:
			pos, yield = pos+n, yield+zstdMaxBlock
		default:
			return 0, 0, fmt.Errorf("block type 3 at %d: %w", pos-3, ErrCorrupt)
		}
	}
	if h.HasCheckSum {
		pos += 4
	}
	if h.HasFCS && h.FrameContentSize > yield {
		return 0, 0, fmt.Errorf("claims %d bytes, its blocks yield at most %d: %w",
			h.FrameContentSize, yield, ErrCorrupt)
	}
	if h.HasFCS {
		yield = h.FrameContentSize
	}
	return pos, yield, nil
}
