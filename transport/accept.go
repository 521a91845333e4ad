package transport

import (
	"context"
	"errors"
	"net"
	"time"
)

// accept takes connections until the listener is closed.
func (n *Node) accept() {
	wait := time.Duration(0)
	for {
		conn, err := n.listener.Accept()
		if err == nil {
			wait = 0
			if !n.admitConn() {
				_ = conn.Close()
				n.stats.connsRefused.Add(1)
				n.event(EventLimit, Peer{Address: conn.RemoteAddr().String()}, ErrBusy)
				continue
			}
			if !n.spawn(func() { n.serve(conn) }) {
				_ = conn.Close()
				return
			}
			continue
		}
		if n.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
			return
		}
		// Out of file descriptors, most often: others may free some.
		n.event(EventAccept, Peer{}, err)
		wait = min(max(2*wait, 5*time.Millisecond), time.Second)
		if pause(n.ctx, wait) != nil {
			return
		}
	}
}

// admitConn counts a connection that was accepted, unless there are too many.
func (n *Node) admitConn() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.accepted >= n.opts.ConnsMax || n.mu.handshakes >= n.opts.HandshakesMax {
		return false
	}
	n.mu.accepted++
	n.mu.handshakes++
	return true
}

// serve is the life of an inbound connection.
func (n *Node) serve(conn net.Conn) {
	defer n.release(&n.mu.accepted)
	var g *greeting
	if n.track(conn, func(error) { _ = conn.Close() }) {
		g = n.receive(conn)
	}
	n.release(&n.mu.handshakes)
	switch {
	case g == nil:
		n.untrack(conn)
		_ = conn.Close()
	case g.kind == KindStream:
		n.serveRaw(conn, g.peer)
	default:
		n.serveStream(n.newStream(n.ctx, conn, g.peer, g.kind, "", g.readSeed, g.writeSeed))
	}
}

// release counts one less of what was counted against a bound.
func (n *Node) release(count *int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	*count--
}

// serveStream runs what a peer asked for.
func (n *Node) serveStream(s *stream) {
	// Tracked first: another connection may end it as soon as it is entered.
	tracked := n.track(s.conn, s.close)
	k := n.enter(s)
	defer n.leave(s)
	if !tracked || s.kind != KindPull && !s.start() {
		s.close(ErrClosed)
		return
	}
	n.retryLink(s.peer.ID)
	switch s.kind {
	case KindBatches, KindUrgent:
		n.serveBatches(s, k)
	case KindRequests:
		n.serveRequests(s)
	case KindPull:
		n.servePull(s)
	}
	s.close(ErrClosed)
}

// receive authenticates an inbound connection and makes the handshake. Nil if the connection is to be closed.
func (n *Node) receive(conn net.Conn) *greeting {
	limit, cancel := context.WithTimeout(n.ctx, n.opts.HandshakeTimeout)
	defer cancel()
	stop := closeWith(limit, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	peer := Peer{Address: conn.RemoteAddr().String()}
	who, authenticated, err := prove(limit, conn)
	var h hello
	if err == nil {
		h, err = readHello(conn)
	}
	if err != nil {
		if n.ctx.Err() == nil {
			n.stats.handshakesBad.Add(1)
			n.event(EventBadHandshake, peer, err)
		}
		return nil
	}
	peer.ID, peer.Incarnation, peer.Identity = h.sender, h.incarnation, who
	cluster := n.Cluster()
	refused := n.examine(h, cluster, peer, authenticated)
	a := answer{version: min(h.versionMax, VersionMax), node: n.opts.ID, cluster: cluster, incarnation: n.opts.Incarnation, nonce: newNonce()}
	if refused != nil {
		a.version, a.code, a.reason = 0, refused.Code, refused.Reason
		n.stats.handshakesRefused.Add(1)
		n.event(EventRefused, peer, refused)
	}
	if _, err := conn.Write(a.encode()); err != nil || refused != nil || !stop() {
		if refused == nil && h.kind == KindStream {
			n.release(&n.mu.streams)
		}
		return nil
	}
	g := &greeting{peer: peer, kind: h.kind}
	g.readSeed, g.writeSeed = frameSeeds(h.nonce, a.nonce)
	return g
}

// examine decides about a hello to a node of a cluster.
func (n *Node) examine(h hello, cluster ClusterID, peer Peer, authenticated bool) *RefusedError {
	refuse := func(code RefusalCode, why string, args ...any) *RefusedError {
		return refusal(h.sender, code, why, args...)
	}
	switch {
	case !h.speaks(VersionMin, VersionMax):
		return refuse(RefusedVersion, "versions %d to %d are spoken here, not %d to %d", VersionMin, VersionMax, h.versionMin, h.versionMax)
	case n.ctx.Err() != nil:
		return refuse(RefusedClosing, "the node is closing")
	case h.kind == KindStream:
		return n.examineRaw(peer, authenticated)
	case cluster == ClusterID{}:
		return refuse(RefusedCluster, "this node belongs to no cluster yet")
	case h.cluster != cluster:
		return refuse(RefusedCluster, "this is cluster %x, not %x", cluster, h.cluster)
	case h.receiver != n.opts.ID:
		return refuse(RefusedReceiver, "this is node %d, not %d", n.opts.ID, h.receiver)
	case h.sender == n.opts.ID:
		return refuse(RefusedDuplicate, "%d is this node's own id", h.sender)
	}
	if authenticated {
		if refused := n.checkIdentity(h.sender, peer.Identity); refused != nil {
			return refused
		}
	}
	if n.opts.Admit != nil {
		if err := n.opts.Admit(peer); err != nil {
			return refuse(RefusedUnknown, "%v", err)
		}
	}
	served := map[Kind]bool{KindBatches: n.opts.OnBatch != nil, KindUrgent: n.opts.OnBatch != nil, KindRequests: true, KindPull: n.opts.OnPull != nil}
	if !served[h.kind] {
		return refuse(RefusedKind, "%v is not served here", h.kind)
	}
	return n.meet(h.sender, h.incarnation)
}
