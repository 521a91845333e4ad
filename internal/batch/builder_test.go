package batch

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"
)

func TestBuilderRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		opts, records := drawOptions(t), drawRecords(t)
		b := buildBatch(t, opts, records)
		if err := b.Validate(Limits{Strict: true}); err != nil {
			t.Fatalf("validate: %v", err)
		}
		if b.Size() != len(b) || b.Count() != len(records) || b.BaseOffset() != opts.BaseOffset ||
			b.IsTransactional() != opts.Transactional || b.LeaderEpoch() != NoLeaderEpoch {
			t.Fatalf("header of %x", []byte(b[:HeaderSize]))
		}
		got, err := DecodeAll(b, 0)
		if err != nil {
			t.Fatalf("decode: %v", err)
		}
		setOffsets(records, opts.BaseOffset)
		compareRecords(t, got, records)
	})
}

// A builder that was used for anything makes the same batch as a fresh one.
func TestBuilderReuse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b Builder
		for range rapid.IntRange(1, 5).Draw(t, "batches") {
			opts, records := drawOptions(t), drawRecords(t)
			b.Reset(opts)
			for _, r := range records {
				b.Append(r.Timestamp, r.Key, r.Value, r.Headers)
			}
			if rapid.Bool().Draw(t, "drop") {
				continue
			}
			got, err := b.Finish()
			if err != nil {
				t.Fatalf("finish: %v", err)
			}
			if want := buildBatch(t, opts, records); !bytes.Equal(got, want) {
				t.Fatalf("reused builder made\n%x, want\n%x", []byte(got), []byte(want))
			}
			framed := b.Framed()
			if len(framed) != opts.Headroom+len(got) || !sameStart(framed[opts.Headroom:], got) {
				t.Fatalf("framed %d bytes, headroom %d, batch %d", len(framed), opts.Headroom, len(got))
			}
			if rapid.Bool().Draw(t, "release") {
				Release(framed)
			}
		}
	})
}

func TestBuilderSizes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		opts := drawOptions(t)
		opts.Codec = None
		var b Builder
		b.Reset(opts)
		if b.Size() != HeaderSize || b.Count() != 0 {
			t.Fatalf("empty: size %d, count %d", b.Size(), b.Count())
		}
		for i, r := range drawRecords(t) {
			want := b.SizeAfter(r.Timestamp, r.Key, r.Value, r.Headers)
			b.Append(r.Timestamp, r.Key, r.Value, r.Headers)
			if int64(b.Size()) != want || b.Count() != i+1 {
				t.Fatalf("record %d: size %d, foretold %d, count %d", i, b.Size(), want, b.Count())
			}
		}
		size := b.Size()
		batch, err := b.Finish()
		if err != nil || len(batch) != size {
			t.Fatalf("%d bytes, size said %d, %v", len(batch), size, err)
		}
	})
}

func TestBuilderKeepsNothingOfTheCaller(t *testing.T) {
	key, value := []byte("key"), []byte("value")
	headers := []Header{{Key: "h", Value: []byte("hv")}}
	var b Builder
	b.Reset(BuilderOptions{})
	b.Append(1, key, value, headers)
	copy(key, "XXX")
	copy(value, "XXXXX")
	copy(headers[0].Value, "XX")
	batch, err := b.Finish()
	fatalIf(t, err)
	got, err := DecodeAll(batch, 0)
	fatalIf(t, err)
	compareRecords(t, got, []Record{{Timestamp: 1, Key: []byte("key"), Value: []byte("value"),
		Headers: []Header{{Key: "h", Value: []byte("hv")}}}})
}

func TestFinishHandsMemoryOver(t *testing.T) {
	for _, codec := range codecs {
		opts := BuilderOptions{Codec: codec}
		var b Builder
		var batches []Batch
		for i := range 5 {
			b.Reset(opts)
			for j := range 50 {
				b.Append(int64(i), nil, fmt.Appendf(nil, "batch %d record %d", i, j), nil)
			}
			batch, err := b.Finish()
			fatalIf(t, err)
			batches = append(batches, batch)
		}
		for i, batch := range batches {
			fatalIf(t, batch.Validate(Limits{Strict: true}))
			records, err := DecodeAll(batch, 0)
			fatalIf(t, err)
			if want := fmt.Sprintf("batch %d record 49", i); string(records[49].Value) != want {
				t.Errorf("%v: %q, want %q", codec, records[49].Value, want)
			}
		}
	}
}

