package replication

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/billetlog/billet/internal/batch"
	"github.com/billetlog/billet/internal/vfs"
	"github.com/billetlog/billet/transport"
)

// tcpPair is a partition on one node, and a second node that may join, over TCP on this machine.
type tcpPair struct {
	t     testing.TB
	nodes [2]*testNode
	parts [2]*Partition
}

func newTCPPair(t testing.TB, edit func(*PartitionSpec)) *tcpPair {
	c := &tcpPair{t: t}
	all := map[int32]*peers{}
	dial := func(id int32) *peers {
		p, err := newPeers(transport.Options{ID: id, ClusterID: [16]byte{1}, Transport: transport.TCP{}, ListenAddress: "127.0.0.1:0"})
		if err != nil {
			t.Fatal(err)
		}
		all[id] = p
		for other, q := range all {
			if other != id {
				q.node.SetAddress(id, p.node.Addr().String())
				p.node.SetAddress(other, q.node.Addr().String())
			}
		}
		return p
	}
	for i := range c.nodes {
		c.nodes[i] = &testNode{t: t, fs: vfs.OS, dir: filepath.Join(t.TempDir(), fmt.Sprint(i)), id: int32(i + 1), dial: dial,
			tick: 100 * time.Millisecond, journal: DefaultJournalBytes}
		c.nodes[i].open()
	}
	spec := testSpec(t, 1)
	edit(&spec)
	c.parts[0] = c.nodes[0].start(spec, true)
	writable(t, c.parts[0])
	return c
}

// join makes a learner on the second node.
func (c *tcpPair) join(incarnation uint32, edit func(*PartitionSpec)) {
	c.t.Helper()
	spec := testSpec(c.t, 2)
	edit(&spec)
	spec.Replica, spec.Join, spec.Learner = replicaID(2, incarnation), true, true
	c.parts[1] = c.nodes[1].start(spec, true)
	mustChange(c.t, func(ctx context.Context) error { return c.parts[0].AddLearner(ctx, spec.Replica, 2) })
}

// leave takes it away.
func (c *tcpPair) leave() {
	c.t.Helper()
	mustChange(c.t, func(ctx context.Context) error { return c.parts[0].Remove(ctx, c.parts[1].spec.Replica) })
	if err := c.nodes[1].host.RemovePartition(testContext(c.t), c.parts[1]); err != nil {
		c.t.Fatal(err)
	}
}

func (c *tcpPair) close() {
	for _, n := range c.nodes {
		n.close()
	}
}

// produce appends batches of the given size, some in flight at a time, until stop or count.
func (c *tcpPair) produce(b batch.Batch, count int, stop <-chan struct{}) (bytes int64) {
	places := make(chan struct{}, 4)
	var wg sync.WaitGroup
	var failed atomic.Bool
	defer func() {
		if failed.Load() {
			c.t.Error("an append failed")
		}
	}()
	for n := 0; n < count && !failed.Load(); n++ {
		select {
		case <-stop:
			wg.Wait()
			return bytes
		case places <- struct{}{}:
		}
		own := batch.Batch(append([]byte(nil), b...))
		wg.Add(1)
		c.parts[0].Append(own, AppendOptions{Acks: AcksAll}, func(r AppendResult) {
			if r.Err != nil {
				failed.Store(true)
			}
			<-places
			wg.Done()
		})
		bytes += int64(len(b))
	}
	wg.Wait()
	return bytes
}

func TestCatchUpOverTCP(t *testing.T) {
	segments := func(s *PartitionSpec) { s.Settings.SegmentBytes = 1 << 20 }
	c := newTCPPair(t, segments)
	defer c.close()
	c.produce(textBatch(t, string(bytes.Repeat([]byte("y"), 100<<10))), 50, nil)
	c.join(1, segments)
	waitHW(t, c.parts[1], 50)
	first, want := frames(t, c.parts[0], 2)
	_, got := frames(t, c.parts[1], first)
	if len(got) < 51 {
		t.Fatalf("%d entries", len(got))
	}
	for i := range min(len(got), len(want)) {
		if !bytes.Equal(got[i], want[i]) {
			t.Fatalf("entry %d differs", first+uint64(i))
		}
	}
}

// What a replica that is empty gets per second, and what its leader takes meanwhile. Both are on one disk here.
func BenchmarkCatchUp(b *testing.B) {
	const fill = 512 << 20
	segments := func(s *PartitionSpec) { s.Settings.SegmentBytes = 256 << 20 }
	value := textBatch(b, string(bytes.Repeat([]byte("z"), 256<<10)))
	for _, run := range []struct {
		loaded bool
		rate   int64 // bytes/s; 0: no bound
	}{{false, 0}, {true, 0}, {true, 300e6}, {true, 100e6}} {
		b.Run(fmt.Sprintf("loaded=%v/bound=%dMB", run.loaded, run.rate/1e6), func(b *testing.B) {
			c := newTCPPair(b, segments)
			defer c.close()
			c.nodes[0].peers.node.SetPullRate(run.rate)
			start := time.Now()
			rate := float64(c.produce(value, fill/len(value), nil)) / time.Since(start).Seconds()
			pulled, produced, busy := int64(0), int64(0), time.Duration(0)
			for i := range b.N {
				stop := make(chan struct{})
				var wg sync.WaitGroup
				if run.loaded {
					wg.Go(func() { produced += c.produce(value, 1<<30, stop) })
				}
				c.join(uint32(i+1), segments)
				e := c.nodes[1].firstEvent(EventCatchUpDone)
				pulled, busy = pulled+e.Bytes, busy+e.Duration
				close(stop)
				wg.Wait()
				c.leave()
			}
			b.ReportMetric(float64(pulled)/busy.Seconds()/1e6, "pullMB/s")
			b.ReportMetric(rate/1e6, "aloneMB/s")
			b.ReportMetric(float64(produced)/busy.Seconds()/1e6, "besideMB/s")
		})
	}
}
