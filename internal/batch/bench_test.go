package batch

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// benchValue returns n bytes that compress about twofold, as JSON does.
func benchValue(n int) []byte {
	const words = `{"id":1729,"name":"sensor","temperature":21.5,"unit":"C","site":"plant-4"}`
	rng := rand.New(rand.NewPCG(1, 2))
	v := make([]byte, n)
	for i := range v {
		v[i] = words[i%len(words)]
		if i%4 == 0 {
			v[i] = byte('a' + rng.IntN(26))
		}
	}
	return v
}

func benchBatch(b *testing.B, codec Codec, size, total int) Batch {
	b.Helper()
	var builder Builder
	builder.Reset(BuilderOptions{Codec: codec, Capacity: total + size + 100})
	value := benchValue(total + size)
	for builder.Size() < total {
		at := builder.Size()
		builder.Append(1700000000000, nil, value[at:at+size], nil)
	}
	batch, err := builder.Finish()
	fatalIf(b, err)
	return batch
}

func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{100, 1024} {
		for _, codec := range codecs {
			b.Run(fmt.Sprintf("size=%d/codec=%v", size, codec), func(b *testing.B) {
				const batchSize = 256 << 10
				value := benchValue(size)
				opts := BuilderOptions{Codec: codec, Capacity: batchSize + 2048}
				var builder Builder
				builder.Reset(opts)
				b.SetBytes(int64(size))
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					builder.Append(1700000000000+int64(i>>8), nil, value, nil)
					if builder.Size() < batchSize {
						continue
					}
					if _, err := builder.Finish(); err != nil {
						b.Fatal(err)
					}
					Release(builder.Framed())
					builder.Reset(opts)
				}
			})
		}
	}
}

func BenchmarkAppendKeyHeaders(b *testing.B) {
	key, value := []byte("customer-1729"), benchValue(100)
	headers := []Header{{Key: "traceparent", Value: benchValue(55)}, {Key: "type", Value: []byte("order")}}
	opts := BuilderOptions{Capacity: 258 << 10}
	var builder Builder
	builder.Reset(opts)
	b.ReportAllocs()
	for b.Loop() {
		builder.Append(1700000000000, key, value, headers)
		if builder.Size() >= 256<<10 {
			builder.Reset(opts)
		}
	}
}

func BenchmarkReader(b *testing.B) {
	for _, size := range []int{100, 1024} {
		for _, codec := range codecs {
			b.Run(fmt.Sprintf("size=%d/codec=%v", size, codec), func(b *testing.B) {
				batch := benchBatch(b, codec, size, 256<<10)
				count := batch.Count()
				var r Reader
				var rec Record
				b.SetBytes(int64(count * size))
				b.ReportAllocs()
				for b.Loop() {
					if err := r.Reset(batch, 0); err != nil {
						b.Fatal(err)
					}
					for r.Next(&rec) {
					}
					if r.Err() != nil {
						b.Fatal(r.Err())
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(count), "ns/record")
			})
		}
	}
}

func BenchmarkValidate(b *testing.B) {
	for _, size := range []int{100, 1024} {
		for _, codec := range codecs {
			b.Run(fmt.Sprintf("size=%d/codec=%v", size, codec), func(b *testing.B) {
				batch := benchBatch(b, codec, size, 256<<10)
				b.SetBytes(int64(batch.Count() * size))
				b.ReportAllocs()
				for b.Loop() {
					if err := batch.Validate(Limits{Strict: true}); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func BenchmarkCheckCRC(b *testing.B) {
	for _, total := range []int{1 << 10, 256 << 10} {
		b.Run(fmt.Sprintf("batch=%d", total), func(b *testing.B) {
			batch := benchBatch(b, None, 512, total)
			b.SetBytes(int64(len(batch)))
			for b.Loop() {
				if err := batch.CheckCRC(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkSplit(b *testing.B) {
	batch := benchBatch(b, None, 100, 1000)
	for b.Loop() {
		if _, _, err := Split(batch, 1<<20); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPartitionForKey(b *testing.B) {
	for _, size := range []int{8, 32, 256} {
		b.Run(fmt.Sprintf("size=%d", size), func(b *testing.B) {
			key := benchValue(size)
			b.SetBytes(int64(size))
			for b.Loop() {
				PartitionForKey(key, 12)
			}
		})
	}
}