func TestBuilderStoresWhatDoesNotCompress(t *testing.T) {
	value := randomBytes(1000)
	plain := buildBatch(t, BuilderOptions{}, []Record{{Value: value}})
	for _, codec := range codecs {
		b := buildBatch(t, BuilderOptions{Codec: codec}, []Record{{Value: value}})
		if !bytes.Equal(b, plain) {
			t.Errorf("%v: stored as %v in %d bytes, uncompressed takes %d", codec, b.Codec(), len(b), len(plain))
		}
	}
}

func TestBuilderErrors(t *testing.T) {
	var b Builder
	if delta := b.Append(0, nil, nil, nil); delta != -1 {
		t.Errorf("append before reset: %d", delta)
	}
	if _, err := b.Finish(); !errors.Is(err, ErrFinished) || b.Size() != 0 || b.Framed() != nil {
		t.Errorf("finish before reset: %v", err)
	}
	b.Reset(BuilderOptions{})
	if _, err := b.Finish(); !errors.Is(err, ErrEmpty) {
		t.Errorf("empty: %v", err)
	}
	b.Reset(BuilderOptions{})
	b.Append(0, nil, nil, nil)
	if _, err := b.Finish(); err != nil {
		t.Errorf("finish: %v", err)
	}
	if _, err := b.Finish(); !errors.Is(err, ErrFinished) {
		t.Errorf("finish twice: %v", err)
	}
	for _, c := range []struct {
		opts BuilderOptions
		want error
	}{
		{BuilderOptions{BaseOffset: -1}, ErrInvalidRecord},
		{BuilderOptions{Codec: 5}, ErrUnsupportedCodec},
		{BuilderOptions{Codec: Zstd, Level: 23}, ErrInvalidLevel},
		{BuilderOptions{Capacity: -5, Headroom: -5}, nil},
	} {
		b.Reset(c.opts)
		b.Append(0, nil, nil, nil)
		if _, err := b.Finish(); !errors.Is(err, c.want) || (err != nil) != (b.Framed() == nil) {
			t.Errorf("%+v: %v, want %v", c.opts, err, c.want)
		}
	}
}

// A value that appears to be huge without being so: its pages are never
// touched, since the builder refuses by its length.
func TestBuilderRefusesTooMuch(t *testing.T) {
	if math.MaxInt == math.MaxInt32 || testing.Short() {
		t.Skip("needs 2 GiB of address space")
	}
	huge := make([]byte, MaxSize-HeaderSize-10)
	var b Builder
	b.Reset(BuilderOptions{})
	if after := b.SizeAfter(0, nil, huge, nil); after <= MaxSize {
		t.Fatalf("size after is %d", after)
	}
	if delta := b.Append(0, nil, huge, nil); delta != -1 {
		t.Fatalf("delta %d", delta)
	}
	if b.Count() != 0 || b.Size() != HeaderSize {
		t.Fatalf("count %d, size %d", b.Count(), b.Size())
	}
	if _, err := b.Finish(); !errors.Is(err, ErrTooLarge) {
		t.Fatal(err)
	}
}

func TestRetainedOffsets(t *testing.T) {
	var b Builder
	b.Reset(BuilderOptions{BaseOffset: 100, Codec: Gzip})
	for _, delta := range []int32{3, 4, 9} {
		if !b.AppendAt(delta, 1000+int64(delta), []byte("key"), nil, nil) {
			t.Fatalf("delta %d refused", delta)
		}
	}
	b.RetainOffsets(5) // less than what is there
	b.RetainOffsets(20)
	batch, err := b.Finish()
	fatalIf(t, err)
	fatalIf(t, batch.Validate(Limits{}))
	if err := batch.Validate(Limits{Strict: true}); !errors.Is(err, ErrInvalidRecord) {
		t.Errorf("strict: %v", err)
	}
	if batch.NextOffset() != 121 || batch.Count() != 3 || batch.MaxTimestamp() != 1009 {
		t.Errorf("next %d, count %d, max %d", batch.NextOffset(), batch.Count(), batch.MaxTimestamp())
	}
	got, err := DecodeAll(batch, 0)
	fatalIf(t, err)
	compareRecords(t, got, []Record{
		{Offset: 103, Timestamp: 1003, Key: []byte("key")},
		{Offset: 104, Timestamp: 1004, Key: []byte("key")},
		{Offset: 109, Timestamp: 1009, Key: []byte("key")},
	})
}

