package billet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/billetlog/billet/internal/vfs"
	"github.com/billetlog/billet/transport"
)

// cutCluster is some nodes in this process over a network that can be cut, with a client that has no replicas.
type cutCluster struct {
	*clusterRig
	size  int32
	net   *transport.MemoryNetwork
	kinds *streamCuts
	nodes map[int32]*clusterMember // the client's, too
	disks map[int32]*vfs.Mem
	lives map[int32]int
}

// newCutCluster starts a cluster with a topic that is on some of its nodes.
func newCutCluster(t *testing.T, size int32, replicas int) *cutCluster {
	leaks := goleak.IgnoreCurrent()
	c := &cutCluster{clusterRig: newClusterRig(t), size: size, net: transport.NewMemoryNetwork(uint64(size)), kinds: newStreamCuts(),
		nodes: map[int32]*clusterMember{}, disks: map[int32]*vfs.Mem{}, lives: map[int32]int{}}
	t.Cleanup(func() {
		c.heal()
		c.closeAll()
		_ = c.net.Close()
		if err := goleak.Find(leaks); err != nil && !t.Failed() {
			t.Error(err)
		}
	})
	var wg sync.WaitGroup
	logs := make([]*Log, size)
	errs := make([]error, size)
	for id := range size + 1 {
		c.disks[id+1] = harnessDisk()
	}
	for i := range logs {
		wg.Go(func() { logs[i], errs[i] = open(c.config(int32(i + 1))) })
	}
	wg.Wait()
	for i, log := range logs {
		if log != nil {
			c.take(int32(i+1), log)
		}
	}
	c.fatal("open", errors.Join(errs...))
	ctx, cancel := context.WithTimeout(context.Background(), settleMax)
	defer cancel()
	c.fatal("create", logs[0].CreateTopic(ctx, rigTopicOf(replicas)))
	client, err := open(c.config(c.clientID()))
	c.fatal("the client", err)
	c.setClient(client, c.clientID())
	c.nodes[c.clientID()] = c.client
	c.settle(false)
	return c
}

func (c *cutCluster) clientID() int32 { return c.size + 1 }

// take enters a node that is open.
func (c *cutCluster) take(id int32, log *Log) {
	c.lives[id]++
	c.nodes[id] = newClusterMember(log, fmt.Sprintf("node%d.%d", id, c.lives[id]), c.clusterRig)
	c.enter(id, c.nodes[id])
}

func (c *cutCluster) config(id int32) (Config, seams) {
	config := Config{Dir: "/data/log", NodeID: id, JournalBytes: 2 << 20, DiskReserve: -1, RetentionCheckInterval: time.Second, OpenTimeout: settleMax,
		Logger: clusterLogger(fmt.Sprint(id)), OnEvent: func(e Event) {
			if e.Kind == EventInternal || e.Kind == EventQuarantined || e.Kind == EventMetadataBroken {
				c.history.Violate("node %d: %v", id, e)
			}
		}}
	config.Cluster = Cluster{Listen: harnessAddress(id), Transport: c.kinds.host(c.net.Host(harnessHost(id)), harnessHost(id)), ReplicaLagTimeMax: time.Second}
	for i := int32(1); i <= c.size; i++ {
		config.Cluster.Join = append(config.Cluster.Join, harnessAddress(i))
		if id <= c.size {
			config.Cluster.Bootstrap = append(config.Cluster.Bootstrap, i)
		}
	}
	return config, seams{fs: c.disks[id], pace: harnessPace}
}

func (c *cutCluster) heal() {
	c.net.Heal()
	for id := int32(1); id <= c.clientID(); id++ {
		slowLinks(transport.Link{})(c, id)
	}
	c.kinds.heal()
}

// closeAll closes all nodes at the same time.
func (c *cutCluster) closeAll() {
	c.end()
	delete(c.nodes, c.clientID())
	var wg sync.WaitGroup
	for id := range c.nodes {
		wg.Go(func() { c.timedClose(id) })
	}
	wg.Wait()
	clear(c.nodes)
}

// timedClose closes a node within a bound.
func (c *cutCluster) timedClose(id int32) {
	began := time.Now()
	err := c.nodes[id].close()
	took := time.Since(began)
	c.note("node %d is closed after %v: %v", id, took.Round(time.Millisecond), err)
	if err != nil || took > rigCloseMax {
		c.t.Errorf("node %d closes after %v: %v", id, took, err)
	}
}

