package replication

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/billetlog/billet/internal/vfs"
	"github.com/billetlog/billet/transport"
)

// memberNet is a network in memory on which whole nodes are opened.
type memberNet struct {
	*transport.MemoryNetwork
	t testing.TB
}

func newMemberNet(t testing.TB) *memberNet {
	n := &memberNet{transport.NewMemoryNetwork(1), t}
	t.Cleanup(func() { _ = n.MemoryNetwork.Close() })
	return n
}

// memberLogger writes to standard error what the node of a test logs when the variable is set.
func memberLogger(id int32, t testing.TB) *slog.Logger {
	if os.Getenv(memberLogEnv) == "" {
		return slog.New(dropWatch{slog.DiscardHandler, t})
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})).With("node", id)
}

const memberLogEnv = "BILLET_TEST_LOG"

// member is one node on it.
type member struct {
	*Node
	net *memberNet
	cfg NodeConfig
}

func memberAddress(id int32) string { return nodeName(id) + ":7400" }

func (n *memberNet) config(id int32, fs vfs.FS, change func(*NetworkConfig)) NodeConfig {
	net := &NetworkConfig{
		Transport: n.Host(nodeName(id)), ListenAddress: memberAddress(id), Label: "test",
		PingInterval: 200 * time.Millisecond, DeadPeerTimeout: 2 * time.Second,
		timings: discoveryTimings{probe: 200 * time.Millisecond, probeTimeout: 100 * time.Millisecond, gossip: 20 * time.Millisecond,
			pushPull: time.Second, rejoin: 300 * time.Millisecond, joinRetry: 50 * time.Millisecond, leave: 200 * time.Millisecond},
	}
	if change != nil {
		change(net)
	}
	if err := errors.Join(fs.MkdirAll("/data"), fs.SyncDir("/")); err != nil {
		n.t.Fatal(err)
	}
	return NodeConfig{ID: id, Network: net, Host: HostConfig{
		FS: fs, Dir: "/data", JournalBytes: 1 << 20, TickInterval: 20 * time.Millisecond,
		Logger: memberLogger(id, n.t),
	}}
}

func (n *memberNet) open(cfg NodeConfig) *member {
	n.t.Helper()
	m, err := n.tryOpen(cfg)
	if err != nil {
		n.t.Fatalf("node %d: %v", cfg.ID, err)
	}
	return m
}

func (n *memberNet) tryOpen(cfg NodeConfig) (*member, error) {
	node, err := OpenNode(testContext(n.t), cfg)
	if err != nil {
		return nil, err
	}
	return &member{node, n, cfg}, nil
}

func (m *member) close() {
	m.net.t.Helper()
	if err := m.Node.Close(testContext(m.net.t)); err != nil {
		m.net.t.Errorf("node %d: close: %v", m.cfg.ID, err)
	}
}

// until waits until the node's view or replicas are as they should be.
func (m *member) until(what string, holds func(c *Controller) bool) {
	m.net.t.Helper()
	if err := m.Controller.await(testContext(m.net.t), func() bool { return holds(m.Controller) }); err != nil {
		m.Controller.mu.RLock()
		defer m.Controller.mu.RUnlock()
		var b strings.Builder
		for _, t := range m.Controller.mu.topicsByName() {
			fmt.Fprintf(&b, "\n%s: %+v", t.Name, t.Partitions)
		}
		m.net.t.Fatalf("node %d: %s: %v%s", m.cfg.ID, what, err, b.String())
	}
}

func joining(seeds ...int32) func(*NetworkConfig) {
	return func(c *NetworkConfig) {
		for _, s := range seeds {
			c.Join = append(c.Join, memberAddress(s))
		}
	}
}

func voters(a PartitionAssignment) (nodes []int32) {
	for _, r := range a.Replicas {
		if r.Role == RoleVoter {
			nodes = append(nodes, r.Node)
		}
	}
	slices.Sort(nodes)
	return nodes
}

