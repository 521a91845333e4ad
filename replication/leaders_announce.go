package replication

import (
	"context"
	"slices"
	"sync"

	"github.com/billetlog/billet/transport"
)

// remotePeer is another node.
type remotePeer struct {
	router *Router
	node   int32

	mu struct {
		sync.Mutex
		// What is to be told to it.
		shards  map[uint64]struct{}
		full    bool // everything
		greeted bool // it was asked for its list
		sending bool

		// What is under way to it.
		bytes   int64
		batches int
		polls   int

		// The routes that are watched there.
		watched  map[*Route]struct{}
		watching bool
		kicked   bool
		stop     context.CancelFunc // ends the watch under way
	}
}

// peer returns another node's entry, made if need be; nil for this node and beyond the bound.
func (r *Router) peer(node int32) *remotePeer {
	if node == r.self || node <= 0 {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.mu.peers[node]
	if p == nil && len(r.mu.peers) < routePeersMax {
		p = &remotePeer{router: r, node: node}
		p.mu.shards, p.mu.full = map[uint64]struct{}{}, true
		p.mu.watched = map[*Route]struct{}{}
		r.mu.peers[node] = p
	}
	return p
}

func (r *Router) allPeers() []*remotePeer {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]*remotePeer, 0, len(r.mu.peers))
	for _, p := range r.mu.peers {
		out = append(out, p)
	}
	return out
}

// addNodes makes entries for nodes of the cluster that were not heard of before, and tells them.
func (r *Router) addNodes() {
	for _, node := range r.dir.nodes() {
		if p := r.peer(node); p != nil {
			p.announce()
		}
	}
}

// peerChanged runs on a goroutine of the transport's.
func (r *Router) peerChanged(s transport.PeerState) {
	if s.Status != transport.PeerReachable {
		return
	}
	if p := r.peer(s.ID); p != nil {
		p.announceFull()
	}
}

// takeLed takes over what changed in local leaderships; false when nothing did.
func (r *Router) takeLed() bool {
	r.mu.Lock()
	dirty := r.mu.dirty
	r.mu.dirty = map[*Partition]struct{}{}
	r.mu.Unlock()
	for p := range dirty {
		key := wirePartition{p.spec.TopicID, p.spec.Partition}
		if e, ok := r.ownEntry(p); ok && r.table.learn(e) {
			for _, peer := range r.allPeers() {
				peer.add(e.shard)
			}
		}
		if route := r.routeOf(key); route != nil {
			route.retarget()
		}
	}
	return len(dirty) > 0
}

// ownEntry is what this node says of a local replica; false when it never led.
func (r *Router) ownEntry(p *Partition) (leadership, bool) {
	e := leadership{wirePartition: wirePartition{p.spec.TopicID, p.spec.Partition}, shard: p.spec.Shard, replica: p.spec.Replica}
	e.epoch = p.Epoch()
	e.leading = e.epoch > 0
	if e.leading {
		e.isr = p.InSync()
	} else {
		before, _ := r.table.lookup(e.shard)
		if before.replica != e.replica {
			return e, false
		}
		e.epoch = before.epoch
	}
	e.serial = r.nextSerial()
	return e, true
}

func (r *Router) nextSerial() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.serial++
	return r.mu.serial
}

// announceAhead sends what waits to be told.
func (r *Router) announceAhead() {
	for _, p := range r.allPeers() {
		p.announce()
	}
}

// announceAll tells everybody everything.
func (r *Router) announceAll() {
	for _, p := range r.allPeers() {
		p.announceFull()
	}
}

func (p *remotePeer) announceFull() {
	p.mu.Lock()
	p.mu.full = true
	p.mu.Unlock()
	p.announce()
}

func (p *remotePeer) add(shard uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.mu.full {
		p.mu.shards[shard] = struct{}{}
	}
}

