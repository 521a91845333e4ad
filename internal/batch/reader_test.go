package batch

import (
	"bytes"
	"errors"
	"testing"

	"pgregory.net/rapid"
)

func readAll(t require, r *Reader) []Record {
	t.Helper()
	var records []Record
	var rec Record
	for r.Next(&rec) {
		records = append(records, rec.Clone())
	}
	if r.Err() != nil {
		t.Fatalf("read: %v", r.Err())
	}
	return records
}

// One reader for batches of all kinds gives what fresh ones give.
func TestReaderReuse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r Reader
		for range rapid.IntRange(1, 6).Draw(t, "batches") {
			opts, records := drawOptions(t), drawRecords(t)
			b := buildBatch(t, opts, records)
			switch rapid.IntRange(0, 3).Draw(t, "damage") {
			case 0:
				cut := b[:rapid.IntRange(0, len(b)-1).Draw(t, "cut")]
				if err := r.Reset(cut, 0); err == nil || r.Next(&Record{}) || r.Err() != err {
					t.Fatalf("cut to %d bytes: %v, then %v", len(cut), err, r.Err())
				}
			case 1:
				if err := r.Reset(b, 0); err != nil {
					t.Fatalf("reset: %v", err)
				}
				r.Next(&Record{})
			}
			if err := r.Reset(b, 0); err != nil {
				t.Fatalf("reset: %v", err)
			}
			setOffsets(records, opts.BaseOffset)
			compareRecords(t, readAll(t, &r), records)
			if r.Next(&Record{}) || r.Err() != nil {
				t.Fatalf("a record after the last, or %v", r.Err())
			}
		}
	})
}

func TestReaderZeroValue(t *testing.T) {
	var r Reader
	if r.Next(&Record{}) || r.Err() != nil {
		t.Fatalf("zero reader: %v", r.Err())
	}
}

func TestReaderAliasesAnUncompressedBatch(t *testing.T) {
	b := buildBatch(t, BuilderOptions{}, []Record{{Key: []byte("key"), Value: []byte("value"),
		Headers: []Header{{Key: "name", Value: []byte("hv")}}}})
	var r Reader
	fatalIf(t, r.Reset(b, 0))
	var rec Record
	if !r.Next(&rec) {
		t.Fatal(r.Err())
	}
	clone := rec.Clone()
	for i := HeaderSize; i < len(b); i++ {
		b[i] = '!'
	}
	if string(rec.Key) != "!!!" || string(rec.Value) != "!!!!!" || rec.Headers[0].Key != "!!!!" {
		t.Errorf("record was copied: %+v", rec)
	}
	if cap(rec.Key) != 3 || cap(rec.Value) != 5 {
		t.Errorf("an append to a field would overwrite the batch: capacities %d, %d", cap(rec.Key), cap(rec.Value))
	}
	compareRecords(t, []Record{clone}, []Record{{Key: []byte("key"), Value: []byte("value"),
		Headers: []Header{{Key: "name", Value: []byte("hv")}}}})
}

func TestClonesOutliveTheReader(t *testing.T) {
	for _, codec := range codecs {
		records := sampleRecords(200)
		b := buildBatch(t, BuilderOptions{Codec: codec}, records)
		var r Reader
		fatalIf(t, r.Reset(b, 0))
		got := readAll(t, &r)
		fatalIf(t, r.Reset(buildBatch(t, BuilderOptions{Codec: codec},
			[]Record{{Value: bytes.Repeat([]byte{'?'}, len(r.buf))}}), 0))
		clear(b)
		compareRecords(t, got, records)
	}
}

func TestDecodeAllRecordsAreIndependentOfOneAnother(t *testing.T) {
	for _, codec := range codecs {
		records := sampleRecords(200)
		b := buildBatch(t, BuilderOptions{Codec: codec}, records)
		first, err := DecodeAll(b, 0)
		fatalIf(t, err)
		_, err = DecodeAll(buildBatch(t, BuilderOptions{Codec: codec}, sampleRecords(300)), 0)
		fatalIf(t, err)
		compareRecords(t, first, records)
	}
	if _, err := DecodeAll(nil, 0); !errors.Is(err, ErrTruncated) {
		t.Errorf("no bytes: %v", err)
	}
	if got, err := DecodeAll(rawBatch(1, 0, 14, 0, 0, 0, 1, 1, 0, 0), 0); err == nil || got != nil {
		t.Errorf("bad record: %v, %v", got, err)
	}
}

func TestReaderStopsAtTheBadRecord(t *testing.T) {
	b := rawBatch(3, 2, 12, 0, 0, 0, 1, 1, 0, 12, 0, 0, 2, 1, 1, 0, 12, 0, 0, 4, 1, 9, 0)
	var r Reader
	fatalIf(t, r.Reset(b, 0))
	var rec Record
	n := 0
	for r.Next(&rec) {
		n++
	}
	var at *PositionError
	if n != 2 || !errors.As(r.Err(), &at) || at.Record != 2 || at.Detail != "bad value" {
		t.Fatalf("%d records, %v", n, r.Err())
	}
	if r.Next(&rec) || !errors.Is(r.Err(), ErrCorrupt) {
		t.Fatalf("went on: %v", r.Err())
	}
}

func TestReaderDropsLargeBuffers(t *testing.T) {
	large := buildBatch(t, BuilderOptions{Codec: LZ4}, []Record{{Value: make([]byte, 2*keepBuffer)}})
	small := buildBatch(t, BuilderOptions{Codec: LZ4}, sampleRecords(100))
	var r Reader
	fatalIf(t, r.Reset(large, 0))
	fatalIf(t, r.Reset(small, 0))
	if cap(r.buf) > keepBuffer {
		t.Errorf("kept %d bytes", cap(r.buf))
	}
	kept := cap(r.buf)
	fatalIf(t, r.Reset(small, 0))
	if cap(r.buf) != kept {
		t.Errorf("buffer of %d bytes was not reused", kept)
	}
}

func TestReaderDoesNotAllocate(t *testing.T) {
	for _, codec := range []Codec{None, LZ4, Snappy} {
		b := buildBatch(t, BuilderOptions{Codec: codec}, sampleRecords(1000))
		var r Reader
		var rec Record
		allocs := testing.AllocsPerRun(20, func() {
			if r.Reset(b, 0) != nil {
				return
			}
			for r.Next(&rec) {
			}
		})
		if allocs > 2 || r.Err() != nil {
			t.Errorf("%v: %v allocations for 1000 records, %v", codec, allocs, r.Err())
		}
	}
}
