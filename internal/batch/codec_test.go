package batch

import (
	"bytes"
	stdgzip "compress/gzip"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"pgregory.net/rapid"
)

// compress is Compress for tests.
func compress(t require, src []byte, c Codec) []byte {
	t.Helper()
	out, err := Compress(nil, src, c, 0)
	if err != nil {
		t.Fatalf("%v: %v", c, err)
	}
	return out
}

func randomBytes(n int) []byte {
	rng := rand.New(rand.NewPCG(3, 4))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

func TestCodecNames(t *testing.T) {
	for i, name := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		c, err := ParseCodec(name)
		if err != nil || c != Codec(i) || c.String() != name {
			t.Errorf("%q: %v, %v", name, c, err)
		}
	}
	for _, name := range []string{"", "GZIP", "producer", "brotli"} {
		if _, err := ParseCodec(name); !errors.Is(err, ErrUnsupportedCodec) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if got := Codec(-1).String(); got != "codec(-1)" {
		t.Error(got)
	}
}

func TestCodecRoundTrip(t *testing.T) {
	for _, c := range codecs {
		for _, n := range []int{0, 1, 16, 4095, 32 << 10, 32<<10 + 1, 64 << 10, 200_000, 3 << 20} {
			for kind, src := range map[string][]byte{
				"zeros": make([]byte, n), "random": randomBytes(n), "text": benchValue(n),
			} {
				prefix := []byte("prefix")
				packed, err := Compress(bytes.Clone(prefix), src, c, 0)
				fatalIf(t, err)
				if !bytes.HasPrefix(packed, prefix) {
					t.Fatalf("%v, %s of %d: prefix gone", c, kind, n)
				}
				packed = packed[len(prefix):]
				out, err := Decompress(bytes.Clone(prefix), packed, c, max(n, 1))
				if err != nil {
					t.Fatalf("%v, %s of %d: %v", c, kind, n, err)
				}
				if !bytes.HasPrefix(out, prefix) || !bytes.Equal(out[len(prefix):], src) {
					t.Fatalf("%v, %s of %d: differs", c, kind, n)
				}
				if n > 1 {
					if _, err := Decompress(nil, packed, c, n-1); !errors.Is(err, ErrTooLarge) {
						t.Fatalf("%v, %s of %d into a byte less: %v", c, kind, n, err)
					}
				}
			}
		}
	}
}

func TestCodecLevels(t *testing.T) {
	src := benchValue(100_000)
	for c, top := range map[Codec]int{Gzip: 9, LZ4: 17, Zstd: 22, Snappy: 0, None: 0} {
		for level := range top + 1 {
			packed, err := Compress(nil, src, c, level)
			fatalIf(t, err)
			out, err := Decompress(nil, packed, c, 0)
			if err != nil || !bytes.Equal(out, src) {
				t.Fatalf("%v, level %d: %v", c, level, err)
			}
		}
		if top == 0 {
			continue
		}
		for _, level := range []int{-1, top + 1} {
			if _, err := Compress(nil, src, c, level); !errors.Is(err, ErrInvalidLevel) {
				t.Errorf("%v, level %d: %v", c, level, err)
			}
		}
	}
}

func TestUnknownCodec(t *testing.T) {
	for _, c := range []Codec{-1, 5, 7} {
		if _, err := Compress(nil, []byte("x"), c, 0); !errors.Is(err, ErrUnsupportedCodec) {
			t.Errorf("compress with %d: %v", c, err)
		}
		if _, err := Decompress(nil, []byte("x"), c, 0); !errors.Is(err, ErrUnsupportedCodec) {
			t.Errorf("decompress with %d: %v", c, err)
		}
	}
}

func TestDecompressRefusesGarbageAndCuts(t *testing.T) {
	src := benchValue(70_000)
	for _, c := range codecs[1:] {
		for _, garbage := range [][]byte{nil, {0xff}, []byte("certainly not compressed data"), make([]byte, 100)} {
			// A zero byte is an empty snappy block, but no more may follow.
			if _, err := Decompress(nil, garbage, c, 0); !errors.Is(err, ErrCorrupt) {
				t.Errorf("%v of % x: %v", c, garbage, err)
			}
		}
		packed := compress(t, src, c)
		step := max(1, len(packed)/500)
		for n := 0; n < len(packed); n += step {
			out, err := Decompress(nil, packed[:n], c, 0)
			// Xerial's form has no end, so a cut between blocks only shows in
			// what is missing.
			if c == Snappy && err == nil && len(out) < len(src) {
				continue
			}
			if !errors.Is(err, ErrCorrupt) {
				t.Fatalf("%v cut to %d of %d bytes: %v", c, n, len(packed), err)
			}
		}
		if c == Snappy {
			continue
		}
		if _, err := Decompress(nil, append(packed, 7), c, 0); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%v with a byte after it: %v", c, err)
		}
	}
}

func TestGzipIsGzip(t *testing.T) {
	src := benchValue(50_000)
	z, err := stdgzip.NewReader(bytes.NewReader(compress(t, src, Gzip)))
	fatalIf(t, err)
	out, err := io.ReadAll(z)
	if err != nil || !bytes.Equal(out, src) {
		t.Fatalf("standard library: %v", err)
	}
	var members bytes.Buffer
	for _, part := range [][]byte{src[:100], src[100:]} {
		w := stdgzip.NewWriter(&members)
		_, err := w.Write(part)
		fatalIf(t, errors.Join(err, w.Close()))
	}
	out, err = Decompress(nil, members.Bytes(), Gzip, len(src))
	if err != nil || !bytes.Equal(out, src) {
		t.Fatalf("two members: %v", err)
	}
}

