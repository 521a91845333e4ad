package batch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/klauspost/compress/s2"
)

// xerial frames raw blocks by hand.
func xerial(blocks ...[]byte) []byte {
	b := []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1}
	for _, block := range blocks {
		b = binary.BigEndian.AppendUint32(b, uint32(len(block)))
		b = append(b, block...)
	}
	return b
}

// s2Block returns src as a block in the S2 dialect, with repeated offsets where
// the encoder finds them.
func s2Block(src []byte) []byte { return s2.EncodeBest(nil, src) }

func TestSnappyByHand(t *testing.T) {
	// 9 bytes: literal "abc", then copy 6 from 3 back.
	raw := []byte{9, 2 << 2, 'a', 'b', 'c', 1 | (6-4)<<2, 3}
	xy := []byte{2, 1 << 2, 'x', 'y'}
	for name, c := range map[string]struct {
		src  []byte
		want string
	}{
		"raw":                 {raw, "abcabcabc"},
		"raw, empty":          {[]byte{0}, ""},
		"xerial":              {xerial(raw), "abcabcabc"},
		"xerial, empty":       {xerial(), ""},
		"xerial, two blocks":  {xerial(raw, xy), "abcabcabcxy"},
		"xerial, two streams": {append(xerial(raw), xerial(xy)...), "abcabcabcxy"},
	} {
		src, want := c.src, c.want
		out, err := Decompress(nil, src, Snappy, 0)
		if err != nil || string(out) != want {
			t.Errorf("%s: %q, %v", name, out, err)
		}
		if err := checkPortableSnappy(src); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSnappyWritesXerial(t *testing.T) {
	src := benchValue(xerialBlock + 100)
	packed := compress(t, src, Snappy)
	if !bytes.HasPrefix(packed, xerial()) {
		t.Fatalf("starts with % x", packed[:16])
	}
	var out []byte
	sizes := []int{}
	for rest := packed[16:]; len(rest) > 0; {
		n := binary.BigEndian.Uint32(rest)
		block, err := s2.Decode(nil, rest[4:4+n])
		fatalIf(t, err)
		sizes = append(sizes, len(block))
		out = append(out, block...)
		rest = rest[4+n:]
	}
	if !bytes.Equal(out, src) || len(sizes) != 2 || sizes[0] != xerialBlock {
		t.Fatalf("blocks of %v bytes", sizes)
	}
}

func TestSnappyErrors(t *testing.T) {
	raw := []byte{9, 2 << 2, 'a', 'b', 'c', 1 | (6-4)<<2, 3}
	for _, c := range []struct {
		name string
		src  []byte
		want string
	}{
		{"half a length", append(xerial(raw), 0, 0), "xerial block at 27: 2 bytes where a length should be"},
		{"length past the end", append(xerial(raw), 0, 0, 0, 9), "length 9, but 0 bytes are left"},
		{"length negative", append(xerial(raw), 0xff, 0xff, 0xff, 0xff), "length 4294967295"},
		{"empty block", xerial(nil), "block length"},
		{"claims too much", []byte{0xff, 0xff, 0xff, 0xff, 0x07, 0}, "claim to hold"},
		{"claims 100 MiB", []byte{0x80, 0x80, 0x80, 0x32, 0, 0, 0, 0}, "8 bytes claim to hold 104857600"},
		{"copy before the start", []byte{9, 2 << 2, 'a', 'b', 'c', 1 | (6-4)<<2, 4}, "block of 9 bytes"},
	} {
		_, err := Decompress(nil, c.src, Snappy, 0)
		if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

func TestPortableSnappy(t *testing.T) {
	for _, n := range []int{1, 59, 60, 61, 256, 257, 1 << 16, 70_000, 1 << 20} {
		for _, src := range [][]byte{randomBytes(n), benchValue(n), make([]byte, n)} {
			for _, block := range [][]byte{
				s2.EncodeSnappy(nil, src), s2.EncodeSnappyBetter(nil, src), s2.EncodeSnappyBest(nil, src),
			} {
				if err := checkPortableSnappy(block); err != nil {
					t.Fatalf("%d bytes: %v", n, err)
				}
			}
		}
	}
	if err := checkPortableSnappy(s2.EncodeBest(nil, make([]byte, 1<<16))); !errors.Is(err, errS2Block) {
		t.Errorf("S2: %v", err)
	}
	// A literal whose bytes look like a repeat is a literal.
	literal := append([]byte{100, 60 << 2, 99}, bytes.Repeat([]byte{1, 0}, 50)...)
	if err := checkPortableSnappy(literal); err != nil {
		t.Errorf("literal: %v", err)
	}
	for n := range literal {
		if err := checkPortableSnappy(literal[:n]); err != nil {
			t.Errorf("literal cut to %d: %v", n, err)
		}
	}
}
