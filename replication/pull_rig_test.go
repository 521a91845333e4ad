package replication

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/billetlog/billet/internal/vfs"
)

// joinNode adds a node with a learner of the partition, empty, to the network and to the group. It returns the node's place in the trio.
func (c *trio) joinNode(fs vfs.FS, edit func(*PartitionSpec)) int {
	c.t.Helper()
	i := len(c.nodes)
	dir := "/data"
	if fs == vfs.OS {
		dir = filepath.Join(c.t.TempDir(), fmt.Sprint(i))
	}
	n := &testNode{t: c.t, fs: fs, dir: dir, id: int32(i + 1), net: c.net}
	n.open()
	c.nodes, c.parts = append(c.nodes, n), append(c.parts, nil)
	c.startLearner(i, edit, true)
	c.change(func(p *Partition, ctx context.Context) error { return p.AddLearner(ctx, c.learner(i), int32(i+1)) })
	return i
}

func (c *trio) learner(i int) uint64 { return replicaID(int32(i+1), 2) }

func (c *trio) startLearner(i int, edit func(*PartitionSpec), create bool) {
	spec := testSpec(c.t, int32(i+1))
	spec.Replica = c.learner(i)
	spec.Join, spec.Learner = create, create // the files remember
	if edit != nil {
		edit(&spec)
	}
	c.parts[i] = c.nodes[i].start(spec, create)
}

// change makes a membership change through whoever leads.
func (c *trio) change(f func(*Partition, context.Context) error) {
	c.t.Helper()
	mustChange(c.t, func(ctx context.Context) error { return f(c.parts[c.leader(-1)], ctx) })
}

// load appends batches through whoever leads, with bytes of values.
func (c *trio) load(except, batches, size int) (end int64) {
	c.t.Helper()
	value := bytes.Repeat([]byte("x"), size)
	for i := range batches {
		_, at := c.produce(except, fmt.Sprintf("%d-%s", i, value))
		end = at + 1
	}
	return end
}

// frames reads a log's entries as bytes, from the given index on.
func frames(t testing.TB, p *Partition, from uint64) (first uint64, out [][]byte) {
	t.Helper()
	log := p.r.currentLog()
	first = max(from, log.FirstIndex())
	for next := first; next <= log.LastIndex(); {
		entries, err := log.Entries(nil, next, log.LastIndex()+1, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			out = append(out, fmt.Appendf(nil, "%d %d %d %x", e.Index, e.Term, e.Kind, e.Data))
			next = e.Index + 1
		}
	}
	return first, out
}

// same waits until all replicas have applied hw and compares their logs, entry by entry, byte for byte.
func (c *trio) same(hw int64) {
	c.t.Helper()
	for _, p := range c.parts {
		waitHW(c.t, p, hw)
	}
	c.settle()
	first := uint64(0)
	for _, p := range c.parts {
		first = max(first, p.r.currentLog().FirstIndex())
	}
	_, want := frames(c.t, c.parts[0], first)
	for i, p := range c.parts[1:] {
		_, got := frames(c.t, p, first)
		if len(got) != len(want) {
			c.t.Fatalf("node %d has %d entries from %d on, node 1 has %d", i+2, len(got), first, len(want))
		}
		for n := range got {
			if !bytes.Equal(got[n], want[n]) {
				c.t.Fatalf("entry %d of node %d is %.60s, of node 1 %.60s", first+uint64(n), i+2, got[n], want[n])
			}
		}
		if f, g := p.foldState(), c.parts[0].foldState(); f != g {
			c.t.Errorf("the fold of node %d is %s, of node 1 %s", i+2, f, g)
		}
	}
}

func (p *Partition) foldState() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return fmt.Sprint(p.mu.end, p.mu.fold.maxTime, len(p.mu.fold.producers))
}

// settle waits until all logs have the same end.
func (c *trio) settle() {
	c.t.Helper()
	deadline := time.Now().Add(testTimeout)
	for {
		last := map[uint64]bool{}
		for _, p := range c.parts {
			last[p.r.currentLog().LastIndex()] = true
		}
		if len(last) == 1 {
			return
		}
		if time.Now().After(deadline) {
			c.dump()
			c.t.Fatal("the logs do not get the same end")
		}
		<-time.After(5 * time.Millisecond)
	}
}

// firstEvent takes events of a node until one of the kind comes.
func (n *testNode) firstEvent(kind EventKind) Event {
	n.t.Helper()
	deadline := time.After(testTimeout)
	for {
		select {
		case e := <-n.events:
			if e.Kind == kind {
				return e
			}
		case <-deadline:
			n.t.Fatalf("no event %q", kind)
		}
	}
}

// give moves a leader's first index up to its end, so that who lacks entries below cannot get them one by one.
func (c *trio) raiseFirstIndex(except int) {
	c.t.Helper()
	p := c.parts[c.leader(except)]
	last := p.r.currentLog().LastIndex()
	mustChange(c.t, func(ctx context.Context) error { // the leader may be another one by now
		p = c.parts[c.leader(except)]
		return p.moveFirstIndex(ctx, last-1)
	})
	for i, q := range c.parts { // whoever leads next
		if i == except || q == nil || q == p {
			continue
		}
		mustChange(c.t, func(ctx context.Context) error { return q.moveFirstIndex(ctx, last-1) })
	}
}
