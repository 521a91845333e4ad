package billet

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/billetlog/billet/internal/batch"
	"github.com/billetlog/billet/replication"
)

// BenchmarkProducer measures Produce against partitions that answer at once and
// keep nothing.
func BenchmarkProducer(b *testing.B) {
	for _, size := range []int{100, 1024} {
		for _, partitions := range []int{1, 4} {
			for _, key := range []bool{false, true} {
				for _, callback := range []bool{false, true} {
					name := fmt.Sprintf("size=%d/partitions=%d/key=%v/callback=%v", size, partitions, key, callback)
					b.Run(name, func(b *testing.B) { benchmarkProducer(b, size, partitions, key, callback) })
				}
			}
		}
	}
}

func benchmarkProducer(b *testing.B, size, partitions int, key, callback bool) {
	cat := newFakeCatalog()
	cat.make = func() *fakeLog {
		f := newFakeLog()
		f.null = true
		return f
	}
	logs := cat.topic("t", partitions, 1<<20)
	p, err := newProducer(cat, ProducerConfig{}, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer p.Close()
	produceLoop(b, p, size, key, callback)
	appends := int64(0)
	for _, f := range logs {
		appends += f.appends.Load()
	}
	b.ReportMetric(float64(b.N)/float64(appends), "records/batch")
}

func produceLoop(b *testing.B, p *Producer, size int, key, callback bool) {
	ctx := context.Background()
	value := bytes.Repeat([]byte("v"), size)
	keys := [][]byte{[]byte("alpha"), []byte("beta"), []byte("gamma"), []byte("delta")}
	var done func(Offset, error)
	failed := 0
	if callback {
		done = func(_ Offset, err error) {
			if err != nil {
				failed++
			}
		}
	}
	b.SetBytes(int64(size))
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		r := Record{Topic: "t", Value: value}
		if key {
			r.Key = keys[i&3]
		}
		if err := p.Produce(ctx, r, done); err != nil {
			b.Fatal(err)
		}
	}
	if err := p.Flush(ctx); err != nil {
		b.Fatal(err)
	}
	if failed > 0 {
		b.Fatalf("%d failed", failed)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds()/1e6, "Mrecords/s")
}

// BenchmarkProducerDisk is the same with a real directory.
func BenchmarkProducerDisk(b *testing.B) {
	for _, fsync := range []Fsync{FsyncInterval, FsyncCommit} {
		for _, size := range []int{100, 1024} {
			for _, partitions := range []int{1, 4} {
				b.Run(fmt.Sprintf("fsync=%s/size=%d/partitions=%d", fsync, size, partitions), func(b *testing.B) {
					l := openTest(b, Config{Dir: b.TempDir()})
					if err := l.CreateTopic(context.Background(), Topic{Name: "t", Partitions: partitions, Fsync: fsync, RetentionBytes: 1 << 30}); err != nil {
						b.Fatal(err)
					}
					p, err := l.NewProducer(ProducerConfig{})
					if err != nil {
						b.Fatal(err)
					}
					defer p.Close()
					if _, err := p.ProduceSync(context.Background(), Record{Topic: "t"}); err != nil {
						b.Fatal(err)
					}
					produceLoop(b, p, size, false, false)
				})
			}
		}
	}
}

// BenchmarkProduceSync measures one record at a time.
func BenchmarkProduceSync(b *testing.B) {
	ctx := context.Background()
	for _, fsync := range []Fsync{FsyncInterval, FsyncCommit} {
		l := openTest(b, Config{Dir: b.TempDir()})
		if err := l.CreateTopic(ctx, Topic{Name: "t", Fsync: fsync}); err != nil {
			b.Fatal(err)
		}
		value := make([]byte, 1024)
		b.Run(fmt.Sprintf("fsync=%s/call=append", fsync), func(b *testing.B) { benchmarkAppend(b, l, value) })
		b.Run(fmt.Sprintf("fsync=%s/call=log", fsync), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := l.Produce(ctx, Record{Topic: "t", Value: value}); err != nil {
					b.Fatal(err)
				}
			}
		})
		p, err := l.NewProducer(ProducerConfig{})
		if err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("fsync=%s/call=producer", fsync), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := p.ProduceSync(ctx, Record{Topic: "t", Value: value}); err != nil {
					b.Fatal(err)
				}
			}
		})
		_ = p.Close()
	}
}