func TestAppendAtRefusesDisorder(t *testing.T) {
	for _, deltas := range [][]int32{{-1}, {0, 0}, {5, 4}, {math.MaxInt32}} {
		var b Builder
		b.Reset(BuilderOptions{})
		last := true
		for _, delta := range deltas {
			last = b.AppendAt(delta, 0, nil, nil, nil)
		}
		if last {
			t.Errorf("%v accepted", deltas)
		}
		if _, err := b.Finish(); !errors.Is(err, ErrInvalidRecord) && !errors.Is(err, ErrTooLarge) {
			t.Errorf("%v: %v", deltas, err)
		}
	}
}

func TestRetainedTimestamps(t *testing.T) {
	var b Builder
	b.Reset(BuilderOptions{})
	if !b.SetDeleteHorizon(5000) {
		t.Fatal("delete horizon refused")
	}
	want := b.SizeAfter(70, []byte("k"), nil, nil)
	b.Append(70, []byte("k"), nil, nil)
	if int64(b.Size()) != want {
		t.Errorf("size %d, foretold %d", b.Size(), want)
	}
	if b.SetDeleteHorizon(6000) {
		t.Error("delete horizon set after a record")
	}
	batch, err := b.Finish()
	fatalIf(t, err)
	if !batch.HasDeleteHorizon() || batch.BaseTimestamp() != 5000 || batch.MaxTimestamp() != 70 {
		t.Errorf("horizon %v, base %d, max %d", batch.HasDeleteHorizon(), batch.BaseTimestamp(), batch.MaxTimestamp())
	}
	got, err := DecodeAll(batch, 0)
	fatalIf(t, err)
	compareRecords(t, got, []Record{{Timestamp: 70, Key: []byte("k")}})

	b.Reset(BuilderOptions{})
	b.RetainLogAppendTime(50)
	b.Append(70, nil, nil, nil)
	batch, err = b.Finish()
	fatalIf(t, err)
	fatalIf(t, batch.Validate(Limits{Strict: true}))
	got, err = DecodeAll(batch, 0)
	fatalIf(t, err)
	if batch.TimestampType() != LogAppendTime || batch.MaxTimestamp() != 50 || got[0].Timestamp != 50 {
		t.Errorf("type %v, max %d, record %d", batch.TimestampType(), batch.MaxTimestamp(), got[0].Timestamp)
	}

	b.Reset(BuilderOptions{})
	b.RetainOffsets(3)
	batch, err = b.Finish()
	fatalIf(t, err)
	if batch.MaxTimestamp() != NoTimestamp || batch.BaseTimestamp() != NoTimestamp || batch.NextOffset() != 4 {
		t.Errorf("empty: max %d, base %d, next %d", batch.MaxTimestamp(), batch.BaseTimestamp(), batch.NextOffset())
	}
}

func TestBuilderDoesNotAllocate(t *testing.T) {
	value := benchValue(100)
	headers := []Header{{Key: "h", Value: value[:10]}}
	var b Builder
	opts := BuilderOptions{Capacity: 64 << 10}
	b.Reset(opts)
	allocs := testing.AllocsPerRun(2000, func() {
		b.Append(1, value[:8], value, headers)
		if b.Size() > 60<<10 {
			b.Reset(opts)
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations for each append", allocs)
	}
}

func TestReleaseKeepsBuffersInBounds(t *testing.T) {
	Release(nil)
	Release(make([]byte, 0, minPooled-1))
	Release(make([]byte, 0, maxPooled+1))
	for range 100 {
		buf := takeBuffer(500)
		if len(buf) != 0 || cap(buf) < 500 || cap(buf) > maxPooled {
			t.Fatalf("len %d, cap %d", len(buf), cap(buf))
		}
		Release(buf)
	}
}
