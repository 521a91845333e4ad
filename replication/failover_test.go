package replication

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/billetlog/billet/transport"
)

// patientTick makes an election timeout of twelve to twenty-four seconds: what is quicker did not wait for one.
const (
	patientTick  = time.Second
	patientBound = electionTicks * patientTick
)

// newPatientTrio has its leader on the given node, with election timeouts that no test waits for.
func newPatientTrio(t *testing.T, leader int) *trio { return newPatientTrioOver(t, leader, false) }

func newPatientTrioOver(t *testing.T, leader int, tcp bool) *trio {
	c := newTrioWith(t, func(n *testNode) {
		n.tick = patientTick
		n.net.tcp = tcp
	})
	c.seize(leader)
	return c
}

// seize makes a node the leader at once.
func (c *trio) seize(node int) {
	c.t.Helper()
	p := c.parts[node]
	eventually(c.t, "the seized leadership", func() bool {
		if leader, _, ok := p.host.guard.leader(p.spec.Shard); !ok || leader != p.spec.Replica {
			p.host.net.timeoutNow(p.spec.Shard, p.spec.Replica)
			pause(testContext(c.t), 20*time.Millisecond)
		}
		s, _ := p.State()
		return s == StateLeader
	})
	for _, q := range c.parts {
		eventually(c.t, "a follower hears of the leader", func() bool {
			leader, _, ok := q.host.guard.leader(q.spec.Shard)
			return ok && leader == p.spec.Replica
		})
	}
	for i := range c.nodes { // only who was reached before can be gone
		for j := range c.nodes {
			eventually(c.t, "nodes reach each other", func() bool { return c.nodes[i].host.reachable(int32(j + 1)) })
		}
	}
}

// kill ends a node's transport, as the end of its process does. Its host goes on in solitude until close.
func (c *trio) kill(node int) {
	c.t.Helper()
	if err := c.nodes[node].peers.node.Close(); err != nil {
		c.t.Fatal(err)
	}
}

func TestKilledLeaderIsReplacedAtOnce(t *testing.T) {
	for leader := range 3 {
		c := newPatientTrio(t, leader)
		c.produce(-1, "a")
		began := time.Now()
		c.kill(leader)
		l, at := c.produce(leader, "b")
		took := time.Since(began)
		t.Logf("node %d leads after %v", l+1, took)
		if took >= patientBound || at != 1 {
			t.Errorf("offset %d after %v", at, took)
		}
		c.close()
	}
}

// Where the first in rank lacks entries, the others refuse it, and the next one leads: nothing acknowledged is lost. So it is when the next one hears of the
// loss after the first one has campaigned.
func TestVoterThatIsBehindDoesNotLead(t *testing.T) {
	for _, late := range []bool{false, true} {
		t.Run(fmt.Sprintf("late=%v", late), func(t *testing.T) { testVoterThatIsBehind(t, late) })
	}
}