// restart closes a node while what is wrong lasts; the function that it returns opens it again.
func (c *cutCluster) restart(id int32) (reopen func()) {
	c.leave(id)
	c.timedClose(id)
	delete(c.nodes, id)
	return func() {
		log, err := open(c.config(id))
		c.fatal(fmt.Sprintf("open node %d", id), err)
		c.note("node %d is open", id)
		c.take(id, log)
	}
}

// others are all nodes with replicas but some.
func (c *cutCluster) others(but ...int32) (out []int32) {
	for id := int32(1); id <= c.size; id++ {
		if !slices.Contains(but, id) {
			out = append(out, id)
		}
	}
	return out
}

func hosts(ids ...int32) (out []string) {
	for _, id := range ids {
		out = append(out, harnessHost(id))
	}
	return out
}

// mute lets a node of the cluster acknowledge nothing: what it is given now has no majority, and nobody else can be reached from it.
func (c *cutCluster) mute(id int32) (check func()) {
	ctx, cancel := context.WithCancel(context.Background())
	acked := make(chan error, rigPartitions)
	for n := range int32(rigPartitions) {
		v := c.history.Send("muted")
		go func() {
			at, err := c.nodes[id].log.ProduceBatch(ctx, rigTopic, n, []Record{{Value: ledgerValue(v.Writer, int(v.N), 30)}})
			if err == nil {
				err = fmt.Errorf("node %d acknowledged %v at %v without a majority", id, v, at)
			} else {
				err = nil
			}
			acked <- err
		}()
	}
	return func() {
		c.t.Helper()
		cancel()
		for range rigPartitions {
			if err := <-acked; err != nil {
				c.t.Error(err)
			}
		}
	}
}

// cutCase is one thing that a network does.
type cutCase struct {
	name string
	// begin does it to a node that leads.
	begin func(c *cutCluster, leader int32)
	works bool // the client can write to all partitions meanwhile
	muted bool // the node cannot write to any
	lasts time.Duration
}

// oneWay cuts from a node to all others with replicas, or back.
func oneWay(mode transport.CutMode, back bool) func(c *cutCluster, leader int32) {
	return func(c *cutCluster, leader int32) {
		for _, id := range c.others(leader) {
			from, to := harnessHost(leader), harnessHost(id)
			if back {
				from, to = to, from
			}
			c.net.Cut(from, to, mode)
		}
	}
}

// alone cuts a node off from the others with replicas, and not from the client.
func alone(mode transport.CutMode) func(c *cutCluster, leader int32) {
	return func(c *cutCluster, leader int32) { c.net.Partition(mode, hosts(leader), hosts(c.others(leader)...)) }
}

// minority cuts a node and one more off from the others and the client.
func minority(mode transport.CutMode) func(c *cutCluster, leader int32) {
	return func(c *cutCluster, leader int32) {
		few := []int32{leader, leader%c.size + 1}
		c.net.Partition(mode, hosts(few...), hosts(append(c.others(few...), c.clientID())...))
	}
}

// kinds cuts connections of some kinds, of all nodes.
func kinds(mode transport.CutMode, kinds ...transport.Kind) func(c *cutCluster, leader int32) {
	return func(c *cutCluster, _ int32) {
		for from := range c.nodes {
			for to := range c.nodes {
				c.kinds.cut(harnessHost(from), harnessAddress(to), mode, kinds...)
			}
		}
	}
}

// clientCut cuts a node off from the client alone.
func clientCut(mode transport.CutMode) func(c *cutCluster, leader int32) {
	return func(c *cutCluster, leader int32) { c.net.Partition(mode, hosts(leader), hosts(c.clientID())) }
}

// flapping cuts a node off and lets it come back, again and again.
func flapping(mode transport.CutMode) func(c *cutCluster, leader int32) {
	return func(c *cutCluster, leader int32) {
		for _, id := range append(c.others(leader), c.clientID()) {
			c.net.Flap(harnessHost(leader), harnessHost(id), mode, 300*time.Millisecond, 300*time.Millisecond)
		}
	}
}

// raftOf cuts the Raft messages that a node sends, or those to it.
func raftOf(mode transport.CutMode, back bool) func(c *cutCluster, leader int32) {
	return func(c *cutCluster, leader int32) {
		for _, id := range c.others(leader) {
			if back {
				c.kinds.cut(harnessHost(id), harnessAddress(leader), mode, transport.KindBatches, transport.KindUrgent)
			} else {
				c.kinds.cut(harnessHost(leader), harnessAddress(id), mode, transport.KindBatches, transport.KindUrgent)
			}
		}
	}
}

