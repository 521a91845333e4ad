package batch

import (
	"bytes"
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// require is what helpers need of *testing.T, *testing.B and *rapid.T.
type require interface {
	Helper()
	Fatalf(format string, args ...any)
}

var codecs = []Codec{None, Gzip, Snappy, LZ4, Zstd}

func buildBatch(t require, opts BuilderOptions, records []Record) Batch {
	t.Helper()
	var b Builder
	b.Reset(opts)
	for i, r := range records {
		if got := b.Append(r.Timestamp, r.Key, r.Value, r.Headers); got != i {
			t.Fatalf("append %d returned %d", i, got)
		}
	}
	batch, err := b.Finish()
	if err != nil {
		t.Fatalf("finish: %v", err)
	}
	return batch
}

// sampleRecords returns n records that compress well and have every mix of null
// and empty.
func sampleRecords(n int) []Record {
	records := make([]Record, n)
	for i := range records {
		r := Record{Offset: int64(i), Timestamp: 1700000000000 + int64(i%7)}
		if i%3 != 0 {
			r.Key = fmt.Appendf(nil, "key-%d", i)[:i%3*2]
		}
		if i%5 != 0 {
			r.Value = bytes.Repeat(fmt.Appendf(nil, "value %d ", i), i%11)
		}
		if i%4 == 1 {
			r.Headers = []Header{{Key: "trace", Value: []byte{byte(i)}}, {Key: ""}, {Key: "e", Value: []byte{}}}
		}
		records[i] = r
	}
	return records
}

func setOffsets(records []Record, base int64) {
	for i := range records {
		records[i].Offset = base + int64(i)
	}
}

func sameBytes(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }

func compareRecords(t require, got, want []Record) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d records, want %d", len(got), len(want))
	}
	for i := range got {
		g, w := got[i], want[i]
		ok := g.Offset == w.Offset && g.Timestamp == w.Timestamp &&
			sameBytes(g.Key, w.Key) && sameBytes(g.Value, w.Value) && len(g.Headers) == len(w.Headers)
		for j := 0; ok && j < len(g.Headers); j++ {
			ok = g.Headers[j].Key == w.Headers[j].Key && sameBytes(g.Headers[j].Value, w.Headers[j].Value)
		}
		if !ok {
			t.Fatalf("record %d is\n%+v, want\n%+v", i, g, w)
		}
	}
}

func drawBytes(t *rapid.T, label string) []byte {
	switch rapid.IntRange(0, 5).Draw(t, label+" kind") {
	case 0:
		return nil
	case 1:
		return []byte{}
	case 2:
		n := rapid.IntRange(50, 20000).Draw(t, label+" length")
		return bytes.Repeat([]byte{'x'}, n)
	}
	b := rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, label)
	if b == nil {
		b = []byte{}
	}
	return b
}

func drawRecords(t *rapid.T) []Record {
	base := rapid.Int64Range(-1, 1<<45).Draw(t, "base timestamp")
	records := make([]Record, rapid.IntRange(1, 12).Draw(t, "count"))
	for i := range records {
		r := &records[i]
		r.Timestamp = base + rapid.Int64Range(-1<<42, 1<<42).Draw(t, "timestamp")
		r.Key, r.Value = drawBytes(t, "key"), drawBytes(t, "value")
		for range rapid.IntRange(0, 3).Draw(t, "headers") {
			r.Headers = append(r.Headers, Header{
				Key: rapid.StringN(0, 10, 30).Draw(t, "header key"), Value: drawBytes(t, "header value")})
		}
	}
	return records
}

func drawOptions(t *rapid.T) BuilderOptions {
	opts := BuilderOptions{
		Codec:      rapid.SampledFrom(codecs).Draw(t, "codec"),
		BaseOffset: rapid.Int64Range(0, 1<<60).Draw(t, "base offset"),
		Capacity:   rapid.IntRange(0, 200).Draw(t, "capacity"),
		Headroom:   rapid.IntRange(0, 100).Draw(t, "headroom"),
	}
	if rapid.Bool().Draw(t, "producer") {
		opts.HasProducer = true
		opts.ProducerID = rapid.Int64Min(0).Draw(t, "producer id")
		opts.ProducerEpoch = rapid.Int16Min(0).Draw(t, "producer epoch")
		opts.BaseSequence = rapid.Int32Min(0).Draw(t, "base sequence")
		opts.Transactional = rapid.Bool().Draw(t, "transactional")
	}
	return opts
}

func fatalIf(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
