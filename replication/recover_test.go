package replication

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/billetlog/billet/internal/vfs"
	"github.com/billetlog/billet/segment"
	"github.com/billetlog/billet/transport"
)

// groupOn creates a topic with one partition on the nodes with these ids.
func (h *herd) groupOn(topic string, config map[string]string, ids ...int32) {
	h.t.Helper()
	ctx := testContext(h.t)
	m := h.live()
	if _, err := m.Controller.CreateTopic(ctx, TopicSpec{Name: topic, Partitions: 1, Replicas: len(ids), Config: config}); err != nil {
		h.t.Fatal(err)
	}
	if err := m.Controller.Reassign(ctx, topic, 0, ids); err != nil {
		h.t.Fatal(err)
	}
	m.until("the topic is where it shall be", func(c *Controller) bool {
		a := c.mu.topics[topic].Partitions[0]
		return !a.unsettled() && fmt.Sprint(voters(a)) == fmt.Sprint(ids)
	})
}

// Two of a partition's three nodes are gone for good, while the cluster has its majority: the third one's log goes on. What comes back of the old
// group is deleted.
func TestRecoverPartition(t *testing.T) {
	t.Parallel() // it waits, mostly
	h := newHerd(t, 5, nil)
	defer h.closeAll()
	h.groupOn("t", nil, 1, 2, 3)
	end := h.produce("t", "a", "b", "c")
	_, err := h.live().Controller.RecoverPartition(testContext(t), "t", 0)
	if !errors.Is(err, ErrMajority) {
		t.Fatalf("recovering a partition that works: %v", err)
	}
	h.eventually("node 3 has all", func() bool { return h.replica(2, "t").EndOffset() == end })
	was := h.assignment(4, "t")
	h.down(0, 1)
	var got Recovered
	h.eventually("recovery", func() bool {
		ctx, cancel := context.WithTimeout(testContext(t), testTimeout/2)
		defer cancel()
		if got, err = h.all[4].Controller.RecoverPartition(ctx, "t", 0); err != nil {
			t.Log(err)
		}
		return err == nil
	})
	if got.Node != 3 || got.EndOffset != end || got.StartOffset != 0 || len(got.Unreachable) != 2 {
		t.Errorf("recovered is %+v", got)
	}
	end = h.produce("t", "d")
	h.eventually("three replicas again, on live nodes", func() bool {
		a := h.assignment(4, "t")
		return !a.unsettled() && len(a.Replicas) == 3 && a.Shard != was.Shard
	})
	h.settled("t", end, 2, 3, 4)
	h.up(0, 1)
	for _, i := range []int{0, 1} {
		h.eventually("the old replica is deleted", func() bool {
			_, err := h.fs[i].Stat(h.all[i].Host.replicaDir(segment.Key{Shard: was.Shard, Replica: replicaID(int32(i+1), 1)}))
			return err != nil
		})
	}
	if _, err := h.all[0].Controller.RecoverPartition(testContext(t), "t", 0); !errors.Is(err, ErrMajority) {
		t.Errorf("recovering it again: %v", err)
	}
}

