package transport

import (
	"context"
	"fmt"
	"net"
	"sync"
)

// rawStream is a connection of KindStream: bytes as the transport carries them, without frames, checksums or pings.
type rawStream struct {
	net.Conn
	close func() error
}

// newRawStream makes Close end what Node.Close would end. False if the node is closed.
func (n *Node) newRawStream(conn net.Conn) (*rawStream, bool) {
	s := &rawStream{Conn: conn}
	s.close = sync.OnceValue(func() error {
		n.untrack(conn)
		return conn.Close()
	})
	return s, n.track(conn, func(error) { _ = s.Close() })
}

// Close ends the stream. Blocked calls return, and the other side reads what was written, then the end. Further calls return the same.
func (s *rawStream) Close() error { return s.close() }

// OpenStream makes a connection for raw bytes, both ways, to whatever node is at an address, this one included. The two need not belong
// to one cluster, nor to any, and incarnations do not matter: the nodes are proved to each other where the transport authenticates
// (CheckIdentity, with the id that each claims), and nothing more. ctx bounds only making the connection, which lives until it is closed
// or the Node is. Nothing is sent on it that the caller did not write: deadlines are the caller's, and so is telling an end from a cut,
// since whoever sits on the wire can end it, over TLS, too. Errors wrap ErrUnreachable and the cause, which may be a *RefusedError
// (ErrNotServed, ErrBusy, ErrIdentity, ErrVersion), ctx's error or ErrClosed.
func (n *Node) OpenStream(ctx context.Context, addr string) (net.Conn, error) {
	n.stats.dials.Add(1)
	s, err := n.openRaw(ctx, addr)
	if err != nil {
		n.stats.dialsFailed.Add(1)
		return nil, fmt.Errorf("%w: stream to %s: %w", ErrUnreachable, addr, err)
	}
	return s, nil
}

func (n *Node) openRaw(ctx context.Context, addr string) (*rawStream, error) {
	conn, _, err := n.connect(ctx, 0, KindStream, addr)
	if err != nil {
		return nil, err
	}
	s, ok := n.newRawStream(conn)
	if !ok {
		_ = s.Close()
		return nil, ErrClosed
	}
	return s, nil
}

// examineRaw decides about a hello for a raw stream. If it does not refuse, a place among StreamsMax is taken.
func (n *Node) examineRaw(peer Peer, authenticated bool) *RefusedError {
	if authenticated {
		if refused := n.checkIdentity(peer.ID, peer.Identity); refused != nil {
			return refused
		}
	}
	if n.opts.OnStream == nil {
		return refusal(peer.ID, RefusedKind, "%v is not served here", KindStream)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.streams >= n.opts.StreamsMax {
		return refusal(peer.ID, RefusedBusy, "%d streams are served", n.mu.streams)
	}
	n.mu.streams++
	return nil
}

// serveRaw lets the caller have an accepted raw stream, and closes it afterwards.
func (n *Node) serveRaw(conn net.Conn, peer Peer) {
	defer n.release(&n.mu.streams)
	s, ok := n.newRawStream(conn)
	defer func() { _ = s.Close() }()
	if !ok {
		return
	}
	n.stats.streamsServed.Add(1)
	n.opts.OnStream(peer, s)
}
