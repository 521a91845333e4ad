package batch

import (
	"errors"
	"fmt"
	"unsafe"
)

// Codec is how the records of a batch are compressed. Values are those of the
// attribute bits, and frozen.
type Codec int8

// The codecs of Kafka.
const (
	None   Codec = 0
	Gzip   Codec = 1
	Snappy Codec = 2
	LZ4    Codec = 3
	Zstd   Codec = 4
)

// maxDecompressed is the largest bound that Decompress honours, in bytes.
const maxDecompressed = 1 << 30

var codecNames = [...]string{"none", "gzip", "snappy", "lz4", "zstd"}

func (c Codec) known() bool { return c >= 0 && int(c) < len(codecNames) }

// String returns Kafka's name of the codec: "none", "gzip", "snappy", "lz4" or
// "zstd".
func (c Codec) String() string {
	if !c.known() {
		return fmt.Sprintf("codec(%d)", int8(c))
	}
	return codecNames[c]
}

// ParseCodec returns the codec with the given name, as Codec.String spells it.
// Any other name is ErrUnsupportedCodec.
func ParseCodec(name string) (Codec, error) {
	for i, n := range codecNames {
		if n == name {
			return Codec(i), nil
		}
	}
	return None, fmt.Errorf("codec name %q: %w", name, ErrUnsupportedCodec)
}

// Compress appends src, compressed, to dst and returns the extended slice. The
// two must not overlap. Level 0 is the codec's default; otherwise it goes from 1
// to 9 for gzip (default 6), to 17 for lz4 (default is its fast mode, weaker
// than 1), to 22 for zstd (default 3). None and snappy have no levels and
// ignore it.
//
// Errors: ErrUnsupportedCodec, ErrInvalidLevel, ErrTooLarge when src has more
// bytes than the codec can take in.
func Compress(dst, src []byte, c Codec, level int) ([]byte, error) {
	if len(src) > MaxSize {
		return nil, fmt.Errorf("compress %d bytes: %w", len(src), ErrTooLarge)
	}
	switch c {
	case None:
		return append(dst, src...), nil
	case Gzip:
		if level < 0 || level > 9 {
			return nil, fmt.Errorf("gzip level %d: %w", level, ErrInvalidLevel)
		}
		return compressGzip(dst, src, level)
	case Snappy:
		return compressSnappy(dst, src), nil
	case LZ4:
		if level < 0 || level > 17 {
			return nil, fmt.Errorf("lz4 level %d: %w", level, ErrInvalidLevel)
		}
		return compressLZ4(dst, src, level)
	case Zstd:
		if level < 0 || level > 22 {
			return nil, fmt.Errorf("zstd level %d: %w", level, ErrInvalidLevel)
		}
		return compressZstd(dst, src, level)
	}
	return nil, fmt.Errorf("compress with codec %d: %w", int8(c), ErrUnsupportedCodec)
}

// Decompress appends src, decompressed, to dst and returns the extended slice.
// The two must not overlap. max bounds the bytes appended; 0 or less means
// DefaultMaxDecompressed, and more than 1 GiB means 1 GiB.
//
// Room is allocated for what src can yield by its frame and block headers, and
// never for more than max and one block of the codec. While dst grows, the old
// and the new buffer exist together.
//
// Errors: ErrTooLarge beyond max, ErrCorrupt, ErrUnsupportedCodec. With an
// error no bytes are returned; dst's spare room may have been written to.
func Decompress(dst, src []byte, c Codec, max int) ([]byte, error) {
	if max <= 0 {
		max = DefaultMaxDecompressed
	}
	if max > maxDecompressed {
		max = maxDecompressed
	}
	if !c.known() {
		return nil, fmt.Errorf("decompress with codec %d: %w", int8(c), ErrUnsupportedCodec)
	}
	if c == None {
		if len(src) > max {
			return nil, fmt.Errorf("%d bytes, limit is %d: %w", len(src), max, ErrTooLarge)
		}
		return append(dst, src...), nil
	}
	if len(src) == 0 {
		return nil, fmt.Errorf("%v: no bytes to decompress: %w", c, ErrCorrupt)
	}
	var out []byte
	var err error
	switch c {
	case Gzip:
		out, err = decompressGzip(dst, src, max)
	case Snappy:
		out, err = decompressSnappy(dst, src, max)
	case LZ4:
		out, err = decompressLZ4(dst, src, max)
	case Zstd:
		out, err = decompressZstd(dst, src, max)
	}
	if err != nil {
		return nil, fmt.Errorf("%v: %w", c, err)
	}
	return out, nil
}

// checkPortable refuses compressed frames that this package reads and other
// Kafka clients do not.
func checkPortable(src []byte, c Codec) error {
	switch c {
	case Snappy:
		return checkPortableSnappy(src)
	case LZ4:
		return checkPortableLZ4(src)
	}
	return nil
}

// kindOf returns the sentinel that a codec's error should be known by.
func kindOf(err error) error {
	for _, kind := range []error{ErrTooLarge, ErrUnsupportedCodec} {
		if errors.Is(err, kind) {
			return kind
		}
	}
	return ErrCorrupt
}

// reserve returns dst with room for n more bytes. When it must allocate it
// doubles, as far as limit, which is the capacity that is never needed.
func reserve(dst []byte, n, limit int) []byte {
	if cap(dst)-len(dst) >= n {
		return dst
	}
	grown := make([]byte, len(dst), max(len(dst)+n, min(2*cap(dst), limit)))
	copy(grown, dst)
	return grown
}

// sameStart tells whether a and b start at the same byte of memory.
func sameStart(a, b []byte) bool {
	return unsafe.SliceData(a) == unsafe.SliceData(b)
}
