package billet

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// What the tests that kill nodes with Kafka clients on them work with.
const (
	wireTopic      = "w"
	wireOffsets    = "__consumer_offsets"
	wirePartitions = 6
	wireNodes      = 3
	wireLocal      = "local" // the group of the nodes' own consumers
	wireSession    = 6 * time.Second
)

// wireConfig is what a child that is a node with a listener finds in its folder.
type wireConfig struct {
	Node  childNodeConfig
	Kafka string
	Local bool // a consumer of the process reads in the group wireLocal
}

func (c *wireConfig) config(dir string) (Config, seams) {
	config, s := c.Node.config(dir)
	config.Kafka.Addr = c.Kafka
	config.OpenTimeout = settleMax
	config.Groups = Groups{OffsetsPartitions: 4, InitialRebalanceDelay: 100 * time.Millisecond, HeartbeatInterval: 300 * time.Millisecond,
		SessionTimeout: wireSession, SessionTimeoutMin: time.Second}
	return config, s
}

// childWire is a node with a listener, and a consumer if it is to have one, until its
// input says that it is to close.
func childWire(dir, _ string) {
	data, err := os.ReadFile(filepath.Join(dir, childNodeFile))
	var own wireConfig
	if err := errors.Join(err, json.Unmarshal(data, &own)); err != nil {
		childFail("config", err)
	}
	config, s := own.config(dir)
	log, err := open(config, s)
	if err != nil {
		childFail("open", err)
	}
	var out childPrinter
	out.print("open .\n")
	ctx, stop := context.WithCancel(context.Background())
	var reading sync.WaitGroup
	if own.Local {
		reading.Go(func() { wireRead(ctx, log, &out) })
	}
	in := bufio.NewScanner(os.Stdin)
	if !in.Scan() {
		os.Exit(3) // the parent is gone
	}
	stop()
	reading.Wait()
	if err := log.Close(); err != nil {
		childFail("close", err)
	}
}

// wireRead reads as a member of the nodes' own group, and prints what it gets before that
// can be committed.
func wireRead(ctx context.Context, log *Log, out *childPrinter) {
	c, err := log.NewConsumer(ConsumerConfig{Group: wireLocal, Topics: []string{wireTopic}, CommitInterval: 200 * time.Millisecond})
	if err != nil {
		out.print("error consumer " + strconv.Quote(err.Error()) + " .\n")
		return
	}
	for ctx.Err() == nil {
		records, err := c.Poll(ctx)
		var lines strings.Builder
		for i := range records {
			fmt.Fprintf(&lines, "read %d %d %s .\n", records[i].Partition, records[i].Offset, records[i].Value)
		}
		if err != nil && ctx.Err() == nil {
			fmt.Fprintf(&lines, "error poll %s .\n", strconv.Quote(err.Error()))
		}
		out.print(lines.String())
	}
	if err := c.Close(); err != nil {
		out.print("note " + strconv.Quote(err.Error()) + " .\n") // of the last commit
	}
}

// wireNode is one life of a node with a listener.
type wireNode struct {
	*child
	opened, over chan struct{}
	killed       atomic.Bool
}

// wireRig is such nodes in processes of their own, and clients in this one.
type wireRig struct {
	*wireLedger
	t            *testing.T
	dir          string
	addresses    []string // of nodes to each other, and then of their listeners
	nodes        []*wireNode
	lives        []int
	admin        *kadm.Client
	client       *kgo.Client // admin's
	clients      []*wireClient
	local        bool
	partitions   atomic.Int32
	alone, grows bool // one node without others; others join it
}

func newWireRig(t *testing.T) *wireRig {
	r := &wireRig{wireLedger: newWireLedger(), t: t, dir: t.TempDir(), addresses: freeAddresses(t, 2*wireNodes),
		nodes: make([]*wireNode, wireNodes), lives: make([]int, wireNodes)}
	t.Cleanup(func() {
		r.closeClients()
		for _, n := range r.nodes { // whatever happens, no process stays
			if n != nil {
				n.crash()
			}
		}
		r.report(t)
	})
	return r
}