func testVoterThatIsBehind(t *testing.T, late bool) {
	c := newPatientTrio(t, 0)
	defer c.close()
	c.produce(-1, "a")
	_, term, _ := c.nodes[0].host.guard.leader(2)
	first, second := 1, 2
	l := loss{node: 1, gone: replicaGone{2, replicaID(1, 1), term}, agreed: []int32{2, 3}}
	if rank, ranks, ok := c.parts[first].rank(l); !ok || rank != 0 || ranks != 2 {
		t.Fatalf("rank of node 2 is %d of %d, %v", rank, ranks, ok)
	}
	if rank, _, ok := c.parts[second].rank(l); !ok || rank != 1 {
		t.Fatalf("rank of node 3 is %d, %v", rank, ok)
	}
	// Node 2 gets nothing from the leader, and so cannot tell that it ends either: both are told.
	c.net.Cut(nodeName(1), nodeName(2), transport.CutSilent)
	c.produce(-1, "b")
	told := [3]loss{l, l, l}
	for i := range told {
		told[i].led = c.nodes[i].host.ledBy(1)
	}
	c.kill(0)
	began := time.Now()
	c.nodes[first].host.failover.add(told[first])
	if late {
		eventually(t, "node 3 hears that node 2 campaigns", func() bool {
			leader, now, ok := c.nodes[second].host.guard.leader(2)
			return now > term && !(ok && leader == l.gone.Replica)
		})
	}
	c.nodes[second].host.failover.add(told[second])
	leader, at := c.produce(0, "c")
	if _, now, _ := c.nodes[second].host.guard.leader(2); now < term+2 {
		t.Errorf("term %d: node 2 did not campaign", now)
	}
	if took := time.Since(began); leader != second || at != 2 || took >= patientBound {
		t.Errorf("node %d leads after %v, and gave offset %d", leader+1, took, at)
	}
	for _, i := range []int{first, second} {
		waitHW(t, c.parts[i], 3)
		if got := values(t, c.parts[i], 0); fmt.Sprint(got) != "[a b c]" {
			t.Errorf("node %d has %v", i+1, got)
		}
	}
}

// A node whose process did not end keeps its leaderships, although one other cannot reach it and is refused: the third still can.
func TestOneWayRefusalMovesNoLeadership(t *testing.T) {
	c := newPatientTrio(t, 0)
	defer c.close()
	c.produce(-1, "a")
	_, term, _ := c.nodes[0].host.guard.leader(2)
	h := c.nodes[1].host
	gone := make(chan struct{}, 16)
	h.peerStates.add(func(s transport.PeerState) {
		if s.ID == 1 && s.Gone() {
			gone <- struct{}{}
		}
	})
	c.net.Cut(nodeName(2), nodeName(1), transport.CutRefuse)
	select {
	case <-gone:
	case <-time.After(testTimeout):
		t.Fatal("node 2 was not refused")
	}
	var want []string
	for i := range 20 {
		v := fmt.Sprint("during", i)
		c.produce(-1, v)
		want = append(want, v)
	}
	c.net.Cut(nodeName(2), nodeName(1), transport.CutNone)
	c.produce(-1, "after")
	want = append(append([]string{"a"}, want...), "after")
	for i, p := range c.parts {
		waitHW(t, p, int64(len(want)))
		if got := values(t, p, 0); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("node %d has %v, want %v", i+1, got, want)
		}
	}
	if leader, now, _ := h.guard.leader(2); now != term || nodeOf(leader) != 1 {
		t.Errorf("node %d leads in term %d, it was node 1 in term %d", nodeOf(leader), now, term)
	}
}

// Even where all others agree that a live leader is gone, nothing acknowledged is lost, and it follows.
func TestDeposedLiveLeaderFollows(t *testing.T) {
	c := newPatientTrio(t, 0)
	defer c.close()
	c.produce(-1, "a")
	c.net.Cut(nodeName(2), nodeName(1), transport.CutRefuse)
	c.net.Cut(nodeName(3), nodeName(1), transport.CutRefuse)
	l, at := c.produce(0, "b")
	c.net.Cut(nodeName(2), nodeName(1), transport.CutNone)
	c.net.Cut(nodeName(3), nodeName(1), transport.CutNone)
	if l == 0 || at != 1 {
		t.Fatalf("node %d gave offset %d", l+1, at)
	}
	c.produce(-1, "c")
	for i, p := range c.parts {
		waitHW(t, p, 3)
		if got := values(t, p, 0); fmt.Sprint(got) != "[a b c]" {
			t.Errorf("node %d has %v", i+1, got)
		}
	}
}

