package billet

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// processCluster is three nodes in processes of their own over TCP, and a client in this one.
type processCluster struct {
	*clusterRig
	dir       string
	addresses []string // the client's is the last one
	fast      bool
	nodes     []*nodeProcess // nil: it is down
	lives     []int
}

const processNodes = 3

// startProcessCluster starts a cluster with a topic that is on all of its nodes but the client's.
func startProcessCluster(t *testing.T, fast bool) *processCluster {
	c := &processCluster{clusterRig: newClusterRig(t), dir: t.TempDir(), fast: fast,
		nodes: make([]*nodeProcess, processNodes), lives: make([]int, processNodes)}
	leaks := goleak.IgnoreCurrent()
	t.Cleanup(func() {
		if err := goleak.Find(leaks); err != nil && !t.Failed() {
			t.Error(err)
		}
	})
	t.Cleanup(func() { // whatever happens, no process stays
		for _, n := range c.nodes {
			if n != nil {
				n.crash()
			}
		}
	})
	c.addresses = freeAddresses(t, processNodes+1)
	for i := range c.nodes {
		c.start(int32(i + 1))
	}
	ctx, cancel := context.WithTimeout(context.Background(), settleMax)
	defer cancel()
	for id := int32(1); id <= processNodes; id++ {
		c.opened(ctx, id)
	}
	_, err := c.node(1).ask(ctx, fmt.Sprintf("create %d", processNodes))
	c.fatal("create", err)
	own := childNodeConfig{ID: processNodes + 1, Life: 1, Listen: c.addresses[processNodes], Join: c.addresses[:processNodes], Fast: fast}
	config, s := own.config(filepath.Join(c.dir, "client"))
	log, err := open(config, s)
	c.fatal("the client", err)
	c.setClient(log, own.ID)
	t.Cleanup(c.end)
	c.settle(false)
	return c
}

// freeAddresses returns addresses where nobody listens, of ports that the system does not give to connections that go out.
func freeAddresses(t testing.TB, n int) (out []string) {
	for tries := 0; len(out) < n; tries++ {
		address := fmt.Sprintf("127.0.0.1:%d", 20_000+rand.IntN(12_000))
		l, err := net.Listen("tcp", address)
		if err != nil {
			if tries > 100 {
				t.Fatal(err)
			}
			continue
		}
		defer func() { _ = l.Close() }() // all at the end: no address twice
		out = append(out, address)
	}
	return out
}

func (c *processCluster) node(id int32) *nodeProcess { return c.nodes[id-1] }

// start starts a node that is down.
func (c *processCluster) start(id int32) {
	c.t.Helper()
	c.lives[id-1]++
	config := childNodeConfig{ID: id, Life: c.lives[id-1], Listen: c.addresses[id-1], Join: c.addresses[:processNodes], Fast: c.fast}
	for i := range int32(processNodes) {
		config.Bootstrap = append(config.Bootstrap, i+1)
	}
	p := c.startNode(filepath.Join(c.dir, fmt.Sprint("node", id)), config)
	c.nodes[id-1] = p
	c.enter(id, p)
	c.note("node %d starts", id)
}

// opened waits until a node is open.
func (c *processCluster) opened(ctx context.Context, id int32) {
	c.t.Helper()
	select {
	case <-c.node(id).opened:
		c.note("node %d is open", id)
	case <-c.node(id).over:
		c.t.Fatalf("node %d has ended: %v", id, c.history.Err())
	case <-ctx.Done():
		c.t.Fatalf("node %d does not open", id)
	}
}

// kill ends a node as kill -9 does.
func (c *processCluster) kill(id int32) {
	c.leave(id)
	c.node(id).crash()
	c.nodes[id-1] = nil
	c.note("node %d is killed", id)
}

// wait lets some time pass in which the load goes on.
func (c *processCluster) wait(most time.Duration) {
	pauseFor(context.Background(), time.Duration(rand.Int64N(int64(most))))
}

// anyNode draws a node, the leader of some partition in half of the cases.
func (c *processCluster) anyNode() int32 {
	if leader := c.leader(int32(rand.IntN(rigPartitions))); leader > 0 && leader <= processNodes && rand.IntN(2) == 0 {
		return leader
	}
	return int32(rand.IntN(processNodes) + 1)
}

// someNodes draws nodes.
func someNodes(n int) (out []int32) {
	for _, i := range rand.Perm(processNodes)[:n] {
		out = append(out, int32(i+1))
	}
	return out
}

// killSome kills nodes, one shortly after the other, and starts them in another order.
func (c *processCluster) killSome(ids []int32) {
	for _, id := range ids {
		c.wait(200 * time.Millisecond)
		c.kill(id)
	}
	c.wait(time.Second)
	rand.Shuffle(len(ids), func(i, k int) { ids[i], ids[k] = ids[k], ids[i] })
	for _, id := range ids {
		c.start(id)
		c.wait(200 * time.Millisecond)
	}
}

// pauseOne stops a process that leads for longer than an election takes: the others go on without it, and it has to see that.
func (c *processCluster) pauseOne() {
	id := c.anyNode()
	for n := range int32(rigPartitions) {
		if l := c.leader(n); l > 0 && l <= processNodes {
			id = l
		}
	}
	led := 0
	for n := range int32(rigPartitions) {
		if c.leader(n) == id {
			led++
		}
	}
	c.note("node %d, which leads %d partitions, is stopped", id, led)
	c.node(id).signal(syscall.SIGSTOP)
	ctx, cancel := context.WithTimeout(context.Background(), settleMax)
	defer cancel()
	c.works(ctx)
	c.note("the others lead")
	c.wait(2 * time.Second)
	c.node(id).signal(syscall.SIGCONT)
	c.note("node %d goes on", id)
}

