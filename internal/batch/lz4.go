package batch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/pierrec/lz4/v4"
)

// The LZ4 frame format, little endian, as far as Kafka uses it:
//
//	magic 04 22 4d 18
//	flags        version 01 in bits 7-6, then independent blocks, block
//	             checksums, content size, content checksum, 0, dictionary
//	block size   bits 6-4: 4 = 64 KiB, 5 = 256 KiB, 6 = 1 MiB, 7 = 4 MiB
//	content size uint64, if flagged
//	checksum     byte 1 of the xxh32 from flags up to here
//	blocks       uint32 size, with bit 31 set if stored uncompressed; bytes;
//	             uint32 xxh32 of those bytes, if flagged
//	end          uint32 0
//	checksum     uint32 xxh32 of the content, if flagged
//
// Like Kafka's own writer this one uses independent blocks of 64 KiB and no
// checksums besides that of the header; the batch has its CRC.
const (
	lz4FrameMagic = "\x04\x22\x4d\x18"
	lz4Header     = lz4FrameMagic + "\x60\x40\x82"
	lz4BlockSize  = 64 << 10
	lz4Stored     = 1 << 31

	lz4FlagVersion         = 0xc0
	lz4FlagIndependent     = 0x20
	lz4FlagBlockChecksum   = 0x10
	lz4FlagContentSize     = 0x08
	lz4FlagContentChecksum = 0x04
	lz4FlagReserved        = 0x02
	lz4FlagDictionary      = 0x01

	// lz4Ratio bounds how much larger a block can get: each byte of a length
	// adds at most 255.
	lz4Ratio = 255
)

// lz4Fast and lz4High pool compressors of the two kinds.
var (
	lz4Fast = sync.Pool{New: func() any { return new(lz4.Compressor) }}
	lz4High = sync.Pool{New: func() any { return new(lz4.CompressorHC) }}
)

// lz4Levels are the search depths for levels 1 to 9; higher ones get the last.
var lz4Levels = [...]lz4.CompressionLevel{lz4.Level1, lz4.Level2, lz4.Level3,
	lz4.Level4, lz4.Level5, lz4.Level6, lz4.Level7, lz4.Level8, lz4.Level9}

// compressLZ4 appends src as one frame. level is from 0, the fast mode, to 17.
func compressLZ4(dst, src []byte, level int) ([]byte, error) {
	var compress func(src, dst []byte) (int, error)
	if level == 0 {
		c := lz4Fast.Get().(*lz4.Compressor)
		defer lz4Fast.Put(c)
		compress = c.CompressBlock
	} else {
		c := lz4High.Get().(*lz4.CompressorHC)
		defer lz4High.Put(c)
		c.Level = lz4Levels[min(level, len(lz4Levels))-1]
		compress = c.CompressBlock
	}
	dst = append(dst, lz4Header...)
	for len(src) > 0 {
		block := src[:min(len(src), lz4BlockSize)]
		src = src[len(block):]
		at := len(dst)
		room := 4 + lz4.CompressBlockBound(len(block))
		dst = reserve(dst, room, 2*cap(dst))
		n, err := compress(block, dst[at+4:at+room])
		if err != nil {
			return nil, fmt.Errorf("lz4: block of %d bytes: %w", len(block), err)
		}
		size := uint32(n)
		if n == 0 || n >= len(block) {
			n = copy(dst[at+4:at+room], block)
			size = uint32(n) | lz4Stored
		}
		binary.LittleEndian.PutUint32(dst[at:at+4], size)
		dst = dst[:at+4+n]
	}
	return append(dst, 0, 0, 0, 0), nil
}

// lz4Frame is a frame being decoded.
type lz4Frame struct {
	src         []byte
	pos         int
	flags       byte
	maxBlock    int
	contentSize uint64
}

// decompressLZ4 appends the content of the one frame that src holds. Java reads
// no second frame, so there must be none.
func decompressLZ4(dst, src []byte, max int) ([]byte, error) {
	f := lz4Frame{src: src}
	if err := f.header(); err != nil {
		return nil, err
	}
	start := len(dst)
	limit := start + max
	if f.flags&lz4FlagContentSize != 0 && f.contentSize > uint64(max) {
		return nil, fmt.Errorf("content size %d, limit is %d: %w", f.contentSize, max, ErrTooLarge)
	}
	for {
		size, err := f.uint32("block size")
		if err != nil {
			return nil, err
		}
		if size == 0 {
			break
		}
		if dst, err = f.block(dst, start, limit, size); err != nil {
			return nil, err
		}
	}
	content := dst[start:]
	if f.flags&lz4FlagContentChecksum != 0 {
		sum, err := f.uint32("content checksum")
		if err != nil {
			return nil, err
		}
		if got := xxh32(content); got != sum {
			return nil, f.corrupt("content checksum is %#08x, frame says %#08x", got, sum)
		}
	}
	if f.flags&lz4FlagContentSize != 0 && f.contentSize != uint64(len(content)) {
		return nil, f.corrupt("content has %d bytes, frame says %d", len(content), f.contentSize)
	}
	if f.pos != len(src) {
		return nil, f.corrupt("%d bytes after the frame", len(src)-f.pos)
	}
	return dst, nil
}

