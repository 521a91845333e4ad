package replication

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/billetlog/billet/internal/vfs"
	"github.com/billetlog/billet/segment"
)

// herd is a cluster of whole nodes, with the ids from 1, that forms itself.
type herd struct {
	*memberNet
	fs     []*vfs.Mem
	all    []*member // nil while it is down
	change func(*HostConfig)

	mu     sync.Mutex
	events []map[EventKind]int // by node
}

func newHerd(t testing.TB, nodes int, change func(*HostConfig)) *herd {
	h := &herd{memberNet: newMemberNet(t), change: change}
	for range nodes {
		h.fs, h.all, h.events = append(h.fs, vfs.NewMem()), append(h.all, nil), append(h.events, map[EventKind]int{})
	}
	all := make([]int, nodes)
	for i := range all {
		all[i] = i
	}
	h.up(all...)
	h.formed()
	return h
}

// formed waits until the metadata is where it shall be.
func (h *herd) formed() {
	h.t.Helper()
	h.eventually("the metadata is where it shall be", func() bool {
		for _, m := range h.all {
			if m == nil || m.Controller.meta().Epoch() == 0 {
				continue
			}
			c := m.Controller
			nodes := c.nodeViewMap()
			c.mu.RLock()
			defer c.mu.RUnlock()
			return len(nodes) == len(h.all) && !c.metadataUnsettledLocked(c.mu.topics[MetadataTopic].Partitions[0], nodes)
		}
		return false
	})
}

func (h *herd) config(i int) NodeConfig {
	cfg := h.memberNet.config(int32(i+1), h.fs[i], func(c *NetworkConfig) {
		for k := range h.all {
			c.Bootstrap, c.Join = append(c.Bootstrap, int32(k+1)), append(c.Join, memberAddress(int32(k+1)))
		}
	})
	cfg.Host.ReplicaLagTimeMax = 2 * time.Second
	cfg.Host.OnEvent = func(e Event) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.events[i][e.Kind]++
	}
	if h.change != nil {
		h.change(&cfg.Host)
	}
	return cfg
}

// up opens nodes, all at the same time.
func (h *herd) up(nodes ...int) {
	h.t.Helper()
	errs := make([]error, len(nodes))
	var wg sync.WaitGroup
	for k, i := range nodes {
		cfg := h.config(i)
		wg.Go(func() { h.all[i], errs[k] = h.tryOpen(cfg) })
	}
	wg.Wait()
	for k, err := range errs {
		if err != nil {
			h.t.Fatalf("node %d: %v", nodes[k]+1, err)
		}
	}
}

func (h *herd) down(nodes ...int) {
	h.t.Helper()
	var wg sync.WaitGroup
	for _, i := range nodes {
		m := h.all[i]
		h.all[i] = nil
		wg.Go(m.close)
	}
	wg.Wait()
}

// powerCut takes nodes down as a power cut does: what was not synced is gone.
func (h *herd) powerCut(nodes ...int) {
	h.t.Helper()
	for _, i := range nodes {
		h.fs[i] = h.fs[i].CrashClone(vfs.CrashOptions{})
	}
	h.down(nodes...) // what it writes on the old file system is seen by nobody
}

func (h *herd) closeAll() {
	var live []int
	for i, m := range h.all {
		if m != nil {
			live = append(live, i)
		}
	}
	h.down(live...)
}

// live is a node that runs.
func (h *herd) live() *member {
	for _, m := range h.all {
		if m != nil {
			return m
		}
	}
	h.t.Fatal("no node runs")
	return nil
}

func (h *herd) topic(name string, config map[string]string) {
	h.t.Helper()
	if _, err := h.live().Controller.CreateTopic(testContext(h.t), TopicSpec{Name: name, Partitions: 1, Replicas: len(h.all), Config: config}); err != nil {
		h.t.Fatal(err)
	}
	for _, m := range h.all {
		m.until("the topic", func(c *Controller) bool {
			return c.mu.topics[name] != nil && c.mu.partitions[c.mu.topics[name].Partitions[0].Shard] != nil
		})
	}
}

// eventually waits until holds says so.
func (h *herd) eventually(what string, holds func() bool) {
	h.t.Helper()
	deadline := time.Now().Add(testTimeout)
	for !holds() {
		if time.Now().After(deadline) {
			h.t.Fatalf("%s: not in time%s", what, h.describe())
		}
		time.Sleep(5 * time.Millisecond) // between looks
	}
}

