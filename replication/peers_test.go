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
}

func newTestNet(t testing.TB, seed uint64) *testNet {
	n := &testNet{MemoryNetwork: transport.NewMemoryNetwork(seed), t: t, peers: map[int32]*peers{}}
	t.Cleanup(func() { _ = n.MemoryNetwork.Close() })
	return n
}

// join starts the transport of a node and introduces it to those that are there.
func (n *testNet) join(id int32, incarnation uint64) *peers {
	n.t.Helper()
	name := nodeName(id)
	p, err := newPeers(transport.Options{
		ID: id, ClusterID: [16]byte{1}, Incarnation: incarnation, Transport: n.Host(name), ListenAddress: name,
		Resolve:      func(id int32) (string, bool) { return nodeName(id), true },
		PingInterval: 100 * time.Millisecond, DeadPeerTimeout: 2 * time.Second,
	})
	if err != nil {
		n.t.Fatal(fmt.Errorf("transport of node %d: %w", id, err))
	}
	for other, q := range n.peers {
		if other != id {
			q.node.SetAddress(id, name)
			p.node.SetAddress(other, nodeName(other))
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