// slowLinks makes all connections with a node slow, in both directions.
func slowLinks(link transport.Link) func(c *cutCluster, leader int32) {
	return func(c *cutCluster, leader int32) {
		for id := int32(1); id <= c.clientID(); id++ {
			if id != leader {
				c.net.SetLink(harnessHost(leader), harnessHost(id), link)
				c.net.SetLink(harnessHost(id), harnessHost(leader), link)
			}
		}
	}
}

func cutCases(silent, refused transport.CutMode) []cutCase {
	return []cutCase{
		{name: "a leader is alone with the client, silent", begin: alone(silent), works: true, muted: true},
		{name: "a leader is alone with the client, refused", begin: alone(refused), works: true, muted: true},
		{name: "a leader is not heard, silent", begin: oneWay(silent, false), works: true, muted: true},
		{name: "a leader is not heard, refused", begin: oneWay(refused, false), works: true, muted: true},
		{name: "a leader hears nobody, silent", begin: oneWay(silent, true), works: true, muted: true},
		{name: "a leader hears nobody, refused", begin: oneWay(refused, true), works: true, muted: true},
		{name: "a leader comes and goes, silent", begin: flapping(silent), works: true, lasts: 2 * time.Second},
		{name: "a leader comes and goes, refused", begin: flapping(refused), works: true, lasts: 2 * time.Second},
		{name: "the client does not reach a leader, silent", begin: clientCut(silent), lasts: time.Second},
		{name: "the client does not reach a leader, refused", begin: clientCut(refused), lasts: time.Second},
		{name: "a leader is slow", works: true, lasts: time.Second,
			begin: slowLinks(transport.Link{Delay: 20 * time.Millisecond, Jitter: 60 * time.Millisecond, BytesPerSecond: 1 << 20})},
		{name: "gossip is cut, silent", begin: kinds(silent, transport.KindStream), works: true, lasts: time.Second},
		{name: "gossip is cut, refused", begin: kinds(refused, transport.KindStream), works: true, lasts: time.Second},
		{name: "a leader's Raft is not heard, silent", begin: raftOf(silent, false), works: true},
		{name: "a leader's Raft is not heard, refused", begin: raftOf(refused, false), works: true},
		{name: "a leader's Raft hears nobody, silent", begin: raftOf(silent, true), works: true},
		{name: "a leader's Raft hears nobody, refused", begin: raftOf(refused, true), works: true},
		{name: "all but gossip is cut", begin: kinds(refused, transport.KindBatches, transport.KindUrgent, transport.KindRequests, transport.KindPull), lasts: 2 * time.Second},
	}
}

// play lets something happen to the network, closes a node meanwhile, and checks what is left when it is over.
func (c *cutCluster) play(k cutCase) {
	c.t.Helper()
	leader := int32(0)
	for n := range int32(rigPartitions) {
		if l := c.leader(n); l > 0 {
			leader = l
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), settleMax)
	defer cancel()
	c.note("--- %s: node %d", k.name, leader)
	began := time.Now()
	k.begin(c, leader)
	if k.works {
		c.works(ctx)
		c.note("all partitions take records of the client")
	}
	if k.muted {
		check := c.mute(leader)
		c.works(ctx)
		pauseFor(ctx, k.lasts)
		check()
	}
	pauseFor(ctx, k.lasts-time.Since(began))
	reopen := c.restart(leader)
	c.heal()
	c.note("healed")
	reopen()
	c.settle(true)
}

// TestClusterCut cuts a leader off from the other replicas, but not from the client.
func TestClusterCut(t *testing.T) {
	c := newCutCluster(t, 3, 3)
	c.play(cutCase{name: "a leader is alone with the client", begin: alone(transport.CutSilent), works: true, muted: true})
}

// TestSlowClusterCut does to a network of three nodes what networks do.
func TestSlowClusterCut(t *testing.T) {
	if !slow() {
		t.Skip("it takes long: set BILLET_SLOW")
	}
	for _, k := range cutCases(transport.CutSilent, transport.CutRefuse) {
		t.Run(k.name, func(t *testing.T) {
			c := newCutCluster(t, 3, 3)
			for range 2 {
				c.play(k)
			}
			c.sum()
		})
	}
}

// TestSlowClusterSplit splits five nodes, with a leader in the minority.
func TestSlowClusterSplit(t *testing.T) {
	if !slow() {
		t.Skip("it takes long: set BILLET_SLOW")
	}
	c := newCutCluster(t, 5, 5)
	for i, mode := range []transport.CutMode{transport.CutSilent, transport.CutRefuse, transport.CutSilent, transport.CutRefuse} {
		c.play(cutCase{name: fmt.Sprintf("two of five are cut off, %d", i), begin: minority(mode), works: true, muted: true})
	}
	c.sum()
}
