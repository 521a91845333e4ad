package batch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/pierrec/lz4/v4"
)

// linkedLZ4 returns src as a frame of two stored blocks, flagged as dependent.
func linkedLZ4(src []byte) []byte {
	const header = "\x04\x22\x4d\x18\x40\x70"
	b := []byte(header)
	b = append(b, byte(xxh32(b[4:6])>>8))
	half := len(src) / 2
	for _, part := range [][]byte{src[:half], src[half:]} {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(part))|1<<31)
		b = append(b, part...)
	}
	return append(b, 0, 0, 0, 0)
}

func TestXXH32(t *testing.T) {
	for s, want := range map[string]uint32{
		"":    0x02cc5d05,
		"a":   0x550d7456,
		"abc": 0x32d153ff,
		"Nobody inspects the spammish repetition": 0xe2293b2f,
	} {
		if got := xxh32([]byte(s)); got != want {
			t.Errorf("xxh32(%q) = %#08x, want %#08x", s, got, want)
		}
	}
}

func TestLZ4Golden(t *testing.T) {
	packed := compress(t, []byte("abc"), LZ4)
	want := "\x04\x22\x4d\x18\x60\x40\x82" + "\x03\x00\x00\x80abc" + "\x00\x00\x00\x00"
	if string(packed) != want {
		t.Fatalf("% x, want % x", packed, want)
	}
}

func TestLZ4FramesAreRead(t *testing.T) {
	for _, n := range []int{0, 10, 70_000, 300_000, 5 << 20} {
		packed := compress(t, benchValue(n), LZ4)
		out, err := io.ReadAll(lz4.NewReader(bytes.NewReader(packed)))
		if err != nil || !bytes.Equal(out, benchValue(n)) {
			t.Fatalf("%d bytes: %v", n, err)
		}
	}
}

func TestLZ4ReadsEveryFrame(t *testing.T) {
	src := append(benchValue(5<<20), randomBytes(70_000)...)
	for name, options := range map[string][]lz4.Option{
		"64 KiB":           {lz4.BlockSizeOption(lz4.Block64Kb)},
		"256 KiB":          {lz4.BlockSizeOption(lz4.Block256Kb)},
		"1 MiB":            {lz4.BlockSizeOption(lz4.Block1Mb)},
		"4 MiB":            {lz4.BlockSizeOption(lz4.Block4Mb)},
		"block checksums":  {lz4.BlockChecksumOption(true)},
		"no checksums":     {lz4.ChecksumOption(false)},
		"content size":     {lz4.SizeOption(uint64(len(src)))},
		"high compression": {lz4.CompressionLevelOption(lz4.Level5)},
	} {
		var buf bytes.Buffer
		w := lz4.NewWriter(&buf)
		fatalIf(t, w.Apply(options...))
		_, err := w.Write(src)
		fatalIf(t, errors.Join(err, w.Close()))
		out, err := Decompress(nil, buf.Bytes(), LZ4, len(src))
		if err != nil || !bytes.Equal(out, src) {
			t.Errorf("%s: %v", name, err)
		}
		if err := checkPortableLZ4(buf.Bytes()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLZ4LinkedBlocks(t *testing.T) {
	// A stored block "0123456789abcdef", then a block that copies 12 bytes
	// from 16 back and ends with the literal "ghijk".
	b := []byte("\x04\x22\x4d\x18\x40\x40")
	b = append(b, byte(xxh32(b[4:6])>>8))
	b = append(b, "\x10\x00\x00\x800123456789abcdef"...)
	block := "\x08\x10\x00\x50ghijk"
	b = binary.LittleEndian.AppendUint32(b, uint32(len(block)))
	b = append(b, block...)
	b = append(b, 0, 0, 0, 0)
	for _, dst := range [][]byte{nil, []byte("before")} {
		out, err := Decompress(dst, b, LZ4, 0)
		if want := string(dst) + "0123456789abcdef0123456789abghijk"; err != nil || string(out) != want {
			t.Errorf("%q, %v", out, err)
		}
	}
	if err := checkPortableLZ4(b); !errors.Is(err, errLinkedBlocks) {
		t.Errorf("portable: %v", err)
	}
	// Independent, the same copy reaches before the block.
	b[4] |= lz4FlagIndependent
	b[6] = byte(xxh32(b[4:6]) >> 8)
	if _, err := Decompress([]byte("before, and long enough"), b, LZ4, 0); !errors.Is(err, ErrCorrupt) {
		t.Errorf("independent: %v", err)
	}
}

func TestLZ4Errors(t *testing.T) {
	frame := func(flags, size byte, rest string) []byte {
		b := append([]byte(lz4FrameMagic), flags, size)
		b = append(b, rest...)
		return b
	}
	sealed := func(flags, size byte, extra, rest string) []byte {
		b := frame(flags, size, extra)
		b = append(b, byte(xxh32(b[4:])>>8))
		return append(b, rest...)
	}
	const end = "\x00\x00\x00\x00"
	for _, c := range []struct {
		name, want string
		src        []byte
	}{
		{"short", "frame of 6 bytes", frame(0x60, 0x40, "")},
		{"magic of the legacy format", "not a frame", []byte("\x02\x21\x4c\x18\x60\x40\x82" + end)},
		{"version 0", "flags 0x20", sealed(0x20, 0x40, "", end)},
		{"reserved flag", "flags 0x62", sealed(0x62, 0x40, "", end)},
		{"dictionary", "flags 0x61", sealed(0x61, 0x40, "\x01\x00\x00\x00", end)},
		{"block size 3", "block size code 0x30", sealed(0x60, 0x30, "", end)},
		{"block size reserved", "block size code 0xc0", sealed(0x60, 0xc0, "", end)},
		{"header checksum", "header checksum 0x83", frame(0x60, 0x40, "\x83"+end)},
		{"no content size", "no content size", frame(0x68, 0x40, "\x01\x00\x00\x00\x00\x00\x00\x00")},
		{"content size differs", "content has 3 bytes, frame says 4", sealed(0x68, 0x40, "\x04\x00\x00\x00\x00\x00\x00\x00", "\x03\x00\x00\x80abc"+end)},
		{"no end", "frame ends before a block size", sealed(0x60, 0x40, "", "\x03\x00\x00\x80abc")},
		{"block past the end", "block of 4 bytes, 3 are left", sealed(0x60, 0x40, "", "\x04\x00\x00\x80abc")},
		{"block too large", "block of 65537 bytes", sealed(0x60, 0x40, "", "\x01\x00\x01\x80"+strings.Repeat("x", 65537)+end)},
		{"block checksum", "block checksum is", sealed(0x70, 0x40, "", "\x03\x00\x00\x80abc\x00\x00\x00\x00"+end)},
		{"content checksum", "content checksum is", sealed(0x64, 0x40, "", "\x03\x00\x00\x80abc"+end+"\x00\x00\x00\x00")},
		{"no content checksum", "before a content checksum", sealed(0x64, 0x40, "", "\x03\x00\x00\x80abc"+end)},
		{"broken block", "block of 3 bytes", sealed(0x60, 0x40, "", "\x03\x00\x00\x00\xff\xff\xff"+end)},
		{"second frame", "after the frame", append([]byte(lz4Header+end), lz4Header+end...)},
	} {
		_, err := Decompress(nil, c.src, LZ4, 1<<20)
		if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	claim := sealed(0x68, 0x40, "\x00\x00\x00\x00\x00\x00\x00\x80", end)
	if _, err := Decompress(nil, claim, LZ4, 0); !errors.Is(err, ErrTooLarge) {
		t.Errorf("claims 8 EiB: %v", err)
	}
}
