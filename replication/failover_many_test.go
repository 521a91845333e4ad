package replication

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/billetlog/billet/internal/vfs"
	"github.com/billetlog/billet/transport"
)

// All that a dead node led is led by others soon, spread over them where they hear of it at the same time, and no election timeout goes by.
func TestManyLeadershipsMove(t *testing.T) {
	groups := 30
	if os.Getenv("BILLET_SLOW") != "" {
		groups = 1000
	}
	c := newPatientTrio(t, 0)
	defer c.close()
	parts := make([][]*Partition, 3)
	for g := range groups {
		for i, n := range c.nodes {
			spec := testSpec(t, int32(i+1))
			spec.Shard, spec.Partition = uint64(100+g), int32(g)
			spec.members = map[uint64]string{}
			for other := range c.nodes {
				spec.members[replicaID(int32(other+1), 1)] = nodeName(int32(other + 1))
			}
			parts[i] = append(parts[i], n.start(spec, true))
		}
	}
	eventually(t, "dragonboat has loaded all groups", func() bool {
		loaded := 0
		for _, n := range c.nodes {
			for _, info := range n.host.guard.shards() {
				if !info.Pending {
					loaded++
				}
			}
		}
		return loaded == 3*(groups+1)
	})
	eventually(t, "all are led by node 1, as all know", func() bool {
		missing := 0
		for g, p := range parts[0] {
			known := true
			for i := range c.nodes {
				leader, _, ok := parts[i][g].host.guard.leader(p.spec.Shard)
				known = known && ok && leader == p.spec.Replica
			}
			if !known {
				missing++
				if leader, _, ok := p.host.guard.leader(p.spec.Shard); missing <= 8 && (!ok || leader != p.spec.Replica) {
					p.host.net.timeoutNow(p.spec.Shard, p.spec.Replica)
				}
			}
		}
		return missing == 0
	})
	// Who comes first where, as long as a machine that is busy keeps nobody waiting for longer than failoverStagger.
	if first := firstInRank(t, parts[1:], loss{node: 1, agreed: []int32{2, 3}}); min(first[0], first[1]) < groups/3 || first[0]+first[1] != groups {
		t.Errorf("first in rank are node 2 in %d groups and node 3 in %d, of %d", first[0], first[1], groups)
	}
	began := time.Now()
	c.kill(0)
	led := make([]int, 3)
	eventually(t, "all are led by others", func() bool {
		led[1], led[2] = 0, 0
		for g := range groups {
			for i := 1; i < 3; i++ {
				if s, _ := parts[i][g].State(); s == StateLeader {
					led[i]++
				}
			}
		}
		return led[1]+led[2] == groups
	})
	took := time.Since(began)
	t.Logf("%d leaderships moved within %v, %d and %d", groups, took, led[1], led[2])
	if took >= patientBound {
		t.Errorf("an election timeout went by: %v", took)
	}
}

// firstInRank counts for each of the nodes the groups where it campaigns first after the loss.
func firstInRank(t *testing.T, nodes [][]*Partition, l loss) []int {
	t.Helper()
	first := make([]int, len(nodes))
	for i, parts := range nodes {
		for _, p := range parts {
			rank, ranks, ok := p.rank(l)
			if !ok || ranks != len(nodes) {
				t.Errorf("%s has rank %d of %d, %v", p.name(), rank, ranks, ok)
			}
			if ok && rank == 0 {
				first[i]++
			}
		}
	}
	return first
}

// defaults are the real clocks of a host.
func defaults(n *testNode) { n.tick = DefaultTickInterval }

// A stall of the leader's disk that is shorter than the election timeout moves no leadership.
func TestStallMovesNoLeadership(t *testing.T) {
	slow(t)
	gates := make([]*gate, 0, 3)
	c := newTrioWith(t, func(n *testNode) {
		g := &gate{}
		gates = append(gates, g)
		defaults(n)
		n.fs = vfs.Inject(n.fs, g.fault)
	})
	defer c.close()
	c.seize(0)
	c.produce(-1, "a")
	_, term, _ := c.nodes[0].host.guard.leader(2)
	for round := range 3 {
		held, open := gates[0].shut(func(op vfs.Op, _ string) bool { return op == vfs.OpSync })
		answer := make(chan AppendResult, 1)
		c.parts[0].Append(textBatch(t, "stalled"), AppendOptions{Acks: AcksAll}, func(r AppendResult) { answer <- r })
		<-held
		pause(testContext(t), 1500*time.Millisecond)
		open()
		if r := take(t, answer); r.Err != nil {
			t.Errorf("round %d: %v", round, r.Err)
		}
		pause(testContext(t), time.Second) // late consequences
		for i, n := range c.nodes {
			if leader, now, ok := n.host.guard.leader(2); !ok || now != term || nodeOf(leader) != 1 {
				t.Fatalf("round %d: node %d says node %d leads in term %d, it was node 1 in %d", round, i+1, nodeOf(leader), now, term)
			}
		}
	}
}

// A leader that falls silent is replaced by the election timeout.
func TestSilentLeaderIsReplaced(t *testing.T) {
	slow(t)
	for range 3 {
		c := newTrioWith(t, defaults)
		c.seize(0)
		c.produce(-1, "a")
		c.net.Partition(transport.CutSilent, []string{nodeName(1)}, []string{nodeName(2), nodeName(3)})
		began := time.Now()
		l, at := c.produce(0, "b")
		took := time.Since(began)
		t.Logf("node %d leads after %v", l+1, took)
		if at != 1 || took > 6*time.Second {
			t.Errorf("offset %d after %v", at, took)
		}
		c.net.Heal()
		waitHW(t, c.parts[0], 2)
		if got := values(t, c.parts[0], 0); fmt.Sprint(got) != "[a b]" {
			t.Errorf("the old leader has %v", got)
		}
		c.close()
	}
}
