package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
)

// Peer is the other side of a connection, as the handshake and the transport found it.
type Peer struct {
	// ID is its node id and Incarnation its life.
	ID          int32
	Incarnation uint64
	// Address is the connection's remote address.
	Address string
	// Identity is who it proved to be; zero on a transport that does not authenticate.
	Identity Identity
}

// PeerStatus is what is known about reaching a peer.
type PeerStatus uint8

// The states of a peer.
const (
	// PeerUnknown: nothing was tried yet.
	PeerUnknown PeerStatus = iota
	// PeerReachable: a connection stands.
	PeerReachable
	// PeerLost: the connection ended and the next dial has not come to an end.
	PeerLost
	// PeerUnreachable: dialling failed in silence: no answer, no route, no such name.
	PeerUnreachable
	// PeerRefusing: somebody answered for the address that nobody listens at the port.
	PeerRefusing
	// PeerRejected: the handshake failed on purpose. Err is a *RefusedError, or wraps ErrBadHandshake or ErrAuthentication.
	PeerRejected
)

func (s PeerStatus) String() string {
	names := [...]string{"unknown", "reachable", "lost", "unreachable", "refusing", "rejected"}
	if int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprintf("status %d", uint8(s))
}

// PeerState is a change in reaching a peer.
type PeerState struct {
	// ID is the peer.
	ID int32
	// Status is how it is now.
	Status PeerStatus
	// Reset says that the last connection that stood was ended by the other side (reset or end of file), not by silence or by us.
	Reset bool
	// Incarnation is the peer's at the last connection that stood, 0 before.
	Incarnation uint64
	// Err is why it cannot be reached, nil if it can.
	Err error
}

// Gone tells that the peer's process ended: its connection was reset and then its port was refused. It rests on syscall.ECONNREFUSED,
// which Windows does not report: there it is never true.
func (s PeerState) Gone() bool { return s.Status == PeerRefusing && s.Reset }

// Silent tells that nothing came over the last connection for Options.DeadPeerTimeout: the peer's process stands still, or the network swallows what
// it sends.
func (s PeerState) Silent() bool { return s.Status == PeerLost && errors.Is(s.Err, ErrDeadPeer) }

// statusOf tells what a failed dial or handshake says about the peer.
func statusOf(err error) PeerStatus {
	var refused *RefusedError
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return PeerRefusing
	case errors.As(err, &refused) && refused.Code != RefusedBusy && refused.Code != RefusedClosing:
		return PeerRejected
	case errors.Is(err, ErrBadHandshake), errors.Is(err, ErrAuthentication):
		return PeerRejected
	}
	return PeerUnreachable
}

// isReset tells whether the other side ended a connection.
func isReset(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// isTimeout tells whether a deadline passed.
func isTimeout(err error) bool {
	var timeout net.Error
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
}

// EventKind names what happened.
type EventKind string

// The kinds of events. Their values are stable and fit for logs and metrics.
const (
	// EventRefused: this node refused an inbound handshake.
	EventRefused EventKind = "refused"
	// EventBadHandshake: an inbound connection failed to authenticate or did not begin with a handshake of ours.
	EventBadHandshake EventKind = "bad-handshake"
	// EventBadFrame: a peer sent what a correct peer does not; its connection was closed.
	EventBadFrame EventKind = "bad-frame"
	// EventDeadPeer: an inbound connection was closed after silence.
	EventDeadPeer EventKind = "dead-peer"
	// EventLimit: an inbound connection was closed because a bound was reached.
	EventLimit EventKind = "limit"
	// EventDisplaced: a newer incarnation of a node took the place of an older.
	EventDisplaced EventKind = "displaced"
	// EventAccept: the listener failed to accept; it is tried again.
	EventAccept EventKind = "accept"
)

// Event is something that an operator may want to know.
type Event struct {
	// Kind is what happened.
	Kind EventKind
	// Peer is the other side as far as it is known; ID is 0 if it is not.
	Peer Peer
	// Err says more.
	Err error
}

func (e Event) String() string {
	return fmt.Sprintf("%s: node %d at %s: %v", e.Kind, e.Peer.ID, e.Peer.Address, e.Err)
}
