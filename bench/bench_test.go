package bench

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/billetlog/billet"
)

// open makes a log with one topic in a directory of the benchmark's own.
func open(b *testing.B, dir string, partitions int, fsync billet.Fsync) *billet.Log {
	b.Helper()
	l, err := billet.Open(billet.Config{Dir: dir})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := l.Close(); err != nil {
			b.Error(err)
		}
	})
	if _, err := l.Topic(context.Background(), "t"); err == nil {
		return l
	}
	if err := l.CreateTopic(context.Background(), billet.Topic{Name: "t", Partitions: partitions, Fsync: fsync}); err != nil {
		b.Fatal(err)
	}
	return l
}

var policies = []struct {
	name  string
	fsync billet.Fsync
}{{"commit", billet.FsyncCommit}, {"interval", billet.FsyncInterval}}

// BenchmarkAppend is one record after the other through Log.Produce.
func BenchmarkAppend(b *testing.B) {
	for _, p := range policies {
		for _, size := range []int{100, 1024, 64 << 10} {
			b.Run(fmt.Sprintf("fsync=%s/size=%d", p.name, size), func(b *testing.B) {
				l := open(b, b.TempDir(), 1, p.fsync)
				r := billet.Record{Topic: "t", Value: make([]byte, size)}
				b.SetBytes(int64(size))
				for b.Loop() {
					if _, err := l.Produce(b.Context(), r); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkProduce is a firehose through one Producer.
func BenchmarkProduce(b *testing.B) {
	for _, p := range policies {
		for _, partitions := range []int{1, 4} {
			for _, size := range []int{100, 1024} {
				b.Run(fmt.Sprintf("fsync=%s/partitions=%d/size=%d", p.name, partitions, size), func(b *testing.B) {
					l := open(b, b.TempDir(), partitions, p.fsync)
					b.SetBytes(int64(size))
					produce(b, l, b.N, size)
				})
			}
		}
	}
}

// produce sends n records and waits for all; the timer runs meanwhile and stands still afterwards.
func produce(b *testing.B, l *billet.Log, n, size int) {
	b.Helper()
	p, err := l.NewProducer(billet.ProducerConfig{})
	if err != nil {
		b.Fatal(err)
	}
	r := billet.Record{Topic: "t", Value: make([]byte, size)}
	b.ResetTimer()
	for range n {
		if err := p.Produce(context.Background(), r, nil); err != nil {
			b.Fatal(err)
		}
	}
	if err := p.Flush(context.Background()); err != nil {
		b.Fatal(err)
	}
	b.StopTimer()
	if err := p.Close(); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkConsume reads what lies in the page cache, decoded and checked.
func BenchmarkConsume(b *testing.B) {
	for _, size := range []int{100, 1024} {
		b.Run(fmt.Sprintf("size=%d", size), func(b *testing.B) {
			l := open(b, b.TempDir(), 1, billet.FsyncInterval)
			produce(b, l, b.N, size)
			b.ResetTimer() // the timer stands still since produce ended
			c, err := l.NewConsumer(billet.ConsumerConfig{Topics: []string{"t"}})
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(size))
			b.StartTimer()
			for n := 0; n < b.N; {
				records, err := c.Poll(context.Background())
				if err != nil {
					b.Fatal(err)
				}
				n += len(records)
			}
			b.StopTimer()
			if err := c.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// BenchmarkReopen closes and opens a log and writes one record to each partition.
func BenchmarkReopen(b *testing.B) {
	for _, partitions := range []int{1, 100} {
		b.Run(fmt.Sprintf("partitions=%d", partitions), func(b *testing.B) {
			dir := b.TempDir()
			l, err := billet.Open(billet.Config{Dir: dir})
			if err != nil {
				b.Fatal(err)
			}
			if err := l.CreateTopic(b.Context(), billet.Topic{Name: "t", Partitions: partitions}); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if err := l.Close(); err != nil {
					b.Fatal(err)
				}
				if l, err = billet.Open(billet.Config{Dir: dir}); err != nil {
					b.Fatal(err)
				}
				for i := range partitions {
					if _, err := l.ProduceBatch(b.Context(), "t", int32(i), []billet.Record{{Value: []byte("v")}}); err != nil {
						b.Fatal(err)
					}
				}
			}
			if err := l.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// BenchmarkPartitions has four callers in each of many partitions, one durable record after the other.
func BenchmarkPartitions(b *testing.B) {
	for _, partitions := range []int{16, 64, 256} {
		b.Run(fmt.Sprintf("partitions=%d/callers=4/size=1024", partitions), func(b *testing.B) {
			l := open(b, b.TempDir(), partitions, billet.FsyncCommit)
			each := b.N/(partitions*4) + 1
			value := make([]byte, 1024)
			b.SetBytes(1024)
			b.ResetTimer()
			var wg sync.WaitGroup
			for i := range partitions {
				for range 4 {
					wg.Go(func() {
						for range each {
							if _, err := l.ProduceBatch(context.Background(), "t", int32(i), []billet.Record{{Value: value}}); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
			}
			wg.Wait()
		})
	}
}