// startWireRig starts three nodes with a topic.
func startWireRig(t *testing.T) *wireRig {
	r := newWireRig(t)
	r.local = true
	for id := int32(1); id <= wireNodes; id++ {
		r.start(id)
	}
	for id := int32(1); id <= wireNodes; id++ {
		r.opened(id)
	}
	r.connect()
	r.create(wireTopic, wirePartitions, wireNodes)
	return r
}

// start starts a node that is down.
func (r *wireRig) start(id int32) {
	r.t.Helper()
	r.lives[id-1]++
	own := wireConfig{Kafka: r.addresses[wireNodes+id-1], Local: r.local, Node: childNodeConfig{ID: id, Life: r.lives[id-1], Fast: true}}
	switch {
	case r.grows:
		own.Node.Listen = r.addresses[id-1]
		if id != 1 {
			own.Node.Join = r.addresses[:1]
		}
	case !r.alone:
		own.Node.Listen, own.Node.Join, own.Node.Bootstrap = r.addresses[id-1], r.addresses[:wireNodes], []int32{1, 2, 3}
	}
	dir := filepath.Join(r.dir, fmt.Sprint("node", id))
	data, err := json.Marshal(own)
	if err := errors.Join(err, os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, childNodeFile), data, 0o600)); err != nil {
		r.t.Fatal(err)
	}
	n := &wireNode{child: startChild(r.t, "wire", dir, 0), opened: make(chan struct{}), over: make(chan struct{})}
	r.nodes[id-1] = n
	go r.listen(id, n)
	r.note("node %d starts", id)
}

// listen notes what a child says.
func (r *wireRig) listen(id int32, n *wireNode) {
	defer close(n.over)
	for n.lines.Scan() {
		f := strings.Fields(n.lines.Text())
		switch whole := len(f) > 1 && f[len(f)-1] == "."; {
		case whole && f[0] == "open":
			r.strikes() // until now it was not
			close(n.opened)
		case whole && f[0] == "read" && len(f) == 5:
			partition, _ := strconv.Atoi(f[1])
			offset, _ := strconv.ParseInt(f[2], 10, 64)
			r.read(wireLocal, int32(partition), offset, f[3], false)
		case whole && f[0] == "note":
			r.note("node %d: %s", id, n.lines.Text())
		case len(f) > 0 && f[0] == "error" && !n.killed.Load():
			r.fail("node %d: %s", id, n.lines.Text())
		}
	}
	if err := n.cmd.Wait(); err != nil && !n.killed.Load() {
		r.fail("the process of node %d ended: %v", id, err)
	}
}

// opened waits until a node is open.
func (r *wireRig) opened(id int32) {
	r.t.Helper()
	n := r.nodes[id-1]
	select {
	case <-n.opened:
		r.note("node %d is open", id)
	case <-n.over:
		r.t.Fatalf("node %d has ended", id)
	case <-time.After(settleMax):
		r.t.Fatalf("node %d does not open", id)
	}
}

// crash ends the process with kill -9.
func (n *wireNode) crash() {
	n.killed.Store(true)
	_ = n.cmd.Process.Kill()
	<-n.over
}

func (r *wireRig) kill(id int32) {
	r.note("node %d is killed", id)
	r.strikes()
	r.nodes[id-1].crash()
	r.nodes[id-1] = nil
}

// shut closes a node in order.
func (r *wireRig) shut(id int32) {
	r.t.Helper()
	r.note("node %d is to close", id)
	r.strikes()
	n := r.nodes[id-1]
	_, _ = fmt.Fprintln(n.in, "close")
	select {
	case <-n.over:
		r.note("node %d is closed", id)
	case <-time.After(settleMax):
		r.t.Errorf("node %d does not close", id)
		n.crash()
	}
	r.nodes[id-1] = nil
}

