package replication

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/billetlog/billet/internal/batch"
	"github.com/billetlog/billet/internal/vfs"
)

// fakeDirectory knows one topic of one partition.
type fakeDirectory struct {
	self int32
	mu   struct {
		sync.Mutex
		gone  bool
		all   []int32
		at    PartitionAssignment
		local *Partition
	}
}

func (d *fakeDirectory) assignment(topic string, n int32) (id [16]byte, a PartitionAssignment, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.gone || topic != "t" || n != 0 {
		return id, a, fmt.Errorf("%w: %s-%d", ErrUnknownTopic, topic, n)
	}
	return [16]byte{7}, d.mu.at, nil
}

func (d *fakeDirectory) replica(topic string, n int32) *Partition {
	d.mu.Lock()
	defer d.mu.Unlock()
	if topic != "t" || n != 0 {
		return nil
	}
	return d.mu.local
}

func (d *fakeDirectory) name(id [16]byte) (string, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return "t", id == [16]byte{7} && !d.mu.gone
}

func (d *fakeDirectory) nodes() []int32 { return d.mu.all }

func (d *fakeDirectory) setLocal(p *Partition) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.local = p
}

// remoteRig is one partition on three of four nodes, each with a router. The last node has no replica.
type remoteRig struct {
	*trio
	dirs    []*fakeDirectory
	routers []*Router
	routes  []*Route
}

const outsider = 3 // the node without a replica

func newRemoteRig(t *testing.T) *remoteRig {
	c := &trio{t: t, net: newTestNet(t, 1), nodes: make([]*testNode, 4), parts: make([]*Partition, 3)}
	r := &remoteRig{trio: c, dirs: make([]*fakeDirectory, 4), routers: make([]*Router, 4), routes: make([]*Route, 4)}
	at := PartitionAssignment{Shard: 2}
	for i := range 3 {
		at.Replicas = append(at.Replicas, ReplicaAssignment{Node: int32(i + 1), Replica: replicaID(int32(i+1), 1)})
	}
	for i := range c.nodes {
		c.nodes[i] = &testNode{t: t, fs: vfs.OS, dir: filepath.Join(t.TempDir(), fmt.Sprint(i)), id: int32(i + 1), net: c.net}
		c.nodes[i].open()
		r.dirs[i] = &fakeDirectory{self: int32(i + 1)}
		r.dirs[i].mu.at, r.dirs[i].mu.all = at, []int32{1, 2, 3, 4}
	}
	for i := range 3 {
		r.startReplica(i, true)
	}
	for i := range c.nodes {
		r.startRouter(i)
	}
	return r
}

func (r *remoteRig) startReplica(i int, create bool) {
	r.t.Helper()
	spec := testSpec(r.t, int32(i+1))
	spec.members = map[uint64]string{}
	for n := range 3 {
		spec.members[replicaID(int32(n+1), 1)] = nodeName(int32(n + 1))
	}
	r.parts[i] = r.nodes[i].start(spec, create)
	r.dirs[i].setLocal(r.parts[i])
}

func (r *remoteRig) startRouter(i int) {
	r.t.Helper()
	r.routers[i] = newRouter(r.nodes[i].host, r.dirs[i])
	var err error
	if r.routes[i], err = r.routers[i].Route("t", 0); err != nil {
		r.t.Fatal(err)
	}
}

func (r *remoteRig) close() {
	r.t.Helper()
	for i := range r.nodes {
		r.stop(i)
	}
}

// stop closes one node.
func (r *remoteRig) stop(i int) {
	r.t.Helper()
	if r.routers[i] == nil {
		return
	}
	began := time.Now()
	r.routers[i].Close()
	if took := time.Since(began); took > testTimeout/2 {
		r.t.Errorf("closing the router of node %d took %v", i+1, took)
	}
	r.routers[i] = nil
	r.nodes[i].close()
}

// route waits until a node's route has a leader.
func (r *remoteRig) route(i int) *Route {
	r.t.Helper()
	if err := r.routes[i].Writable(testContext(r.t)); err != nil {
		r.t.Fatal(err)
	}
	return r.routes[i]
}

// appendTo appends through a route until it is acknowledged.
func appendTo(t testing.TB, route *Route, b batch.Batch) AppendResult {
	t.Helper()
	ctx := testContext(t)
	for {
		if err := route.Writable(ctx); err != nil {
			t.Fatal(err)
		}
		done := make(chan AppendResult, 1)
		route.Append(b, AppendOptions{Acks: AcksAll}, func(r AppendResult) { done <- r })
		select {
		case r := <-done:
			if r.Err == nil {
				return r
			}
			if !again(r.Err) {
				t.Fatal(r.Err)
			}
		case <-ctx.Done():
			t.Fatal("no answer to an append")
		}
		pause(ctx, time.Millisecond)
	}
}

// reader reads values through a cursor of a route.
type reader struct {
	t      testing.TB
	cursor *RouteCursor
	ch     chan struct{}
	cancel func()
	offset int64
	got    []string
}

func newReader(t testing.TB, notify func(chan<- struct{}) func(), c *RouteCursor, offset int64) *reader {
	r := &reader{t: t, cursor: c, ch: make(chan struct{}, 1), offset: offset}
	r.cancel = notify(r.ch)
	return r
}

func (r *reader) close() {
	r.cancel()
	r.cursor.Close()
}

// take waits until n values were read in all.
func (r *reader) take(n int) []string {
	r.t.Helper()
	deadline := time.After(testTimeout)
	for len(r.got) < n {
		data, err := r.cursor.Read(nil, r.offset, 64<<10)
		if err != nil {
			r.t.Fatal(err)
		}
		if len(data) == 0 {
			select {
			case <-r.ch:
			case <-deadline:
				r.t.Fatalf("%d of %d values came", len(r.got), n)
			}
		}
		for len(data) > 0 {
			b, rest, err := batch.Split(data, 0)
			if err != nil {
				r.t.Fatal(err)
			}
			recs, err := batch.DecodeAll(b, 0)
			if err != nil {
				r.t.Fatal(err)
			}
			for _, rec := range recs {
				if rec.Offset < r.offset {
					continue
				}
				if rec.Offset != r.offset {
					r.t.Fatalf("offset %d where %d must be", rec.Offset, r.offset)
				}
				r.got = append(r.got, string(rec.Value))
				r.offset++
			}
			data = rest
		}
	}
	return r.got
}

func (r *remoteRig) transfer(from, to int) {
	g := &r.nodes[from].host.guard
	g.mu.RLock()
	defer g.mu.RUnlock()
	_ = g.nh.RequestLeaderTransfer(2, replicaID(int32(to+1), 1))
}

// follower is a node that has a replica and does not lead.
func (r *remoteRig) follower() int {
	r.t.Helper()
	return (r.leader(-1) + 1) % 3
}

func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}
