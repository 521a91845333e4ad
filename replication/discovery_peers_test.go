package replication

import (
	"errors"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
)

func gossipNode(p peerInfo) *memberlist.Node {
	return &memberlist.Node{Name: gossipName(p), Addr: gossipIP(p.Dir), Port: gossipPort, Meta: encodePeer(p)}
}

// Only records that belong to their name and address come in, and not too many.
func TestGossipPeersAdmit(t *testing.T) {
	self, other := fresh(1, 1), fresh(2, 2)
	self.Addr, other.Addr = "a", "b"
	g := newGossipPeers(self)
	for name, spoil := range map[string]func(*memberlist.Node){
		"name":     func(n *memberlist.Node) { n.Name = gossipName(fresh(3, 3)) },
		"address":  func(n *memberlist.Node) { n.Addr = gossipIP(gossipDir(3)) },
		"port":     func(n *memberlist.Node) { n.Port++ },
		"record":   func(n *memberlist.Node) { n.Meta[5]++ },
		"none":     func(n *memberlist.Node) { n.Meta = nil },
		"too long": func(n *memberlist.Node) { n.Meta = make([]byte, 1<<20) },
	} {
		n := gossipNode(other)
		spoil(n)
		if err := g.admit(n); !errors.Is(err, errPeerRecord) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// What others say of this node has to reach memberlist, even if it is nonsense.
	if err := g.admit(&memberlist.Node{Name: gossipName(self)}); err != nil {
		t.Error(err)
	}
	for i := range gossipMembersMax {
		p := other
		p.Node = int32(10 + i)
		if err := g.admit(gossipNode(p)); err != nil {
			t.Fatal(err)
		}
		g.note(gossipNode(p), true)
	}
	if err := g.admit(gossipNode(other)); !errors.Is(err, errTooManyPeers) {
		t.Errorf("one too many: %v", err)
	}
	other.Node = 10
	if err := g.admit(gossipNode(other)); err != nil {
		t.Errorf("one that is known: %v", err)
	}
}

// Changes are told once, the last of several only, and the dead are forgotten after they were told.
func TestGossipPeersChanges(t *testing.T) {
	self, other := fresh(1, 1), fresh(2, 2)
	self.Addr, other.Addr = "a", "b"
	g := newGossipPeers(self)
	expect := func(want ...peerChange) {
		t.Helper()
		have := g.changes()
		if len(have) != len(want) || len(want) == 1 && have[0] != want[0] {
			t.Fatalf("%v, want %v", have, want)
		}
	}
	expect()
	g.note(gossipNode(other), true)
	g.note(gossipNode(other), false)
	expect() // it was never told of
	g.note(gossipNode(other), true)
	expect(peerChange{other, true})
	expect()
	moved := other
	moved.Addr = "c"
	g.note(gossipNode(moved), true)
	expect(peerChange{moved, true})
	g.note(gossipNode(moved), false)
	g.note(gossipNode(moved), true)
	expect()
	g.note(gossipNode(moved), false)
	g.forget(time.Now().Add(time.Hour)) // not told yet
	expect(peerChange{moved, false})
	if addr, ok := g.resolve(memberlist.Address{Name: gossipName(other)}); addr != "c" || !ok {
		t.Fatalf("a dead peer has to be told that it is: %q", addr)
	}
	g.forget(time.Now().Add(-time.Hour))
	if _, ok := g.resolve(memberlist.Address{Name: gossipName(other)}); !ok {
		t.Fatal("forgotten too soon")
	}
	g.forget(time.Now().Add(time.Hour))
	if _, ok := g.resolve(memberlist.Address{Name: gossipName(other)}); ok {
		t.Fatal("not forgotten")
	}
}
