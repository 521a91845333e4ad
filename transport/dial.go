package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// dial makes a connection of a kind to a node. The stream ends with ctx; it is tracked and entered, and nothing runs on it yet.
func (n *Node) dial(ctx context.Context, id int32, kind Kind) (*stream, error) {
	if err := n.noCluster(); err != nil {
		return nil, err
	}
	addr, err := n.address(id)
	if err != nil {
		return nil, err
	}
	n.stats.dials.Add(1)
	s, err := n.dialAddress(ctx, id, kind, addr)
	if err != nil {
		n.stats.dialsFailed.Add(1)
		return nil, fmt.Errorf("%w: node %d at %s: %w", ErrUnreachable, id, addr, err)
	}
	return s, nil
}

func (n *Node) dialAddress(ctx context.Context, id int32, kind Kind, addr string) (*stream, error) {
	conn, g, err := n.connect(ctx, id, kind, addr)
	if err != nil {
		return nil, err
	}
	s := n.newStream(ctx, conn, g.peer, kind, addr, g.readSeed, g.writeSeed)
	if !n.track(conn, s.close) {
		s.close(ErrClosed)
		return nil, ErrClosed
	}
	n.enter(s)
	return s, nil
}

// greeting is what a handshake found.
type greeting struct {
	peer Peer
	kind Kind
	// The seeds of frames, unused on a raw stream.
	readSeed, writeSeed uint64
}

// connect dials and makes the handshake. The connection is tracked: Close ends it.
func (n *Node) connect(ctx context.Context, id int32, kind Kind, addr string) (net.Conn, greeting, error) {
	// What ends the dial: the caller's context, its time, and Close.
	dialling, cancel := context.WithTimeout(ctx, n.opts.DialTimeout)
	defer cancel()
	defer closeWith(n.ctx, cancel)()
	conn, err := n.opts.Transport.Dial(dialling, addr)
	if err != nil {
		return nil, greeting{}, ended(n, ctx, err)
	}
	if !n.track(conn, func(error) { _ = conn.Close() }) {
		_ = conn.Close()
		return nil, greeting{}, ErrClosed
	}
	g, err := n.greet(ctx, conn, id, kind)
	if err != nil {
		n.untrack(conn)
		_ = conn.Close()
		return nil, greeting{}, ended(n, ctx, err)
	}
	return conn, g, nil
}

// ended prefers the reason for which a call was given up over what that made of it.
func ended(n *Node, ctx context.Context, err error) error {
	switch {
	case n.ctx.Err() != nil:
		return ErrClosed
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return err
}

// greet authenticates a dialled connection and makes the handshake, within HandshakeTimeout and ctx.
func (n *Node) greet(ctx context.Context, conn net.Conn, id int32, kind Kind) (greeting, error) {
	limit, cancel := context.WithTimeout(ctx, n.opts.HandshakeTimeout)
	defer cancel()
	stop := closeWith(limit, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	who, authenticated, err := prove(limit, conn)
	if err != nil {
		return greeting{}, err
	}
	// Whoever is there tells its id only in its answer when none is meant.
	if authenticated && kind != KindStream {
		if refused := n.checkIdentity(id, who); refused != nil {
			return greeting{}, refused
		}
	}
	ours := hello{
		versionMin: VersionMin, versionMax: VersionMax, kind: kind, cluster: n.Cluster(),
		sender: n.opts.ID, receiver: id, incarnation: n.opts.Incarnation, nonce: newNonce(),
	}
	// Even if the write fails: what the other side said before it closed the connection tells more.
	_, writeErr := conn.Write(ours.encode())
	theirs, err := readAnswer(conn)
	if err != nil {
		if writeErr != nil && !errors.Is(err, ErrAuthentication) {
			err = writeErr
		}
		return greeting{}, fmt.Errorf("handshake: %w", err)
	}
	if refused := n.judge(ours, theirs); refused != nil {
		return greeting{}, refused
	}
	if authenticated && kind == KindStream {
		if refused := n.checkIdentity(theirs.node, who); refused != nil {
			return greeting{}, refused
		}
	}
	if !stop() { // the deadline was set after the last read
		return greeting{}, limit.Err()
	}
	g := greeting{kind: kind, peer: Peer{ID: theirs.node, Incarnation: theirs.incarnation, Address: conn.RemoteAddr().String(), Identity: who}}
	g.writeSeed, g.readSeed = frameSeeds(ours.nonce, theirs.nonce)
	return g, nil
}

// prove completes the authentication of a transport that has one.
func prove(ctx context.Context, conn net.Conn) (who Identity, authenticated bool, err error) {
	c, ok := conn.(AuthenticatedConn)
	if !ok {
		return Identity{}, false, nil
	}
	who, err = c.Authenticate(ctx)
	return who, true, err
}

func (n *Node) checkIdentity(id int32, who Identity) *RefusedError {
	err := fmt.Errorf("%w: no rule for identities is set", ErrIdentity)
	if n.opts.CheckIdentity != nil {
		err = n.opts.CheckIdentity(id, who)
	}
	if err == nil {
		return nil
	}
	return &RefusedError{Node: id, Code: RefusedIdentity, Reason: printable(err.Error(), reasonMax)}
}

// judge looks at the answer to our hello.
func (n *Node) judge(h hello, a answer) *RefusedError {
	switch {
	case a.code != 0:
		return &RefusedError{Node: a.node, Code: a.code, Reason: a.reason, ByPeer: true}
	case a.version < VersionMin || a.version > VersionMax:
		return &RefusedError{Node: a.node, Code: RefusedVersion, Reason: fmt.Sprintf("it chose version %d", a.version)}
	case h.kind == KindStream && a.node < 1:
		return &RefusedError{Node: a.node, Code: RefusedReceiver, Reason: "it has no node id"}
	case h.kind == KindStream:
		return nil
	case a.cluster != h.cluster:
		return &RefusedError{Node: a.node, Code: RefusedCluster, Reason: fmt.Sprintf("it belongs to cluster %x", a.cluster)}
	case a.node != h.receiver:
		return &RefusedError{Node: a.node, Code: RefusedReceiver, Reason: fmt.Sprintf("node %d was expected", h.receiver)}
	}
	return n.meet(a.node, a.incarnation)
}

// readHello reads the first bytes of an inbound connection, and nothing beyond.
func readHello(r io.Reader) (hello, error) {
	b := make([]byte, helloSize)
	if _, err := io.ReadFull(r, b[:len(handshakeMagic)]); err != nil {
		return hello{}, fmt.Errorf("%w: %w", ErrBadHandshake, err)
	}
	if string(b[:len(handshakeMagic)]) != handshakeMagic {
		return hello{}, fmt.Errorf("%w: magic %q", ErrBadHandshake, b[:len(handshakeMagic)])
	}
	if _, err := io.ReadFull(r, b[len(handshakeMagic):]); err != nil {
		return hello{}, fmt.Errorf("%w: %w", ErrBadHandshake, err)
	}
	return decodeHello(b)
}