func TestZstdFrames(t *testing.T) {
	src := benchValue(300_000)
	// Streams have no content size in the header.
	var stream bytes.Buffer
	w, err := zstd.NewWriter(&stream, zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(true))
	fatalIf(t, err)
	_, err = w.Write(src)
	fatalIf(t, errors.Join(err, w.Flush()))
	_, err = w.Write(src)
	fatalIf(t, errors.Join(err, w.Close()))
	out, err := Decompress(nil, stream.Bytes(), Zstd, 2*len(src))
	if err != nil || !bytes.Equal(out, append(bytes.Clone(src), src...)) {
		t.Fatalf("stream: %v", err)
	}
	// An empty frame says size 0, and the next one yields much.
	two := append(compress(t, nil, Zstd), compress(t, make([]byte, 2<<20), Zstd)...)
	out, err = Decompress(nil, two, Zstd, 2<<20)
	if err != nil || len(out) != 2<<20 {
		t.Fatalf("two frames: %d bytes, %v", len(out), err)
	}
	if _, err := Decompress(nil, two, Zstd, 2<<20-1); !errors.Is(err, ErrTooLarge) {
		t.Fatalf("two frames: %v", err)
	}
	// A frame that lies about its size: single segment, 1 GiB - 1, one raw block.
	lie := []byte{0x28, 0xb5, 0x2f, 0xfd, 0xa0, 0xff, 0xff, 0xff, 0x3f, 0x09, 0, 0, 'x'}
	if _, err := Decompress(nil, lie, Zstd, 0); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("claims 1 GiB: %v", err)
	}
	// A small frame may need a large window by its header, and is fine.
	stream.Reset()
	w, err = zstd.NewWriter(&stream, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(64<<20))
	fatalIf(t, err)
	_, err = w.Write(src)
	fatalIf(t, errors.Join(err, w.Flush(), w.Close()))
	if _, err := Decompress(nil, stream.Bytes(), Zstd, len(src)); err != nil {
		t.Fatalf("window of 64 MiB: %v", err)
	}
	// Frames to skip yield nothing.
	skip := append([]byte{0x50, 0x2a, 0x4d, 0x18, 2, 0, 0, 0, 'n', 'o'}, compress(t, src, Zstd)...)
	out, err = Decompress(nil, skip, Zstd, len(src))
	if err != nil || !bytes.Equal(out, src) {
		t.Fatalf("skippable frame: %v", err)
	}
}

func TestZstdYield(t *testing.T) {
	const header = "\x28\xb5\x2f\xfd\x20" // single segment, a byte of content size
	for _, c := range []struct {
		name, src, want string
	}{
		{"no block", header + "\x01", "no block at 6"},
		{"block type 3", header + "\x01\x0f\x00\x00x", "block type 3 at 6"},
		{"block too large", header + "\x01\x03\x00\x20x", "block of 262144 bytes at 6"},
		{"claims too much", header + "\x09\x09\x00\x00x", "claims 9 bytes, its blocks yield at most 1"},
		{"ends early", header + "\x09\x49\x00\x00x", "ends 8 bytes after the data"},
		{"not a frame", "nonsense", "frame at 0: header"},
		{"garbage after it", header + "\x01\x09\x00\x00xnonsense", "frame at 10: header"},
		{"skippable and short", "\x50\x2a\x4d\x18\xff\xff\xff\xff", "ends 4294967295 bytes after"},
	} {
		_, err := Decompress(nil, []byte(c.src), Zstd, 0)
		if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	good := header + "\x01\x09\x00\x00x"
	if out, err := Decompress(nil, []byte(good), Zstd, 1); err != nil || string(out) != "x" {
		t.Errorf("good: %q, %v", out, err)
	}
}

func TestCompressUsesRoomInDst(t *testing.T) {
	src := benchValue(20_000)
	for _, c := range codecs {
		dst := make([]byte, 0, 100_000)
		out, err := Compress(dst, src, c, 0)
		fatalIf(t, err)
		if !sameStart(out, dst) {
			t.Errorf("%v: compressed elsewhere", c)
		}
		room := make([]byte, 0, 100_000)
		plain, err := Decompress(room, out, c, 0)
		fatalIf(t, err)
		if !sameStart(plain, room) {
			t.Errorf("%v: decompressed elsewhere", c)
		}
	}
}

func TestCodecProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := rapid.SampledFrom(codecs).Draw(t, "codec")
		var src []byte
		for range rapid.IntRange(0, 5).Draw(t, "parts") {
			part := rapid.SliceOfN(rapid.Byte(), 1, 50).Draw(t, "part")
			src = append(src, bytes.Repeat(part, rapid.IntRange(1, 3000).Draw(t, "repeat"))...)
		}
		spare := make([]byte, 0, rapid.IntRange(0, 300_000).Draw(t, "room"))
		out, err := Decompress(spare, compress(t, src, c), c, max(1, len(src)))
		if err != nil || !bytes.Equal(out, src) {
			t.Fatalf("%d bytes: %v", len(src), err)
		}
	})
}
