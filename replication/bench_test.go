package replication

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/billetlog/billet/internal/batch"
)

func sizedBatch(b testing.TB, records, size int) batch.Batch {
	b.Helper()
	var x batch.Builder
	x.Reset(batch.BuilderOptions{})
	v := make([]byte, size)
	for range records {
		x.Append(time.Now().UnixMilli(), nil, v, nil)
	}
	out, err := x.Finish()
	if err != nil {
		b.Fatal(err)
	}
	return out
}

// BenchmarkAppendOne is the time of one append after the other.
func BenchmarkAppendOne(b *testing.B) {
	for _, fsync := range []Fsync{FsyncInterval, FsyncCommit} {
		b.Run(fmt.Sprintf("fsync=%s/size=1024", fsync), func(b *testing.B) {
			n := newTestNode(b)
			spec := testSpec(b, 1)
			spec.Settings.Fsync = fsync
			p := n.start(spec, true)
			writable(b, p)
			x := sizedBatch(b, 1, 1024)
			done := make(chan AppendResult, 1)
			answer := func(r AppendResult) { done <- r }
			b.ResetTimer()
			for range b.N {
				p.Append(x, AppendOptions{Acks: AcksAll}, answer)
				if r := <-done; r.Err != nil {
					b.Fatal(r.Err)
				}
			}
			b.StopTimer()
			n.close()
		})
	}
}

// BenchmarkAppendMany keeps some appends in flight in each of several partitions.
func BenchmarkAppendMany(b *testing.B) {
	for _, c := range []struct {
		fsync                      Fsync
		partitions, flight, record int
		size                       int
	}{
		{FsyncInterval, 4, 8, 64, 1024},
		{FsyncCommit, 1, 8, 64, 1024},
		{FsyncCommit, 1, 16, 64, 1024},
		{FsyncCommit, 1, 8, 256, 1024},
		{FsyncCommit, 64, 4, 1, 1024},
	} {
		name := fmt.Sprintf("fsync=%s/partitions=%d/inflight=%d/records=%d/size=%d", c.fsync, c.partitions, c.flight, c.record, c.size)
		b.Run(name, func(b *testing.B) {
			n := newTestNode(b)
			var parts []*Partition
			for i := range c.partitions {
				spec := testSpec(b, 1)
				spec.Partition, spec.Shard, spec.Settings.Fsync = int32(i), uint64(i+2), c.fsync
				p := n.start(spec, true)
				writable(b, p)
				parts = append(parts, p)
			}
			var wg sync.WaitGroup
			each := b.N/(c.partitions*c.flight) + 1
			b.ResetTimer()
			b.SetBytes(int64(c.record * c.size))
			for _, p := range parts {
				for range c.flight {
					wg.Go(func() {
						x := sizedBatch(b, c.record, c.size)
						done := make(chan AppendResult, 1)
						for range each {
							p.Append(x, AppendOptions{Acks: AcksAll}, func(r AppendResult) { done <- r })
							if r := <-done; r.Err != nil && !errors.Is(r.Err, ErrBusy) {
								b.Error(r.Err)
								return
							}
						}
					})
				}
			}
			wg.Wait()
			b.ReportMetric(float64(each*c.partitions*c.flight)/b.Elapsed().Seconds(), "appends/s")
			b.StopTimer()
			n.close()
		})
	}
}