func metadataVoters3(c *Controller) bool {
	a := c.mu.topics[MetadataTopic].Partitions[0]
	return fmt.Sprint(voters(a)) == "[1 2 3]" && !a.unsettled()
}

// A node that was alone becomes the first of three; its topic is spread over them, and it leaves in the end.
func TestGrowFromOne(t *testing.T) {
	t.Parallel() // it waits, mostly
	n := newMemberNet(t)
	ctx := testContext(t)
	one := n.open(n.config(1, vfs.NewMem(), nil))
	if _, err := one.Controller.CreateTopic(ctx, TopicSpec{Name: "t", Partitions: 2}); err != nil {
		t.Fatal(err)
	}
	two, three := n.open(n.config(2, vfs.NewMem(), joining(1))), n.open(n.config(3, vfs.NewMem(), joining(1, 2)))
	one.until("three voters of the metadata", metadataVoters3)
	three.until("the topic", func(c *Controller) bool { return c.mu.topics["t"] != nil })
	if err := two.Controller.SetReplicas(ctx, "t", 3); err != nil {
		t.Fatal(err)
	}
	spread := func(c *Controller) bool {
		for _, a := range c.mu.topics["t"].Partitions {
			if fmt.Sprint(voters(a)) != "[1 2 3]" || a.unsettled() {
				return false
			}
		}
		return true
	}
	three.until("the topic on three nodes", spread)
	three.close()
	two.close()
	one.close()
}

// Three empty directories form one cluster together.
func TestBootstrap(t *testing.T) {
	n := newMemberNet(t)
	type outcome struct {
		m   *member
		err error
	}
	opened := make(chan outcome, 3)
	for id := range int32(3) {
		cfg := n.config(id+1, vfs.NewMem(), func(c *NetworkConfig) {
			c.Bootstrap = []int32{1, 2, 3}
			c.Join = []string{memberAddress(1), memberAddress(2), memberAddress(3)}
		})
		go func() {
			m, err := n.tryOpen(cfg)
			opened <- outcome{m, err}
		}()
	}
	var all []*member
	for range 3 {
		o := <-opened
		if o.err != nil {
			t.Fatal(o.err)
		}
		all = append(all, o.m)
	}
	all[0].until("three voters", metadataVoters3)
	if _, err := all[1].Controller.CreateTopic(testContext(t), TopicSpec{Name: "t", Partitions: 3}); err != nil {
		t.Fatal(err)
	}
	all[2].until("the topic", func(c *Controller) bool { return c.mu.topics["t"] != nil })
	for _, a := range all[2].Controller.Topics()[1].Partitions {
		if fmt.Sprint(voters(a)) != "[1 2 3]" {
			t.Errorf("partition %d is on %v", a.Partition, voters(a))
		}
	}
	ids := map[string]bool{}
	for _, m := range all {
		ids[m.identity.ClusterID()] = true
		m.close()
	}
	if len(ids) != 1 {
		t.Errorf("clusters are %v", ids)
	}
}

// A node that lost its directory and starts again before gossip has forgotten what was at its address is no second node of its id.
func TestLookPastLostDirectory(t *testing.T) {
	n := &Node{}
	n.cfg.ID, n.cfg.Network = 2, &NetworkConfig{Bootstrap: []int32{1, 2}}
	lost := peerInfo{Node: 2, Dir: [16]byte{1}, Phase: phaseFresh, Addr: "here:1"}
	fresh := lost
	fresh.Dir = [16]byte{2}
	if found, err := n.look([]peerInfo{lost, fresh}); found || err != nil {
		t.Errorf("found %v, %v", found, err)
	}
	fresh.Addr = "elsewhere:1"
	if _, err := n.look([]peerInfo{lost, fresh}); !errors.Is(err, ErrNodeExists) {
		t.Errorf("two nodes with one id: %v", err)
	}
}
