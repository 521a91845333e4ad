package billet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"

	"github.com/cespare/xxhash/v2"

	"github.com/billetlog/billet/internal/batch"
	"github.com/billetlog/billet/internal/history"
	"github.com/billetlog/billet/internal/vfs"
	"github.com/billetlog/billet/replication"
	"github.com/billetlog/billet/segment"
)

func (h *harness) allOpen() error {
	for _, n := range h.nodes {
		if n.log() == nil {
			return fmt.Errorf("node %d is not open", n.id)
		}
	}
	return nil
}

func (h *harness) allAnswered() error {
	if n := h.open.Load(); n > 0 {
		return fmt.Errorf("%d records have no answer", n)
	}
	return nil
}

// activate takes drains back.
func (h *harness) activate(ctx context.Context) bool {
	for _, n := range h.nodes {
		for {
			err := h.nodes[0].log().ActivateNode(ctx, n.id)
			if err == nil {
				break
			}
			if ctx.Err() != nil {
				h.history.Violate("activate node %d: %w", n.id, err)
				return false
			}
			h.note("activate node %d: %v", n.id, err)
		}
	}
	return true
}

// takesRecords writes a record to each partition from each node.
func (h *harness) takesRecords(ctx context.Context) bool {
	for _, n := range h.nodes {
		writer := fmt.Sprintf("probe%d", n.id)
		p, err := n.log().NewProducer(ProducerConfig{Partitioner: ManualPartitioner})
		if err != nil {
			h.history.Violate("%s: %w", writer, err)
			return false
		}
		for _, part := range h.partitions() {
			v := h.history.Send(writer)
			at, err := p.ProduceSync(ctx, Record{Topic: part.Topic, Partition: part.Number, Value: ledgerValue(v.Writer, int(v.N), 30)})
			if err != nil {
				h.history.Violate("%v takes no records of node %d after the faults are over: %w", part, n.id, err)
				h.dumpGoroutines("no records")
				return false
			}
			h.history.Acknowledge(part, at.Offset, v)
		}
		if err := p.Close(); err != nil {
			h.history.Violate("%s: close: %w", writer, err)
		}
	}
	h.note("all partitions take records")
	return true
}

// partitions lists those of the harness's topics, as the first node knows them.
func (h *harness) partitions() (out []history.Partition) {
	for _, name := range []string{harnessMainTopic, harnessWideTopic, harnessShortTopic} {
		t, _ := h.nodes[0].log().catalog.Topic(name)
		for i := range t.Partitions {
			out = append(out, history.Partition{Topic: name, Number: int32(i)})
		}
	}
	return out
}

// whole says what is not as it should be: every replica runs where the records say, and has all there is.
func (h *harness) whole() error {
	for _, n := range h.nodes {
		for _, t := range n.log().harnessNode().Controller.Topics() {
			for _, a := range t.Partitions {
				if err := h.wholePartition(&t, &a); err != nil {
					return fmt.Errorf("as node %d sees it: %w", n.id, err)
				}
			}
		}
		if err := n.tidy(); err != nil {
			return err
		}
	}
	return nil
}

// tidy says which folders of replicas the node has that it should not, or lacks.
func (n *harnessNode) tidy() error {
	want := map[string]bool{}
	for _, t := range n.log().harnessNode().Controller.Topics() {
		for _, a := range t.Partitions {
			for _, r := range a.Replicas {
				if r.Node == n.id {
					want[fmt.Sprintf("%d-%d", a.Shard, r.Replica)] = true
				}
			}
		}
	}
	names, err := n.mem().List("/data/log/partitions")
	if err != nil {
		return err
	}
	for _, name := range names {
		var shard, replica uint64
		if _, err := fmt.Sscanf(name, "%d-%d", &shard, &replica); err == nil && !n.h.knowsShard(shard) {
			continue // of a topic that was to be made and never was
		}
		if !want[name] {
			return fmt.Errorf("node %d has the folder %s, which belongs to no replica", n.id, name)
		}
		delete(want, name)
	}
	if len(want) > 0 {
		return fmt.Errorf("node %d lacks the folders %v", n.id, want)
	}
	return nil
}

// seeShard notes a shard that the records have, or had.
func (h *harness) seeShard(shard uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.shards[shard] = true
}

func (h *harness) knowsShard(shard uint64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.shards[shard]
}

func (n *harnessNode) mem() *vfs.Mem {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mu.disk
}

func (h *harness) wholePartition(t *replication.TopicState, a *replication.PartitionAssignment) error {
	want := 3
	if t.Name == replication.MetadataTopic {
		want = harnessNodes
	}
	if len(a.Target) > 0 || len(a.Replicas) < want {
		return fmt.Errorf("%s/%d is on its way: %+v", t.Name, a.Partition, *a)
	}
	leaders, high := 0, int64(-1)
	for _, r := range a.Replicas {
		if r.Role != replication.RoleVoter {
			return fmt.Errorf("%s/%d is on its way: %+v", t.Name, a.Partition, *a)
		}
		p, err := h.nodes[r.Node-1].log().harnessNode().Controller.Partition(t.Name, a.Partition)
		if err != nil {
			return fmt.Errorf("%s/%d on node %d: %w", t.Name, a.Partition, r.Node, err)
		}
		state, cause := p.State()
		switch {
		case p.Spec().Replica != r.Replica:
			return fmt.Errorf("%s/%d on node %d is replica %x, recorded is %x", t.Name, a.Partition, r.Node, p.Spec().Replica, r.Replica)
		case state == replication.StateLeader:
			leaders++
		case state != replication.StateFollower:
			return fmt.Errorf("%s/%d on node %d is %v: %w", t.Name, a.Partition, r.Node, state, cause)
		}
		if high < 0 {
			high = p.HighWatermark()
		}
		if p.HighWatermark() != high || p.EndOffset() != high {
			return fmt.Errorf("%s/%d on node %d: high watermark %d, end %d, on node %d %d", t.Name, a.Partition, r.Node,
				p.HighWatermark(), p.EndOffset(), a.Replicas[0].Node, high)
		}
	}
	if leaders != 1 {
		return fmt.Errorf("%s/%d has %d leaders", t.Name, a.Partition, leaders)
	}
	return nil
}