// What is looked at before each shot.
func TestNoCampaignWithoutCause(t *testing.T) {
	c := newPatientTrio(t, 0)
	defer c.close()
	c.produce(-1, "a")
	h, p := c.nodes[1].host, c.parts[1]
	leader, term, _ := h.guard.leader(2)
	l := loss{node: 1, incarnation: c.nodes[0].lives, agreed: []int32{2, 3}}
	now := time.Now()
	soon := now.Add(time.Second)
	for name, s := range map[string]*succession{
		"the node answers in the same life": {p: p, loss: l, leader: leader, term: term, heard: term, until: soon},
		"another one leads":                 {p: p, loss: loss{node: 3, incarnation: 99}, leader: replicaID(3, 1), term: term, heard: term, until: soon},
		"the leader was elected again":      {p: p, loss: loss{node: 1, incarnation: 99}, leader: leader, term: term - 1, heard: term - 1, until: soon},
		"all shots were fired":              {p: p, loss: loss{node: 1, incarnation: 99}, leader: leader, term: term, heard: term, until: soon, shots: failoverShots},
		"the time is over":                  {p: p, loss: loss{node: 1, incarnation: 99}, leader: leader, term: term, heard: term, until: now.Add(-1)},
	} {
		if h.succeed(s, now) || s.fired {
			t.Errorf("%s: it goes on", name)
		}
	}
	s := &succession{p: p, loss: loss{node: 1, incarnation: 99}, leader: leader, term: term, heard: term - 1, until: soon}
	if !h.succeed(s, now) || s.fired || s.due != now.Add(failoverStagger) || s.heard != term {
		t.Errorf("while another one campaigns: %+v", s)
	}
	s = &succession{p: p, loss: loss{node: 1, incarnation: 99}, leader: leader, term: term, heard: term - 1, until: soon, fired: true, ranks: 2, rank: 1}
	if !h.succeed(s, now) || s.fired || s.shots != 1 || s.due != now.Add(4*failoverStagger) {
		t.Errorf("after a campaign of its own: %+v", s)
	}
	if _, now, _ := h.guard.leader(2); now != term {
		t.Errorf("term %d, it was %d", now, term)
	}
	spec := testSpec(t, 2)
	spec.Shard = 99
	deaf := h.newPartition(spec) // no group runs, as if that took no notice
	defer deaf.cancel()
	deaf.r = p.r
	s = &succession{p: deaf, loss: loss{node: 1, incarnation: 99}, until: soon, again: failoverAgain}
	shots := 0
	for at := now; h.succeed(s, at); at = s.due {
		shots++
	}
	if shots <= failoverShots || shots > 2*failoverShots || s.shots != 0 || s.due.Before(soon) {
		t.Errorf("a replica that does not take notice was told %d times: %+v", shots, s)
	}
	for i, state := range []struct {
		transport.PeerState
		counts bool
	}{
		{gonePeer(5), true}, {gonePeer(5), false}, {gonePeer(4), false}, {gonePeer(6), true},
		{silentPeer(7), true}, {silentPeer(7), false}, {transport.PeerState{ID: 1, Status: transport.PeerReachable, Incarnation: 7}, false},
		{silentPeer(7), true}, {gonePeer(7), true}, {gonePeer(7), false},
		{transport.PeerState{ID: 1, Status: transport.PeerLost, Incarnation: 8, Err: transport.ErrConnLost}, false},
	} {
		if _, ok := h.failover.first(state.PeerState); ok != state.counts {
			t.Errorf("state %d, %v: counts %v: a loss counts once for each life, and each silence until the node is heard again", i, state.Status, ok)
		}
	}
	if _, _, ok := p.rank(loss{node: 1, agreed: []int32{2}}); ok {
		t.Error("one of three is a majority")
	}
	if len(h.ledBy(3)) != 0 {
		t.Error("a node that leads nothing has successors")
	}
}

func gonePeer(incarnation uint64) transport.PeerState {
	return transport.PeerState{ID: 1, Status: transport.PeerRefusing, Reset: true, Incarnation: incarnation}
}

func silentPeer(incarnation uint64) transport.PeerState {
	return transport.PeerState{ID: 1, Status: transport.PeerLost, Incarnation: incarnation, Err: fmt.Errorf("%w: gone quiet", transport.ErrDeadPeer)}
}