// killInOpen kills a node again and again while it opens.
func (c *processCluster) killInOpen() {
	id := c.anyNode()
	for range 4 {
		c.kill(id)
		c.start(id)
		c.wait(400 * time.Millisecond)
	}
	c.kill(id)
	c.start(id)
}

// killInCatchUp wipes a node and kills it while it gets back what it had.
func (c *processCluster) killInCatchUp() {
	id := c.anyNode()
	c.kill(id)
	c.fatal("wipe", os.RemoveAll(filepath.Join(c.dir, fmt.Sprint("node", id), "log")))
	c.start(id)
	ctx, cancel := context.WithTimeout(context.Background(), settleMax)
	defer cancel()
	for range 2 {
		c.opened(ctx, id)
		c.wait(600 * time.Millisecond)
		c.kill(id)
		c.start(id)
	}
}

// killInDrain kills the node that is being drained, or another one.
func (c *processCluster) killInDrain() {
	const client = processNodes + 1
	ctx, cancel := context.WithTimeout(context.Background(), settleMax)
	defer cancel()
	change := func(what string, do func(context.Context, int32) error, id int32) {
		c.t.Helper()
		c.await(ctx, func() error {
			err := do(ctx, id)
			c.note("%s node %d: %v", what, id, err)
			return err
		})
	}
	log := c.client.log
	id := c.anyNode()
	change("drain", log.DrainNode, id) // to the client
	c.wait(800 * time.Millisecond)
	victim := id
	if rand.IntN(3) == 0 {
		victim = id%processNodes + 1
	}
	c.kill(victim)
	c.wait(500 * time.Millisecond)
	c.start(victim)
	c.wait(time.Second)
	change("activate", log.ActivateNode, id)
	// What is on the client goes back.
	change("drain", log.DrainNode, client)
	c.await(ctx, func() error {
		for _, a := range c.assignments() {
			for _, r := range a.Replicas {
				if r.Node == client {
					return fmt.Errorf("the client still has a replica of %d", a.Partition)
				}
			}
		}
		return nil
	})
	change("activate", log.ActivateNode, client)
}

// closeAll closes all nodes in order, one after the other, each within a bound and without a goroutine left.
func (c *processCluster) closeAll() {
	c.t.Helper()
	c.end()
	for id := int32(1); id <= processNodes; id++ {
		c.closeNode(id)
	}
}

// rigCloseMax bounds Close, whatever is wrong with the cluster.
const rigCloseMax = 10 * time.Second

func (c *processCluster) closeNode(id int32) {
	c.t.Helper()
	c.leave(id)
	ctx, cancel := context.WithTimeout(context.Background(), settleMax)
	defer cancel()
	took, err := c.node(id).ask(ctx, "close")
	if err != nil {
		c.t.Errorf("close node %d: %v", id, err)
	}
	c.note("node %d is closed after %s", id, took)
	if d, err := time.ParseDuration(took); err != nil || d > rigCloseMax {
		c.t.Errorf("node %d took %s to close", id, took)
	}
	<-c.node(id).over
	c.nodes[id-1] = nil
}

// closeOne closes a node while another one is stopped, and starts it again.
func (c *processCluster) closeOne() {
	ids := someNodes(2)
	c.node(ids[0]).signal(syscall.SIGSTOP)
	c.wait(2 * time.Second)
	c.closeNode(ids[1])
	c.node(ids[0]).signal(syscall.SIGCONT)
	c.start(ids[1])
}

// round is one kind of bad luck, and how often it strikes.
type killRound struct {
	name  string
	times int
	do    func()
}

func (c *processCluster) play(rounds []killRound) {
	c.t.Helper()
	for _, round := range rounds {
		for i := range round.times {
			c.note("--- %s, %d", round.name, i)
			c.wait(300 * time.Millisecond)
			round.do()
			c.settle(i == round.times-1)
		}
	}
	c.closeAll()
	c.sum()
}

// TestClusterKilled kills one process of three and starts it again.
func TestClusterKilled(t *testing.T) {
	c := startProcessCluster(t, true)
	c.play([]killRound{{"one is killed", 1, func() { c.killSome([]int32{max(c.leader(0), 1)}) }}})
}

// TestSlowClusterKilled kills processes at any moment, with the pace that nodes have outside of tests.
func TestSlowClusterKilled(t *testing.T) {
	if !slow() {
		t.Skip("it takes long: set BILLET_SLOW")
	}
	c := startProcessCluster(t, false)
	c.play([]killRound{
		{"one is killed", 6, func() { c.killSome([]int32{c.anyNode()}) }},
		{"two are killed", 3, func() { c.killSome(someNodes(2)) }},
		{"all are killed", 3, func() { c.killSome(someNodes(3)) }},
	})
}

// TestSlowClusterStopped stops processes for a while, and kills them while they open, catch up and are drained.
func TestSlowClusterStopped(t *testing.T) {
	if !slow() {
		t.Skip("it takes long: set BILLET_SLOW")
	}
	c := startProcessCluster(t, true)
	c.play([]killRound{
		{"one is stopped", 4, c.pauseOne},
		{"one is closed while another one is stopped", 2, c.closeOne},
		{"one is killed while it opens", 2, c.killInOpen},
		{"one is killed while it catches up", 2, c.killInCatchUp},
		{"one is killed in a drain", 2, c.killInDrain},
	})
}
