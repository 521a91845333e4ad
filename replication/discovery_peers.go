package replication

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// gossipMembersMax bounds the peers that are known at a time, dead ones that are not forgotten yet included.
const gossipMembersMax = 1024

var errTooManyPeers = errors.New("too many peers are known")

// gossipPeers is what this node knows of the others, and how memberlist's names lead to real addresses. memberlist calls its delegates with
// its own lock held, so they only note things here; nothing here calls memberlist.
type gossipPeers struct {
	name    string
	changed chan struct{} // has room for one: something differs from what was told

	mu struct {
		sync.Mutex
		self  peerInfo
		peers map[string]*gossipPeer // by memberlist's name, without this node
		joins map[string]string      // from an address made for one join to the real one
		joint uint64                 // joins so far
	}
}

// gossipPeer is one other directory.
type gossipPeer struct {
	info  peerInfo
	alive bool
	died  time.Time

	told      peerInfo
	toldAlive bool
}

// peerChange is what onChange is called with.
type peerChange struct {
	info  peerInfo
	alive bool
}

func newGossipPeers(self peerInfo) *gossipPeers {
	g := &gossipPeers{name: gossipName(self), changed: make(chan struct{}, 1)}
	g.mu.self = self
	g.mu.peers = map[string]*gossipPeer{}
	g.mu.joins = map[string]string{}
	return g
}

// admit judges a record before memberlist takes it over. What this node cannot read or reach stays unknown to it, so that it never
// accuses such a peer of being dead.
func (g *gossipPeers) admit(n *memberlist.Node) error {
	if n.Name == g.name {
		return nil // memberlist has to see what others say of this node, to refute it
	}
	info, err := decodePeer(n.Meta)
	if err != nil {
		return err
	}
	if want := gossipName(info); n.Name != want {
		return fmt.Errorf("%w: it is for %s", errPeerRecord, want)
	}
	if !n.Addr.Equal(gossipIP(info.Dir)) || n.Port != gossipPort {
		return fmt.Errorf("%w: its address is not made from its directory", errPeerRecord)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.peers[n.Name] == nil && len(g.mu.peers) >= gossipMembersMax {
		return fmt.Errorf("%w: at most %d", errTooManyPeers, gossipMembersMax)
	}
	return nil
}

// note takes over what memberlist believes of a peer.
func (g *gossipPeers) note(n *memberlist.Node, alive bool) {
	if n.Name == g.name {
		return
	}
	info, err := decodePeer(n.Meta)
	if err != nil {
		return // admit said so already
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.mu.peers[n.Name]
	if p == nil {
		p = &gossipPeer{}
		g.mu.peers[n.Name] = p
	}
	if p.alive && !alive {
		p.died = time.Now()
	}
	p.info, p.alive = info, alive
	select {
	case g.changed <- struct{}{}:
	default:
	}
}

// changes returns what is not told yet, and counts it as told. Of a peer that changed several times only the last counts.
func (g *gossipPeers) changes() []peerChange {
	g.mu.Lock()
	defer g.mu.Unlock()
	var out []peerChange
	for _, p := range g.mu.peers {
		if p.alive == p.toldAlive && (!p.alive || p.info == p.told) {
			continue
		}
		p.told, p.toldAlive = p.info, p.alive
		out = append(out, peerChange{p.info, p.alive})
	}
	slices.SortFunc(out, func(a, b peerChange) int { return comparePeers(a.info, b.info) })
	return out
}

// alive lists the peers that are alive, and this node, by node and directory.
func (g *gossipPeers) alive() []peerInfo {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := []peerInfo{g.mu.self}
	for _, p := range g.mu.peers {
		if p.alive {
			out = append(out, p.info)
		}
	}
	slices.SortFunc(out, comparePeers)
	return out
}

func comparePeers(a, b peerInfo) int {
	return cmp.Or(cmp.Compare(a.Node, b.Node), bytes.Compare(a.Dir[:], b.Dir[:]))
}

// forget drops peers that died before a time. memberlist, which forgets them too, sends nothing to them any more.
func (g *gossipPeers) forget(before time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for name, p := range g.mu.peers {
		if !p.alive && !p.toldAlive && p.died.Before(before) {
			delete(g.mu.peers, name)
		}
	}
}

func (g *gossipPeers) self() peerInfo {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.self
}

func (g *gossipPeers) setSelf(p peerInfo) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.self = p
}

// startJoin makes up an address for memberlist to join at, which leads to the real one until endJoin.
func (g *gossipPeers) startJoin(addr string) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.joint++
	var number [16]byte
	for i := range 8 {
		number[i] = byte(g.mu.joint >> (8 * i))
	}
	made := net.JoinHostPort(gossipIP(number).String(), strconv.Itoa(gossipPort))
	g.mu.joins[made] = addr
	return made
}

func (g *gossipPeers) endJoin(made string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.mu.joins, made)
}

// resolve returns the real address: by the node's name where memberlist has one, else that of a join.
func (g *gossipPeers) resolve(a memberlist.Address) (addr string, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if a.Name == "" {
		addr, ok = g.mu.joins[a.Addr]
		return addr, ok
	}
	if p := g.mu.peers[a.Name]; p != nil {
		return p.info.Addr, true
	}
	return "", false
}

// gossipDelegate is what memberlist calls.
type gossipDelegate struct{ peers *gossipPeers }

// NodeMeta is this node's record.
func (d gossipDelegate) NodeMeta(int) []byte { return encodePeer(d.peers.self()) }

// NotifyMsg drops messages of users: there are none.
func (d gossipDelegate) NotifyMsg([]byte) {}

// GetBroadcasts has none.
func (d gossipDelegate) GetBroadcasts(int, int) [][]byte { return nil }

// LocalState is empty.
func (d gossipDelegate) LocalState(bool) []byte { return nil }

// MergeRemoteState takes nothing over.
func (d gossipDelegate) MergeRemoteState([]byte, bool) {}

// NotifyAlive judges a peer's record.
func (d gossipDelegate) NotifyAlive(n *memberlist.Node) error { return d.peers.admit(n) }

// NotifyJoin notes a peer that is alive.
func (d gossipDelegate) NotifyJoin(n *memberlist.Node) { d.peers.note(n, true) }

// NotifyUpdate notes a changed record.
func (d gossipDelegate) NotifyUpdate(n *memberlist.Node) { d.peers.note(n, true) }

// NotifyLeave notes a peer that died or left.
func (d gossipDelegate) NotifyLeave(n *memberlist.Node) { d.peers.note(n, false) }