func (h *herd) describe() (s string) {
	for i, m := range h.all {
		if m == nil {
			continue
		}
		c := m.Controller
		c.mu.RLock()
		for _, t := range c.mu.topicsByName() {
			s += fmt.Sprintf("\nnode %d: %s: %+v", i+1, t.Name, t.Partitions)
		}
		for _, p := range c.mu.partitions {
			state, cause := p.State()
			s += fmt.Sprintf("\nnode %d: replica %x of shard %d: %v (%v), ends at %d, high watermark %d", i+1, p.spec.Replica, p.spec.Shard, state, cause, p.EndOffset(), p.HighWatermark())
		}
		c.mu.RUnlock()
	}
	return s
}

// replica is a node's replica of a topic's partition, nil when it has none.
func (h *herd) replica(i int, topic string) *Partition {
	c := h.all[i].Controller
	c.mu.RLock()
	defer c.mu.RUnlock()
	if t := c.mu.topics[topic]; t != nil {
		return c.mu.partitions[t.Partitions[0].Shard]
	}
	return nil
}

// leader is the node that leads a topic's partition.
func (h *herd) leader(topic string) (i int) {
	h.t.Helper()
	h.eventually("a leader of "+topic, func() bool {
		i = slices.IndexFunc(h.all, func(m *member) bool {
			p := (*Partition)(nil)
			if m != nil {
				p = h.replica(int(m.cfg.ID)-1, topic)
			}
			return p != nil && p.Epoch() != 0
		})
		return i >= 0
	})
	return i
}

func (h *herd) produce(topic string, values ...string) (end int64) {
	h.t.Helper()
	for _, v := range values {
		once := onceBatch(h.t)
		h.eventually("producing", func() bool {
			r := appendBatch(h.t, h.replica(h.leader(topic), topic), once(v), AcksAll)
			end = r.Offset + 1
			return r.Err == nil
		})
	}
	return end
}

// settled waits until the partition has a sound voter on each of the nodes, with the same log.
func (h *herd) settled(topic string, end int64, nodes ...int) {
	h.t.Helper()
	h.eventually("sound replicas everywhere", func() bool {
		for _, i := range nodes {
			a := h.assignment(i, topic)
			p := h.replica(i, topic)
			if a.unsettled() || len(a.Replicas) != len(nodes) || p == nil || p.HighWatermark() < end {
				return false
			}
			if state, _ := p.State(); state.stopped() || p.Damage() != nil {
				return false
			}
		}
		return true
	})
	var want []byte
	for k, i := range nodes {
		c := h.replica(i, topic).NewCursor()
		got, err := c.Read(nil, 0, 64<<20)
		c.Close()
		if err != nil {
			h.t.Fatal(err)
		}
		if err := h.replica(i, topic).r.currentLog().Verify(testContext(h.t), nil); err != nil {
			h.t.Errorf("node %d: %v", i+1, err)
		}
		if k == 0 {
			want = got
		} else if string(got) != string(want) {
			h.t.Errorf("node %d has other batches than node %d", i+1, nodes[0]+1)
		}
	}
}

func (h *herd) assignment(i int, topic string) PartitionAssignment {
	c := h.all[i].Controller
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.mu.topics[topic].Partitions[0]
}

func (h *herd) seen(i int, kind EventKind) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.events[i][kind] > 0
}

// flip damages a byte of the n-th segment of a node's replica, in the middle of its frames.
func (h *herd) flip(i int, k segment.Key, segments []segment.SegmentInfo, n int) {
	h.t.Helper()
	dir := generationDir(fmt.Sprintf("/data/%s/%d-%d", partitionsDir, k.Shard, k.Replica), h.generation(i, k))
	rot(h.t, h.fs[i], fmt.Sprintf("%s/%020d.log", dir, segments[n].BaseOffset))
}

func (h *herd) generation(i int, k segment.Key) uint64 {
	slots, slot, err := segment.OpenSlotFile(h.fs[i], fmt.Sprintf("/data/%s/%d-%d", partitionsDir, k.Shard, k.Replica))
	if err != nil {
		h.t.Fatal(err)
	}
	_ = slots.Close()
	return slot.Generation
}

// rot flips a byte in the middle of a file.
func rot(t testing.TB, fsys vfs.FS, name string) {
	t.Helper()
	f, err := fsys.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	size, err := f.Size()
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, size/2); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 0x40
	if _, err := f.WriteAt(b, size/2); err != nil {
		t.Fatal(err)
	}
	if err := f.SyncData(); err != nil {
		t.Fatal(err)
	}
}