// allRead says which node's reader has not read all that is known.
func (h *harness) allRead() error {
	for _, p := range h.partitions() {
		known := h.history.Known(p)
		for _, n := range h.nodes {
			for _, local := range []bool{false, true} {
				if at := n.readTo(p, local); at < known {
					return fmt.Errorf("a reader of node %d (local: %v) is at %d of %d in %v", n.id, local, at, known, p)
				}
			}
		}
	}
	return nil
}

// positions are those up to which the node's reader got from leaders, in this life and those before.
func (n *harnessNode) positions() map[history.Partition]int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.mu.read[0])
}

func readIndex(local bool) int {
	if local {
		return 1
	}
	return 0
}

func (n *harnessNode) progress(p history.Partition, next int64, local bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.read[readIndex(local)][p] = next
}

func (n *harnessNode) readTo(p history.Partition, local bool) int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mu.read[readIndex(local)][p]
}

// undamaged says which replica has bytes that are not what was written.
func (h *harness) undamaged() error {
	if err := h.whole(); err != nil {
		return err
	}
	sums := map[string]uint64{}
	return h.eachReplica(func(p *replication.Partition, _ int32) error {
		c, err := harnessContent(p)
		if err != nil {
			return err
		}
		for _, r := range c.Ranges {
			key := fmt.Sprint(p.Spec().Topic, p.Spec().Partition, r.First, r.Next)
			if sum, ok := sums[key]; ok && sum != r.Sum {
				return fmt.Errorf("replicas differ in %+v", r)
			}
			sums[key] = r.Sum
		}
		return nil
	})
}

// eachReplica calls f for every replica of a topic until it returns an error.
func (h *harness) eachReplica(f func(p *replication.Partition, node int32) error) error {
	for _, t := range h.nodes[0].log().harnessNode().Controller.Topics() {
		for _, a := range t.Partitions {
			for _, r := range a.Replicas {
				if t.Internal {
					continue
				}
				p, err := h.nodes[r.Node-1].log().harnessNode().Controller.Partition(t.Name, a.Partition)
				if err == nil {
					err = f(p, r.Node)
				}
				if err != nil {
					return fmt.Errorf("%s/%d on node %d: %w", t.Name, a.Partition, r.Node, err)
				}
			}
		}
	}
	return nil
}

// compare reads all replicas and holds them against the history and each other.
func (h *harness) compare() {
	all := map[history.Partition][]history.Replica{}
	err := h.eachReplica(func(p *replication.Partition, node int32) error {
		c, err := harnessContent(p)
		c.Name = fmt.Sprintf("node %d", node)
		key := history.Partition{Topic: p.Spec().Topic, Number: p.Spec().Partition}
		all[key] = append(all[key], c)
		return err
	})
	if err != nil {
		h.history.Violate("%w", err)
	}
	for p, replicas := range all {
		h.history.CheckReplicas(p, replicas)
	}
}

// harnessContent reads all of a replica, from the beginning again where retention took that meanwhile.
func harnessContent(p *replication.Partition) (history.Replica, error) {
	for {
		r, err := harnessRead(p)
		if errors.Is(err, segment.ErrCompacted) && p.StartOffset() > r.Start {
			continue
		}
		return r, err
	}
}

// harnessRead tells, as readers do, of what it can't read: the scrubber takes minutes to come by.
func harnessRead(p *replication.Partition) (history.Replica, error) {
	r := history.Replica{Start: p.StartOffset(), End: p.HighWatermark(), Records: map[int64]history.Value{}}
	c := p.NewCursor()
	defer c.Close()
	for next := r.Start; next < r.End; {
		bytes, err := c.Read(nil, next, 1<<20)
		if err != nil || len(bytes) == 0 {
			p.Suspect(next)
			return r, fmt.Errorf("reading at %d of %d: %d bytes, %w", next, r.End, len(bytes), errors.Join(err))
		}
		from := len(r.Ranges)
		for rest := bytes; len(rest) > 0; {
			b, more, err := batch.Split(rest, 0)
			if err != nil {
				p.Suspect(next)
				return r, err
			}
			rest = more
			r.Ranges = append(r.Ranges, history.Range{First: b.BaseOffset(), Next: b.NextOffset(), Sum: xxhash.Sum64(b)})
			next = b.NextOffset()
		}
		var d decoder
		d.reset("", 0, bytes, 0)
		for {
			records, ok, err := d.next(nil, math.MaxInt)
			if err != nil {
				for _, read := range r.Ranges[from:] {
					p.Suspect(read.First)
				}
				return r, err
			}
			if !ok {
				break
			}
			for i := range records {
				r.Records[records[i].Offset] = harnessValue(records[i].Value)
			}
		}
	}
	return r, nil
}
