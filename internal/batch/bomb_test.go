package batch

import (
	"bytes"
	"errors"
	"runtime"
	"testing"

	"github.com/klauspost/compress/s2"
)

// bombs returns frames that are small and claim or yield size bytes of zeros.
func bombs(t testing.TB, size int) map[string]struct {
	codec Codec
	frame []byte
} {
	t.Helper()
	type bomb = struct {
		codec Codec
		frame []byte
	}
	zeros := make([]byte, size)
	all := make(map[string]bomb)
	for _, c := range codecs[1:] {
		all[c.String()] = bomb{c, compress(t, zeros, c)}
	}
	gz := all["gzip"].frame
	all["gzip, members"] = bomb{Gzip, bytes.Repeat(gz, 3)}
	all["snappy, raw"] = bomb{Snappy, s2.EncodeSnappy(nil, zeros)}
	all["snappy, S2"] = bomb{Snappy, s2.EncodeBest(nil, zeros)}
	all["zstd, frames"] = bomb{Zstd, bytes.Repeat(all["zstd"].frame, 3)}
	// Blocks of one repeated byte, with and without a content size.
	rle := []byte("\x28\xb5\x2f\xfd\x00\x58") // window 2 MiB
	for range size / zstdMaxBlock {
		rle = append(rle, 0x02, 0x00, 0x10, 0) // 128 KiB of zeros
	}
	all["zstd, repeats"] = bomb{Zstd, append(rle, 0x01, 0, 0)}
	return all
}

// allocated returns how many bytes f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func TestDecompressionBombs(t *testing.T) {
	const size, limit = 64 << 20, 1 << 20
	for name, bomb := range bombs(t, size) {
		if len(bomb.frame) > size/15 {
			t.Errorf("%s: %d bytes are no bomb", name, len(bomb.frame))
		}
		var err error
		decompress := func() { _, err = Decompress(nil, bomb.frame, bomb.codec, limit) }
		decompress() // fills the pools
		n := allocated(decompress)
		want := ErrTooLarge
		if name == "snappy, S2" {
			want = ErrCorrupt // beyond what snappy can do
		}
		if !errors.Is(err, want) {
			t.Errorf("%s: %v", name, err)
		}
		// Two buffers while growing, rounded up, one block beyond the limit,
		// and what a pool may have lost.
		if n > 8*limit {
			t.Errorf("%s: allocated %d bytes under a limit of %d", name, n, limit)
		}
		b := Batch(append(bytes.Clone(golden(t, goldenOne)[:HeaderSize]), bomb.frame...))
		b = put(b, LengthOffset, 4, int64(len(b)-PrefixSize))
		b = put(b, AttributesOffset, 2, int64(bomb.codec))
		if err := b.Validate(Limits{MaxDecompressed: limit}); !errors.Is(err, want) {
			t.Errorf("%s in a batch: %v", name, err)
		}
		var r Reader
		if err := r.Reset(b, limit); !errors.Is(err, want) || r.Next(&Record{}) {
			t.Errorf("%s in a reader: %v", name, err)
		}
	}
}

// Frames of a few bytes that claim much must not make us allocate it, whatever
// the limit.
func TestClaimsAreNotTrusted(t *testing.T) {
	lz4Claim := []byte("\x04\x22\x4d\x18\x68\x70" + "\x00\x00\x00\x07\x00\x00\x00\x00")
	lz4Claim = append(lz4Claim, byte(xxh32(lz4Claim[4:])>>8))
	for name, c := range map[string]struct {
		codec Codec
		frame []byte
	}{
		"snappy 100 MiB":           {Snappy, []byte{0x80, 0x80, 0x80, 0x32, 0, 'x'}},
		"snappy in xerial 100 MiB": {Snappy, xerial([]byte{0x80, 0x80, 0x80, 0x32, 0, 'x'})},
		"zstd 100 MiB":             {Zstd, []byte("\x28\xb5\x2f\xfd\xa0\x00\x00\x40\x06\x09\x00\x00x")},
		"lz4 112 MiB":              {LZ4, append(lz4Claim, "\x01\x00\x00\x80x\x00\x00\x00\x00"...)},
	} {
		var err error
		decompress := func() { _, err = Decompress(nil, c.frame, c.codec, 0) }
		decompress()
		if n := allocated(decompress); n > 4<<20 || !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: allocated %d bytes, %v", name, n, err)
		}
	}
	count := put(golden(t, goldenOne), CountOffset, 4, 1<<30)
	count = put(count, LastOffsetDeltaOffset, 4, 1<<30)
	if n := allocated(func() { _, _ = DecodeAll(count, 0) }); n > 1<<20 {
		t.Errorf("a count of 2^30: allocated %d bytes", n)
	}
	count = buildBatch(t, BuilderOptions{Codec: LZ4}, sampleRecords(100))
	count = put(put(count, CountOffset, 4, 1<<24), LastOffsetDeltaOffset, 4, 1<<24)
	if n := allocated(func() { _, _ = DecodeAll(count, 0) }); n > 4<<20 {
		t.Errorf("a count of 2^24, compressed: allocated %d bytes", n)
	}
}