// announce sends what waits for the node, unless that is under way or it cannot be reached: then it gets everything when it can.
func (p *remotePeer) announce() {
	if !p.router.host.reachable(p.node) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.sending || (!p.mu.full && len(p.mu.shards) == 0) {
		return
	}
	p.mu.sending = p.router.spawn(p.send)
}

// send tells the node what it is to be told, one request after the other, so that what was said last arrives last.
func (p *remotePeer) send() {
	wait := announceRetryMin
	for {
		request, ok := p.take()
		if !ok {
			return
		}
		if p.sendAll(request) {
			wait = announceRetryMin
			continue
		}
		p.mu.Lock()
		p.mu.full = true
		stop := !p.router.host.reachable(p.node)
		p.mu.sending = !stop
		p.mu.Unlock()
		if stop || !pause(p.router.ctx, wait) {
			return // the transport says when it can be reached again
		}
		wait = min(2*wait, announceRetryMax)
	}
}

// take returns what is to be told now; false when it is nothing, and then sending is over.
func (p *remotePeer) take() (a announcement, ok bool) {
	p.mu.Lock()
	full, shards := p.mu.full, p.mu.shards
	a.asking = !p.mu.greeted
	p.mu.full, p.mu.greeted, p.mu.shards = false, true, map[uint64]struct{}{}
	if !full && len(shards) == 0 {
		p.mu.sending = false
		p.mu.Unlock()
		return a, false
	}
	p.mu.Unlock()
	r := p.router
	if full {
		for _, e := range r.table.ledBy(r.self) {
			a.entries = append(a.entries, announcedOf(&e))
		}
		return a, true
	}
	for shard := range shards {
		if e, _ := r.table.lookup(shard); e.node() == r.self {
			a.entries = append(a.entries, announcedOf(&e))
		}
	}
	return a, true
}

func announcedOf(e *leadership) announced {
	return announced{wirePartition: e.wirePartition, shard: e.shard, epoch: e.epoch, replica: e.replica, serial: e.serial, leading: e.leading, isr: e.isr}
}

// sendAll sends an announcement in pieces.
func (p *remotePeer) sendAll(a announcement) bool {
	for piece := range slices.Chunk(append([]announced(nil), a.entries...), leadersMax) {
		if !p.sendOne(announcement{asking: a.asking, entries: piece}) {
			return false
		}
		a.asking = false
	}
	return len(a.entries) > 0 || p.sendOne(a)
}

func (p *remotePeer) sendOne(a announcement) bool {
	ctx, cancel := context.WithTimeout(p.router.ctx, announceTimeout)
	defer cancel()
	_, err := p.router.ask(ctx, p.node, append([]byte{byte(requestLeaders)}, a.encode()...))
	return err == nil
}

// serveLeaders takes an announcement. What a node says counts for its own replicas only.
func (r *Router) serveLeaders(_ context.Context, from int32, payload []byte) ([]byte, error) {
	a, err := decodeAnnouncement(payload)
	if err != nil {
		return nil, err
	}
	for i := range a.entries {
		e := &a.entries[i]
		if nodeOf(e.replica) != from || e.epoch <= 0 || e.serial == 0 || from == r.self {
			continue
		}
		news := r.table.learn(leadership{
			wirePartition: e.wirePartition, shard: e.shard, epoch: e.epoch, replica: e.replica, serial: e.serial, leading: e.leading, isr: e.isr,
		})
		if route := r.routeOf(e.wirePartition); news && route != nil {
			route.retarget()
		}
	}
	if p := r.peer(from); p != nil && a.asking {
		p.announceFull()
	}
	return nil, nil
}

// forgetGone drops from the table what belongs to no topic that is known here. What was announced ahead of its record is announced again; what this
// node leads is not, so it stays as long as there is the replica, which may be ahead of the directory as well.
func (r *Router) forgetGone() {
	var gone []uint64
	for _, e := range r.table.all() {
		if _, ok := r.dir.name(e.topic); !ok && (e.node() != r.self || r.host.partitionOf(e.shard) == nil) {
			gone = append(gone, e.shard)
		}
	}
	r.table.forget(gone...)
}