// pause stops a node for a time, and lets it go on.
func (r *wireRig) pause(id int32, d time.Duration) {
	r.t.Helper()
	r.note("node %d is stopped", id)
	r.signal(id, syscall.SIGSTOP)
	pauseFor(r.t.Context(), d)
	r.signal(id, syscall.SIGCONT)
	r.strikes()
	r.note("node %d goes on", id)
}

func (r *wireRig) signal(id int32, s syscall.Signal) {
	r.t.Helper()
	if err := r.nodes[id-1].cmd.Process.Signal(s); err != nil {
		r.t.Errorf("signal to node %d: %v", id, err)
	}
}

// seeds are the listeners of all nodes.
func (r *wireRig) seeds() kgo.Opt { return kgo.SeedBrokers(r.addresses[wireNodes:]...) }

// connect makes the client of who administers and looks.
func (r *wireRig) connect() {
	r.t.Helper()
	var err error
	if r.client, err = kgo.NewClient(r.seeds(), kgo.MetadataMinAge(wireMetadataAge)); err != nil {
		r.t.Fatal(err)
	}
	r.admin = kadm.NewClient(r.client)
}

func (r *wireRig) context() (context.Context, context.CancelFunc) {
	return context.WithTimeout(r.t.Context(), settleMax)
}

// create makes a topic as soon as there are enough nodes.
func (r *wireRig) create(topic string, partitions int32, replicas int16) {
	r.t.Helper()
	r.partitions.Store(partitions)
	r.await("topic "+topic+" is made", func(ctx context.Context) error {
		answer, err := r.admin.CreateTopic(ctx, partitions, replicas, nil, topic)
		if err == nil && answer.Err == nil {
			r.which(answer.ID)
		}
		if err := errors.Join(err, answer.Err); !errors.Is(err, kerr.TopicAlreadyExists) {
			return err
		}
		return nil
	})
}

// await waits until nothing is lacking.
func (r *wireRig) await(what string, lacks func(ctx context.Context) error) {
	r.t.Helper()
	ctx, cancel := r.context()
	defer cancel()
	began := time.Now()
	for {
		err := lacks(ctx)
		if err == nil {
			r.note("%s after %v", what, time.Since(began).Round(time.Millisecond))
			return
		}
		if !pauseFor(ctx, 5*lookGap) {
			r.t.Fatalf("not in time: %s: %v", what, err)
		}
	}
}

// leader is the node that leads most partitions of the topic.
func (r *wireRig) leader() (id int32) {
	r.t.Helper()
	r.await("the leaders are known", func(ctx context.Context) error {
		topics, err := r.admin.ListTopics(ctx, wireTopic)
		if err != nil {
			return err
		}
		leads := map[int32]int{}
		for _, p := range topics[wireTopic].Partitions {
			if p.Leader < 0 {
				return fmt.Errorf("nobody leads %d", p.Partition)
			}
			if leads[p.Leader]++; id == 0 || leads[p.Leader] > leads[id] {
				id = p.Leader
			}
		}
		return topics.Error()
	})
	return id
}

// coordinator is the node that coordinates a group.
func (r *wireRig) coordinator(name string) (id int32) {
	r.t.Helper()
	r.await("the coordinator is known", func(ctx context.Context) error {
		found := r.admin.FindGroupCoordinators(ctx, name)
		id = found[name].NodeID
		return found.Error()
	})
	return id
}

// whole waits until all replicas of a topic are in sync.
func (r *wireRig) whole(topic string, replicas int) {
	r.t.Helper()
	r.await(topic+" is whole", func(ctx context.Context) error {
		topics, err := r.admin.ListTopicsWithInternal(ctx, topic)
		if err := errors.Join(err, topics.Error()); err != nil {
			return err
		}
		for _, p := range topics[topic].Partitions {
			if len(p.ISR) != replicas || p.Leader < 0 {
				return fmt.Errorf("partition %d: leader %d, in sync %v", p.Partition, p.Leader, p.ISR)
			}
		}
		return nil
	})
}