// A leader that falls silent is replaced when the others agree that it is, which is before an election timeout; a node that only one of them does not hear
// is not.
func TestSilentLeaderIsReplacedEarly(t *testing.T) {
	c := newPatientTrio(t, 0)
	defer c.close()
	c.produce(-1, "a")
	_, term, _ := c.nodes[0].host.guard.leader(2)
	c.net.Cut(nodeName(1), nodeName(2), transport.CutSilent)
	c.net.Cut(nodeName(2), nodeName(1), transport.CutSilent)
	eventually(t, "node 2 does not hear node 1", func() bool {
		return c.nodes[1].host.cfg.peers.node.PeerState(1).Status != transport.PeerReachable
	})
	pause(testContext(t), silenceAsks*silenceAskGap+failoverStagger)
	if _, now, _ := c.nodes[2].host.guard.leader(2); now != term {
		t.Errorf("term %d, it was %d: one node does not replace a leader", now, term)
	}
	began := time.Now()
	c.net.Partition(transport.CutSilent, []string{nodeName(1)}, []string{nodeName(2), nodeName(3)})
	l, at := c.produce(0, "b")
	took := time.Since(began)
	t.Logf("node %d leads after %v", l+1, took)
	if l == 0 || at != 1 || took >= patientBound {
		t.Errorf("node %d gave offset %d after %v", l+1, at, took)
	}
	c.net.Heal()
	waitHW(t, c.parts[0], 2)
	if got := values(t, c.parts[0], 0); fmt.Sprint(got) != "[a b]" {
		t.Errorf("the old leader has %v", got)
	}
}

// A leader whose disk fails says so, and is replaced without waiting for its silence to be noticed.
func TestFailedLeaderIsReplacedAtOnce(t *testing.T) {
	c := newPatientTrio(t, 0)
	defer func() {
		_ = c.nodes[0].host.Close(testContext(t)) // its journal keeps what the failed files may lack
		c.close()
	}()
	c.produce(-1, "a")
	began := time.Now()
	c.parts[0].r.latch(errors.New("EIO"))
	l, at := c.produce(0, "b")
	took := time.Since(began)
	t.Logf("node %d leads after %v", l+1, took)
	if l == 0 || at != 1 || took >= patientBound {
		t.Errorf("node %d gave offset %d after %v", l+1, at, took)
	}
	if s, err := c.parts[0].State(); s != StateFailed || !errors.Is(err, ErrFailed) {
		t.Errorf("%v, %v", s, err)
	}
}

// Who says that a replica failed is believed for its own only, and only in the term that it led.
func TestReplicaGoneIsChecked(t *testing.T) {
	c := newPatientTrio(t, 0)
	defer c.close()
	h := c.nodes[1].host
	_, term, _ := h.guard.leader(2)
	if _, err := h.onReplicaGone(testContext(t), 3, []byte(fmt.Sprintf(`{"shard":2,"replica":%d,"term":%d}`, replicaID(1, 1), term))); !errors.Is(err, errPeerMessage) {
		t.Errorf("node 3 spoke for node 1: %v", err)
	}
	if _, err := h.onReplicaGone(testContext(t), 1, []byte("{")); err == nil {
		t.Error("nonsense was taken")
	}
	for _, g := range []replicaGone{{2, replicaID(1, 1), term - 1}, {2, replicaID(1, 2), term}, {3, replicaID(1, 1), term}} {
		if s := h.successions(h.replicaLoss(1, g)); len(s) != 0 {
			t.Errorf("%+v has successors", g)
		}
	}
	if s := h.successions(h.replicaLoss(1, replicaGone{2, replicaID(1, 1), term})); len(s) != 1 {
		t.Error("the leader has no successor")
	}
}

func slow(t *testing.T) {
	if os.Getenv("BILLET_SLOW") == "" {
		t.Skip("it takes long: set BILLET_SLOW")
	}
}
