package batch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/klauspost/compress/s2"
)

// Snappy comes in two forms. Java clients write and expect the one of the
// xerial library:
//
//	magic 82 'S' 'N' 'A' 'P' 'P' 'Y' 00, version int32, compatible int32,
//	then any number of: length int32, one raw snappy block of that length
//
// with big endian integers; others write one raw block. All of them read both,
// so this package reads both and writes xerial's.
const (
	xerialMagic      = "\x82SNAPPY\x00"
	xerialHeader     = xerialMagic + "\x00\x00\x00\x01\x00\x00\x00\x01"
	xerialHeaderSize = 16
	// xerialBlock is how many bytes Java puts in a block.
	xerialBlock = 32 << 10
	// snappyRatio bounds how much larger a block can get: a copy of 64 bytes
	// takes 3.
	snappyRatio = 22
)

// compressSnappy appends src in xerial's form.
func compressSnappy(dst, src []byte) []byte {
	dst = append(dst, xerialHeader...)
	for len(src) > 0 {
		block := src[:min(len(src), xerialBlock)]
		src = src[len(block):]
		at := len(dst)
		room := 4 + s2.MaxEncodedLen(len(block))
		dst = reserve(dst, room, 2*cap(dst))
		out := s2.EncodeSnappy(dst[at+4:at+room], block)
		binary.BigEndian.PutUint32(dst[at:at+4], uint32(len(out)))
		dst = dst[:at+4+len(out)]
	}
	return dst
}

// decompressSnappy appends what src, in either form, decompresses to.
func decompressSnappy(dst, src []byte, max int) ([]byte, error) {
	limit := len(dst) + max
	err := eachSnappyBlock(src, func(block []byte) error {
		var err error
		dst, err = decodeSnappyBlock(dst, block, limit)
		return err
	})
	return dst, err
}

// eachSnappyBlock calls f for each raw block in src, in either form.
func eachSnappyBlock(src []byte, f func(block []byte) error) error {
	if !isXerial(src) {
		return f(src)
	}
	rest := src
	for len(rest) > 0 {
		// Streams may follow one another, each with its header.
		if isXerial(rest) {
			rest = rest[xerialHeaderSize:]
			continue
		}
		at := len(src) - len(rest)
		if len(rest) < 4 {
			return fmt.Errorf("xerial block at %d: %d bytes where a length should be: %w", at, len(rest), ErrCorrupt)
		}
		n := int64(binary.BigEndian.Uint32(rest))
		rest = rest[4:]
		if n > int64(len(rest)) {
			return fmt.Errorf("xerial block at %d: length %d, but %d bytes are left: %w", at, n, len(rest), ErrCorrupt)
		}
		if err := f(rest[:n]); err != nil {
			return fmt.Errorf("xerial block at %d: %w", at, err)
		}
		rest = rest[n:]
	}
	return nil
}

func isXerial(src []byte) bool {
	return len(src) >= xerialHeaderSize && bytes.HasPrefix(src, []byte(xerialMagic))
}

// decodeSnappyBlock appends one raw block to dst, which may grow to limit bytes.
func decodeSnappyBlock(dst, block []byte, limit int) ([]byte, error) {
	n, err := s2.DecodedLen(block)
	if err != nil {
		return nil, fmt.Errorf("block length: %w: %w", ErrCorrupt, err)
	}
	if n > snappyRatio*len(block) {
		return nil, fmt.Errorf("%d bytes claim to hold %d: %w", len(block), n, ErrCorrupt)
	}
	if n > limit-len(dst) {
		return nil, fmt.Errorf("block of %d bytes, %d are left of the limit: %w", n, limit-len(dst), ErrTooLarge)
	}
	at := len(dst)
	dst = reserve(dst, n, limit)
	if _, err := s2.Decode(dst[at:at+n], block); err != nil {
		return nil, fmt.Errorf("block of %d bytes: %w: %w", n, ErrCorrupt, err)
	}
	return dst[:at+n], nil
}

var errS2Block = errors.New("block uses repeated offsets, which S2 has and snappy has not")

// snappySteps has for each tag byte of a raw block how many bytes its element
// takes, 0 for literals whose length is in extra bytes. A table, because the
// tags of real blocks are past predicting.
var snappySteps = func() (steps [256]uint8) {
	for tag := range steps {
		switch tag & 3 {
		case 0:
			if tag>>2 < 60 {
				steps[tag] = uint8(tag>>2) + 2
			}
		case 1:
			steps[tag] = 2
		case 2:
			steps[tag] = 3
		case 3:
			steps[tag] = 5
		}
	}
	return steps
}()

// checkPortableSnappy refuses blocks in the S2 dialect, which s2.Decode reads
// and snappy decoders do not: a short copy with offset 0 repeats the offset
// before. Blocks broken in other ways pass, for decoding to find.
func checkPortableSnappy(src []byte) error {
	return eachSnappyBlock(src, func(block []byte) error {
		_, pos := binary.Uvarint(block)
		if pos <= 0 {
			return nil
		}
		for pos < len(block)-1 {
			tag := block[pos]
			if tag&0xe3 == 1 && block[pos+1] == 0 {
				return errS2Block
			}
			step := int(snappySteps[tag])
			if step == 0 {
				step = longLiteral(block[pos:])
			}
			pos += step
		}
		return nil
	})
}

// longLiteral returns how many bytes the literal at b[0] takes, whose length is
// in 1 to 4 bytes after the tag, or len(b) if it does not fit.
func longLiteral(b []byte) int {
	width := int(b[0]>>2) - 59
	if len(b) <= width {
		return len(b)
	}
	var le [8]byte
	copy(le[:], b[1:1+width])
	n := binary.LittleEndian.Uint64(le[:]) + 1
	return int(min(n+uint64(1+width), uint64(len(b))))
}