// benchmarkAppend is the same without the root: the least that Produce can cost.
func benchmarkAppend(b *testing.B, l *Log, value []byte) {
	log, err := l.catalog.Partition("t", 0)
	if err != nil {
		b.Fatal(err)
	}
	if err := log.Writable(context.Background()); err != nil {
		b.Fatal(err)
	}
	var builder batch.Builder
	builder.Reset(batch.BuilderOptions{})
	builder.Append(time.Now().UnixMilli(), nil, value, nil)
	bytes, err := builder.Finish()
	if err != nil {
		b.Fatal(err)
	}
	done := make(chan appendResult, 1)
	answer := func(r appendResult) { done <- r }
	b.ReportAllocs()
	for b.Loop() {
		log.Append(bytes, replication.AppendOptions{Acks: replication.AcksAll}, answer)
		if r := <-done; r.Err != nil {
			b.Fatal(r.Err)
		}
	}
}

// BenchmarkPoll measures decoding from memory.
func BenchmarkPoll(b *testing.B) {
	for _, size := range []int{100, 1024} {
		b.Run(fmt.Sprintf("size=%d", size), func(b *testing.B) {
			cat := newFakeCatalog()
			f := cat.topic("t", 1, 1<<20)[0]
			value := bytes.Repeat([]byte("v"), size)
			for range 64 {
				f.fill(b, (64<<10)/size, func(int) []byte { return value }, batch.None)
			}
			c, err := newConsumer(cat, nil, ConsumerConfig{Topics: []string{"t"}}, nil)
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			n, ctx := 0, context.Background()
			b.SetBytes(int64(size))
			b.ReportAllocs()
			b.ResetTimer()
			for n < b.N {
				records, err := c.Poll(ctx)
				if err != nil {
					b.Fatal(err)
				}
				n += len(records)
				if lag, _ := c.Lag("t", 0); lag == 0 {
					_ = c.SeekToBeginning("t")
				}
			}
		})
	}
}

// BenchmarkHandover measures the time from Produce to a waiting consumer, one
// record in flight at a time.
func BenchmarkHandover(b *testing.B) {
	ctx := context.Background()
	for _, kind := range []string{"log", "producer"} {
		b.Run("call="+kind, func(b *testing.B) {
			l := openTest(b, Config{Dir: b.TempDir()})
			if err := l.CreateTopic(ctx, Topic{Name: "t", Fsync: FsyncInterval}); err != nil {
				b.Fatal(err)
			}
			p, err := l.NewProducer(ProducerConfig{})
			if err != nil {
				b.Fatal(err)
			}
			defer p.Close()
			c, err := l.NewConsumer(ConsumerConfig{Topics: []string{"t"}})
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			sent, got := make(chan time.Time, 1), make(chan time.Duration, 1)
			go func() {
				for {
					records, err := c.Poll(ctx)
					if err != nil {
						return
					}
					for range records {
						got <- time.Since(<-sent)
					}
				}
			}()
			var all []time.Duration
			value := make([]byte, 1024)
			for b.Loop() {
				sent <- time.Now()
				r := Record{Topic: "t", Value: value}
				if kind == "log" {
					_, err = l.Produce(ctx, r)
				} else {
					err = p.Produce(ctx, r, nil)
				}
				if err != nil {
					b.Fatal(err)
				}
				all = append(all, <-got)
				time.Sleep(500 * time.Microsecond)
			}
			slices.Sort(all)
			b.ReportMetric(float64(all[len(all)/2].Nanoseconds())/1e3, "p50-µs")
			b.ReportMetric(float64(all[len(all)*99/100].Nanoseconds())/1e3, "p99-µs")
		})
	}
}

// BenchmarkConsumeDisk reads what was written before, from the page cache.
func BenchmarkConsumeDisk(b *testing.B) {
	ctx := context.Background()
	for _, size := range []int{100, 1024} {
		b.Run(fmt.Sprintf("size=%d", size), func(b *testing.B) {
			l := openTest(b, Config{Dir: b.TempDir()})
			if err := l.CreateTopic(ctx, Topic{Name: "t", Fsync: FsyncInterval}); err != nil {
				b.Fatal(err)
			}
			p, err := l.NewProducer(ProducerConfig{})
			if err != nil {
				b.Fatal(err)
			}
			value := bytes.Repeat([]byte("v"), size)
			for range (256 << 20) / size {
				if err := p.Produce(ctx, Record{Topic: "t", Value: value}, nil); err != nil {
					b.Fatal(err)
				}
			}
			if err := p.Close(); err != nil {
				b.Fatal(err)
			}
			c, err := l.NewConsumer(ConsumerConfig{Topics: []string{"t"}})
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			b.SetBytes(int64(size))
			b.ReportAllocs()
			b.ResetTimer()
			for n := 0; n < b.N; {
				records, err := c.Poll(ctx)
				if err != nil {
					b.Fatal(err)
				}
				n += len(records)
				if lag, _ := c.Lag("t", 0); lag == 0 {
					_ = c.SeekToBeginning("t")
				}
			}
		})
	}
}