// header reads everything before the first block.
func (f *lz4Frame) header() error {
	const fixed = len(lz4FrameMagic) + 2
	if len(f.src) < fixed+1 {
		return f.corrupt("frame of %d bytes", len(f.src))
	}
	if string(f.src[:len(lz4FrameMagic)]) != lz4FrameMagic {
		return f.corrupt("not a frame: magic % x", f.src[:len(lz4FrameMagic)])
	}
	f.flags = f.src[len(lz4FrameMagic)]
	block := f.src[fixed-1]
	if f.flags&lz4FlagVersion != 0x40 || f.flags&(lz4FlagReserved|lz4FlagDictionary) != 0 {
		return f.corrupt("flags %#02x", f.flags)
	}
	id := block >> 4
	if block&0x8f != 0 || id < 4 {
		return f.corrupt("block size code %#02x", block)
	}
	f.maxBlock = 1 << (8 + 2*id)
	f.pos = fixed
	if f.flags&lz4FlagContentSize != 0 {
		if len(f.src) < fixed+9 {
			return f.corrupt("no content size")
		}
		f.contentSize = binary.LittleEndian.Uint64(f.src[fixed:])
		f.pos += 8
	}
	sum := byte(xxh32(f.src[len(lz4FrameMagic):f.pos]) >> 8)
	if got := f.src[f.pos]; got != sum {
		return f.corrupt("header checksum %#02x, must be %#02x", got, sum)
	}
	f.pos++
	return nil
}

// block appends a block, whose size field has been read, to dst. The content
// begins at dst[start:] and may grow to dst[:limit].
func (f *lz4Frame) block(dst []byte, start, limit int, size uint32) ([]byte, error) {
	n := int(size &^ lz4Stored)
	if n > f.maxBlock || n > len(f.src)-f.pos {
		return nil, f.corrupt("block of %d bytes, %d are left", n, len(f.src)-f.pos)
	}
	data := f.src[f.pos : f.pos+n]
	f.pos += n
	if f.flags&lz4FlagBlockChecksum != 0 {
		sum, err := f.uint32("block checksum")
		if err != nil {
			return nil, err
		}
		if got := xxh32(data); got != sum {
			return nil, f.corrupt("block checksum is %#08x, frame says %#08x", got, sum)
		}
	}
	at := len(dst)
	if size&lz4Stored != 0 {
		if n > limit-at {
			return nil, fmt.Errorf("more than %d bytes: %w", limit-start, ErrTooLarge)
		}
		return append(reserve(dst, n, limit), data...), nil
	}
	room := min(f.maxBlock, lz4Ratio*n)
	bounded := room > limit-at
	room = min(room, limit-at)
	dst = reserve(dst, room, limit)
	var dict []byte
	if f.flags&lz4FlagIndependent == 0 {
		dict = dst[max(start, at-lz4BlockSize):at]
	}
	n, err := lz4.UncompressBlockWithDict(data, dst[at:at+room], dict)
	if err != nil && bounded {
		return nil, fmt.Errorf("more than %d bytes, or a corrupt block at %d: %w", limit-start, f.pos, ErrTooLarge)
	}
	if err != nil {
		return nil, f.corrupt("block of %d bytes: %v", len(data), err)
	}
	return dst[:at+n], nil
}

func (f *lz4Frame) uint32(what string) (uint32, error) {
	if len(f.src)-f.pos < 4 {
		return 0, f.corrupt("frame ends before a %s", what)
	}
	v := binary.LittleEndian.Uint32(f.src[f.pos:])
	f.pos += 4
	return v, nil
}

func (f *lz4Frame) corrupt(format string, args ...any) error {
	return fmt.Errorf("byte %d: "+format+": %w", append(append([]any{f.pos}, args...), ErrCorrupt)...)
}

var errLinkedBlocks = errors.New("blocks depend on one another, which Kafka's reader refuses")

// checkPortableLZ4 refuses frames of dependent blocks. Frames broken in other
// ways pass, for decoding to find.
func checkPortableLZ4(src []byte) error {
	f := lz4Frame{src: src}
	if f.header() == nil && f.flags&lz4FlagIndependent == 0 {
		return errLinkedBlocks
	}
	return nil
}
