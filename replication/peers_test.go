package replication

import (
	"fmt"
	"testing"
	"time"

	"github.com/billetlog/billet/transport"
)

// testNet is a network in memory whose hosts have the nodes' names.
type testNet struct {
	*transport.MemoryNetwork
	t     testing.TB
	peers map[int32]*peers
	tcp   bool // over the loopback instead; cuts do nothing then
}

func newTestNet(t testing.TB, seed uint64) *testNet {
	n := &testNet{MemoryNetwork: transport.NewMemoryNetwork(seed), t: t, peers: map[int32]*peers{}}
	t.Cleanup(func() { _ = n.MemoryNetwork.Close() })
	return n
}

// join starts the transport of a node and introduces it to those that are there.
func (n *testNet) join(id int32, incarnation uint64) *peers {
	n.t.Helper()
	o := transport.Options{
		ID: id, ClusterID: [16]byte{1}, Incarnation: incarnation, Transport: n.Host(nodeName(id)), ListenAddress: nodeName(id),
		Resolve:      func(id int32) (string, bool) { return nodeName(id), !n.tcp },
		PingInterval: 100 * time.Millisecond, DeadPeerTimeout: 2 * time.Second,
	}
	if n.tcp {
		o.Transport, o.ListenAddress = transport.TCP{}, "127.0.0.1:0"
	}
	p, err := newPeers(o)
	if err != nil {
		n.t.Fatal(fmt.Errorf("transport of node %d: %w", id, err))
	}
	for other, q := range n.peers {
		if other != id {
			q.node.SetAddress(id, p.node.Addr().String())
			p.node.SetAddress(other, q.node.Addr().String())
		}
	}
	n.peers[id] = p
	return p
}

// isolate cuts a node off from all others, or ends the cut.
func (n *testNet) isolate(id int32, cut bool) {
	mode := transport.CutNone
	if cut {
		mode = transport.CutRefuse
	}
	for other := range n.peers {
		if other != id {
			n.Cut(nodeName(id), nodeName(other), mode)
			n.Cut(nodeName(other), nodeName(id), mode)
		}
	}
}