// A recovery that was cut off before its record leaves files that the next one deletes.
func TestRecoverAfterCrash(t *testing.T) {
	h := newHerd(t, 1, nil)
	defer h.closeAll()
	h.topic("t", nil)
	end := h.produce("t", "a", "b")
	c, p := h.all[0].Controller, h.replica(0, "t")
	q := rebuildRequest{Topic: "t", Shard: p.spec.Shard, Replica: p.spec.Replica, NewReplica: replicaID(1, 2)}
	q.LastIndex, q.LastTerm, q.Term = p.r.currentLog().LastIndex(), p.r.currentLog().LastTerm(), 9
	_, q.Epoch, _ = c.host.guard.leader(metadataShard)
	ctx := testContext(t)
	for _, shard := range []uint64{500, 501} {
		q.NewShard = shard
		if err := c.rebuildReplica(ctx, &q); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := h.fs[0].Stat(c.host.replicaDir(segment.Key{Shard: 500, Replica: q.NewReplica})); err == nil {
		t.Error("what the first attempt left is still there")
	}
	a := h.assignment(0, "t")
	err := c.decide(ctx, func(ctx context.Context) error {
		b := a
		b.Shard, b.Replicas, b.NextIncarnation = q.NewShard, []ReplicaAssignment{{Node: 1, Replica: q.NewReplica}}, 3
		return c.write(ctx, topicRecord(c.topic("t").with(b), false))
	})
	if err != nil {
		t.Fatal(err)
	}
	h.eventually("the new group leads", func() bool {
		now := h.replica(0, "t")
		return now != nil && now.spec.Shard == q.NewShard && now.Epoch() > 9 && now.HighWatermark() == end
	})
	end = h.produce("t", "c")
	h.settled("t", end, 0)
	q.Discard = true
	if err := c.rebuildReplica(ctx, &q); !errors.Is(err, ErrTopicExists) {
		t.Errorf("a late request to discard: %v", err)
	}
}

var lazily = map[string]string{"billet.fsync": "interval", "flush.ms": "600000"}

// One machine of three goes down under fsync interval: its replica does not vote with what it has left, and is replaced.
func TestLossyPowerCutOfOne(t *testing.T) {
	t.Parallel() // it waits, mostly
	boot := "one"
	h := newHerd(t, 3, func(c *HostConfig) { c.bootID = boot })
	defer h.closeAll()
	h.topic("t", lazily)
	end := h.produce("t", "a", "b", "c")
	i := (h.leader("t") + 1) % 3
	p := h.replica(i, "t")
	h.eventually("all is here", func() bool { return p.EndOffset() == end })
	h.powerCut(i)
	boot = "two"
	h.up(i)
	end = h.produce("t", "d")
	h.settled("t", end, 0, 1, 2)
	if now := h.replica(i, "t"); now.spec.Replica == p.spec.Replica {
		t.Error("the replica that lost its tail is still a member")
	}
	if !h.seen(i, EventQuarantined) {
		t.Error("no event")
	}
}

// All machines go down together: the longest of what is left goes on, by itself.
func TestLossyPowerCutOfAll(t *testing.T) {
	t.Parallel() // it waits, mostly
	boot := "one"
	h := newHerd(t, 3, func(c *HostConfig) { c.bootID = boot })
	defer h.closeAll()
	h.topic("t", lazily)
	h.produce("t", "a", "b")
	was := h.assignment(0, "t")
	// One of them had made more durable than the others.
	i := h.leader("t")
	h.replica(i, "t").r.syncLog()
	h.produce("t", "c")
	h.powerCut(0, 1, 2)
	boot = "two"
	h.up(0, 1, 2)
	h.eventually("another shard", func() bool { return h.assignment(0, "t").Shard != was.Shard })
	end := h.produce("t", "d")
	if end < 3 {
		t.Errorf("the partition ends at %d, and two records were durable on one node", end)
	}
	h.settled("t", end, 0, 1, 2)
	var recovered bool
	for k := range h.all {
		recovered = recovered || h.seen(k, EventRecovered)
	}
	if !recovered {
		t.Error("no event")
	}
}

// A node whose copy of the metadata is damaged gets another one: while it runs, and when it is opened.
func TestMetadataReplaced(t *testing.T) {
	t.Parallel() // it waits, mostly
	for _, open := range []bool{false, true} {
		t.Run(fmt.Sprintf("open=%v", open), func(t *testing.T) {
			h := newHerd(t, 3, quickScrub)
			defer h.closeAll()
			h.topic("t", nil)
			h.produce("t", "a")
			leader, _ := h.all[0].Controller.leaderNode()
			i := int(leader) % 3 // the one after it
			own := h.all[i].Controller.meta()
			k, segments := own.spec.key(), own.r.currentLog().Segments()
			if open {
				h.down(i)
			}
			h.flip(i, k, segments, 0)
			if open {
				h.up(i)
			}
			h.eventually("another replica of the metadata", func() bool {
				now := h.all[i].Controller.meta()
				return now.spec.Replica != k.Replica && now.HighWatermark() > 0
			})
			if err := h.all[i].Controller.AlterTopic(testContext(t), "t", map[string]string{"retention.ms": "86400000"}, nil); err != nil {
				t.Fatal(err)
			}
			h.eventually("three voters", func() bool {
				a := h.assignment(i, MetadataTopic)
				return len(voters(a)) == 3 && !a.unsettled()
			})
		})
	}
}

// Two of three nodes are gone for good, with the metadata's majority: one of those that are left is made the cluster, what the other has of the topics is
// kept, and a node of the old cluster reaches neither.
func TestRecoverCluster(t *testing.T) {
	t.Parallel() // it waits, mostly
	h := newHerd(t, 3, nil)
	defer h.closeAll()
	h.topic("t", nil)
	end := h.produce("t", "a", "b")
	h.eventually("all have all", func() bool {
		return h.replica(0, "t").EndOffset() == end && h.replica(1, "t").EndOffset() == end && h.replica(2, "t").EndOffset() == end
	})
	before := h.replica(2, "t").spec
	h.down(0, 1, 2)
	ctx := testContext(t)
	got, err := RecoverCluster(ctx, h.fs[1], "/data", 2)
	if err != nil {
		t.Fatal(err)
	}
	again, err := RecoverCluster(ctx, h.fs[1], "/data", 2) // as after a crash
	if err != nil || again.Generation <= got.Generation || again.EndOffset != got.EndOffset {
		t.Fatalf("once more: %+v, %v, before %+v", again, err, got)
	}
	h.up(1)
	if err := FollowCluster(h.fs[2], "/data", 3, again.Generation); err != nil {
		t.Fatal(err)
	}
	h.up(2)
	if err := FollowCluster(h.fs[1], "/data", 2, again.Generation); !errors.Is(err, ErrInvalidConfig) {
		t.Errorf("the recovered node follows itself: %v", err)
	}
	// Nodes 2 and 3 are the topic's majority still, with the replicas that they had.
	end = h.produce("t", "c")
	if p := h.replica(2, "t"); p == nil || p.spec.Replica != before.Replica || p.spec.Shard != before.Shard {
		t.Errorf("node 3 has another replica of the topic")
	}
	h.eventually("two nodes with the metadata", func() bool {
		a := h.assignment(1, MetadataTopic)
		return len(a.Replicas) == 2 && h.all[2].Controller.meta().HighWatermark() == h.all[1].Controller.meta().HighWatermark()
	})
	h.shutOut(0)
	// With an empty directory it comes back.
	h.fs[0] = vfs.NewMem()
	h.up(0)
	h.settled("t", end, 0, 1, 2)
}

// shutOut opens a node of the old cluster: it is told, and where it is not it comes up for nothing, since nobody lets it in.
func (h *herd) shutOut(i int) {
	h.t.Helper()
	var met atomic.Int64
	for _, m := range h.all {
		if m != nil {
			m.Host.peerStates.add(func(s transport.PeerState) {
				if s.ID == int32(i+1) && s.Status == transport.PeerReachable {
					met.Add(1)
				}
			})
		}
	}
	for _, join := range []bool{true, false} {
		cfg := h.config(i)
		if !join {
			cfg.Network.Join, cfg.Network.Bootstrap = nil, nil
		}
		ctx, cancel := context.WithTimeout(testContext(h.t), clusterLook*10)
		n, err := OpenNode(ctx, cfg)
		cancel()
		if err == nil {
			h.t.Errorf("join=%v: a node of the old cluster came up", join)
			_ = n.Close(testContext(h.t))
		} else if join && !errors.Is(err, ErrForeignDir) {
			h.t.Errorf("it is told %v", err)
		}
	}
	if met.Load() != 0 {
		h.t.Error("a node of the old cluster was let in")
	}
}
