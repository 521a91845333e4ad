package batch

import (
	"bytes"
	"errors"
	"testing"
)

// fuzzLimit bounds decompression in fuzzing, and fuzzSlack what codecs need for
// themselves when a pool is empty.
const (
	fuzzLimit = 1 << 20
	fuzzSlack = 32 << 20
)

// checkAllocated fails if f allocates more than hostile input may cause.
func checkAllocated(t *testing.T, input int, f func()) {
	t.Helper()
	if n := allocated(f); n > 8*fuzzLimit+64*uint64(input)+fuzzSlack {
		t.Fatalf("allocated %d bytes for %d of input", n, input)
	}
}

func addBatches(f *testing.F) {
	f.Helper()
	for _, picture := range []string{goldenOne, goldenThree, goldenMarker, goldenEmpty} {
		f.Add([]byte(golden(f, picture)))
	}
	for _, codec := range codecs {
		f.Add([]byte(buildBatch(f, BuilderOptions{Codec: codec}, sampleRecords(30))))
		b := buildBatch(f, BuilderOptions{Codec: codec}, sampleRecords(60))
		f.Add([]byte(b[:len(b)/2]))
	}
}

func FuzzValidate(f *testing.F) {
	addBatches(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		b := Batch(bytes.Clone(data))
		checkAllocated(t, len(b), func() {
			_ = b.Validate(Limits{MaxDecompressed: fuzzLimit, Strict: true})
		})
		if len(b) < HeaderSize {
			return
		}
		// With the right CRC it gets further.
		b.updateCRC()
		loose := b.Validate(Limits{MaxDecompressed: fuzzLimit})
		strict := b.Validate(Limits{MaxDecompressed: fuzzLimit, Strict: true})
		if strict == nil && loose != nil {
			t.Fatalf("strict accepts what is refused otherwise: %v", loose)
		}
		if loose != nil {
			return
		}
		records, err := DecodeAll(b, fuzzLimit)
		if err != nil || len(records) != b.Count() {
			t.Fatalf("valid, but decodes to %d records of %d, %v", len(records), b.Count(), err)
		}
		if batch, rest, err := Split(b, 0); err != nil || len(rest) != 0 || len(batch) != len(b) {
			t.Fatalf("valid, but splits into %d bytes and %d, %v", len(batch), len(rest), err)
		}
	})
}

func FuzzReader(f *testing.F) {
	addBatches(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		var r Reader
		checkAllocated(t, len(data), func() {
			if r.Reset(data, fuzzLimit) != nil {
				return
			}
			var rec Record
			last := int64(-1)
			for r.Next(&rec) {
				if rec.Offset <= last || rec.Offset > Batch(data).LastOffset() {
					t.Fatalf("offset %d after %d", rec.Offset, last)
				}
				last = rec.Offset
				for _, h := range rec.Headers {
					_ = len(h.Key) + len(h.Value)
				}
			}
		})
		// What was read can be built again, if it came without gaps.
		records, err := DecodeAll(data, fuzzLimit)
		if err != nil || len(records) == 0 || records[0].Offset < 0 {
			return
		}
		var b Builder
		b.Reset(BuilderOptions{BaseOffset: records[0].Offset})
		for _, rec := range records {
			if !b.AppendAt(int32(rec.Offset-records[0].Offset), rec.Timestamp, rec.Key, rec.Value, rec.Headers) {
				return
			}
		}
		again, err := b.Finish()
		if err != nil {
			t.Fatal(err)
		}
		got, err := DecodeAll(again, 0)
		if err != nil {
			t.Fatal(err)
		}
		compareRecords(t, got, records)
	})
}

func FuzzSplit(f *testing.F) {
	addBatches(f)
	f.Add([]byte(append(golden(f, goldenOne), golden(f, goldenThree)...)))
	f.Fuzz(func(t *testing.T, data []byte) {
		rest := data
		for len(rest) > 0 {
			before := len(rest)
			batch, next, err := Split(rest, 1<<20)
			if err != nil {
				var truncated *TruncatedError
				if batch != nil || len(next) != before ||
					(errors.As(err, &truncated) && truncated.Need <= truncated.Have) {
					t.Fatalf("%d bytes: batch of %d, rest of %d, %v", before, len(batch), len(next), err)
				}
				return
			}
			if batch.Size() != len(batch) || len(batch) < HeaderSize || len(batch) > 1<<20 ||
				len(batch)+len(next) != before || batch.Magic() != Magic {
				t.Fatalf("%d bytes: batch of %d, rest of %d", before, len(batch), len(next))
			}
			rest = next
		}
	})
}

func FuzzDecompress(f *testing.F) {
	for _, c := range codecs {
		for _, src := range [][]byte{nil, []byte("a"), benchValue(500), make([]byte, 100_000)} {
			f.Add(compress(f, src, c), int8(c))
		}
	}
	f.Add(s2Block(benchValue(300)), int8(Snappy))
	f.Add(linkedLZ4(benchValue(300)), int8(LZ4))
	for _, bomb := range bombs(f, 2<<20) {
		f.Add(bomb.frame, int8(bomb.codec))
	}
	f.Fuzz(func(t *testing.T, src []byte, codec int8) {
		c := Codec(codec)
		prefix := []byte("prefix")
		var out []byte
		var err error
		checkAllocated(t, len(src), func() {
			out, err = Decompress(bytes.Clone(prefix), src, c, fuzzLimit)
		})
		if err != nil {
			if out != nil || !(errors.Is(err, ErrCorrupt) || errors.Is(err, ErrTooLarge) || errors.Is(err, ErrUnsupportedCodec)) {
				t.Fatalf("%d bytes, %v", len(out), err)
			}
			return
		}
		if !bytes.HasPrefix(out, prefix) || len(out) > len(prefix)+fuzzLimit {
			t.Fatalf("%d bytes", len(out))
		}
		out = out[len(prefix):]
		// Where room comes from does not matter.
		roomy, err := Decompress(make([]byte, 0, 2*len(out)+100), src, c, max(1, len(out)))
		if err != nil || !bytes.Equal(roomy, out) {
			t.Fatalf("with room: %d bytes, %v, want %d", len(roomy), err, len(out))
		}
		again, err := Decompress(nil, compress(t, out, c), c, max(1, len(out)))
		if err != nil || !bytes.Equal(again, out) {
			t.Fatalf("compressed again: %v", err)
		}
	})
}
