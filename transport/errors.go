package transport

import (
	"errors"
	"fmt"
)

// Errors to branch on with errors.Is.
var (
	// ErrClosed says that the Node, the stream or the network was closed.
	ErrClosed = errors.New("transport: closed")
	// ErrInvalidOptions says that Options cannot be used; the text names the field.
	ErrInvalidOptions = errors.New("transport: invalid options")
	// ErrUnknownPeer says that no address is known for a node id.
	ErrUnknownPeer = errors.New("transport: no address for the node")
	// ErrUnreachable says that no connection to the peer could be made; the cause is wrapped. What was to be sent was not.
	ErrUnreachable = errors.New("transport: peer unreachable")
	// ErrConnLost says that the connection ended before the answer came. The request may have run.
	ErrConnLost = errors.New("transport: connection lost")
	// ErrDeadPeer says that nothing was heard from a peer for Options.DeadPeerTimeout.
	ErrDeadPeer = errors.New("transport: peer silent")
	// ErrQueueFull says that the bounded send queue has no room. Nothing was sent.
	ErrQueueFull = errors.New("transport: send queue full")
	// ErrTooLarge says that a payload is above the maximum of its kind.
	ErrTooLarge = errors.New("transport: payload too large")
	// ErrBadFrame says that bytes on a connection are no frame that a correct peer would send there.
	ErrBadFrame = errors.New("transport: bad frame")
	// ErrBadHandshake says that the first bytes of a connection are no handshake of ours.
	ErrBadHandshake = errors.New("transport: bad handshake")
	// ErrTimeout says that the peer's handler ran out of the time that the request gave it.
	ErrTimeout = errors.New("transport: handler out of time")
	// ErrStalled says that a pull made no progress for Options.PullStallTimeout.
	ErrStalled = errors.New("transport: pull stalled")
	// ErrCloseTimeout says that callbacks were still running when Close gave up waiting for them.
	ErrCloseTimeout = errors.New("transport: callbacks still run")
	// ErrCertificate says that certificate files could not be read or do not fit together.
	ErrCertificate = errors.New("transport: certificate")
	// ErrAuthentication says that the far side could not prove itself to the transport.
	ErrAuthentication = errors.New("transport: authentication failed")

	// ErrVersion says that two nodes have no protocol version in common.
	ErrVersion = errors.New("transport: no common protocol version")
	// ErrWrongCluster says that the other node belongs to another cluster.
	ErrWrongCluster = errors.New("transport: other cluster")
	// ErrNoCluster says that this node belongs to no cluster yet: SetCluster was not called.
	ErrNoCluster = errors.New("transport: the node belongs to no cluster yet")
	// ErrUnknownNode says that the receiver does not know the sender's id and does not admit it.
	ErrUnknownNode = errors.New("transport: unknown node")
	// ErrDuplicateNode says that the id is the receiver's own, or that a newer incarnation of it was seen.
	ErrDuplicateNode = errors.New("transport: node id in use")
	// ErrWrongNode says that the node at the address is not the one that was meant.
	ErrWrongNode = errors.New("transport: other node at this address")
	// ErrIdentity says that the certificate does not stand for the claimed node id.
	ErrIdentity = errors.New("transport: certificate is not the node's")
	// ErrNotServed says that the peer has no handler for this kind of stream.
	ErrNotServed = errors.New("transport: stream not served")
	// ErrBusy says that a bound of the peer is reached. Nothing was done.
	ErrBusy = errors.New("transport: peer busy")
)

// RefusalCode says in a handshake why a connection is refused. The values are frozen: they are on the wire.
type RefusalCode uint16

// The reasons for which a handshake is refused.
const (
	RefusedVersion   RefusalCode = 1
	RefusedCluster   RefusalCode = 2
	RefusedUnknown   RefusalCode = 3
	RefusedDuplicate RefusalCode = 4
	RefusedReceiver  RefusalCode = 5
	RefusedIdentity  RefusalCode = 6
	RefusedKind      RefusalCode = 7
	RefusedBusy      RefusalCode = 8
	RefusedClosing   RefusalCode = 9
)

// refusalErrors is the one table from codes to sentinels.
var refusalErrors = map[RefusalCode]error{
	RefusedVersion: ErrVersion, RefusedCluster: ErrWrongCluster, RefusedUnknown: ErrUnknownNode,
	RefusedDuplicate: ErrDuplicateNode, RefusedReceiver: ErrWrongNode, RefusedIdentity: ErrIdentity,
	RefusedKind: ErrNotServed, RefusedBusy: ErrBusy, RefusedClosing: ErrClosed,
}

// RefusedError is a handshake that one side refused. It unwraps to the sentinel of its code, so errors.Is(err, ErrWrongCluster) works.
type RefusedError struct {
	// Node is the id of the other node, as it said.
	Node int32
	// Code is why.
	Code RefusalCode
	// Reason is the refusing side's own words, at most 256 bytes of printable text. Fit for a log.
	Reason string
	// ByPeer says that the other side refused, not this one.
	ByPeer bool
}

func (e *RefusedError) Error() string {
	who := "refused node"
	if e.ByPeer {
		who = "refused by node"
	}
	return fmt.Sprintf("transport: %s %d: %s", who, e.Node, e.Reason)
}

func (e *RefusedError) Unwrap() error { return refusalErrors[e.Code] }

// RemoteError is an error that the peer's handler returned, in its words.
type RemoteError struct {
	// Node is the peer.
	Node int32
	// Text is the error's text, at most 1024 bytes.
	Text string
}

func (e *RemoteError) Error() string { return fmt.Sprintf("transport: node %d: %s", e.Node, e.Text) }

// answerCode says in an error frame what became of a request or a pull. Frozen.
type answerCode uint32

const (
	answerFailed    answerCode = 1 // the handler returned an error; its text follows
	answerBusy      answerCode = 2
	answerTimeout   answerCode = 3
	answerNotServed answerCode = 4
	answerTooLarge  answerCode = 5
)

// answerErrors is the one table from codes to sentinels; answerFailed has none.
var answerErrors = map[answerCode]error{
	answerBusy: ErrBusy, answerTimeout: ErrTimeout, answerNotServed: ErrNotServed, answerTooLarge: ErrTooLarge,
}

// answerError makes the caller's error of an error frame.
func answerError(node int32, code answerCode, text []byte) error {
	words := printable(string(text), answerTextMax)
	if kind := answerErrors[code]; kind != nil {
		return fmt.Errorf("node %d: %w: %s", node, kind, words)
	}
	return &RemoteError{Node: node, Text: words}
}

// refusal makes this side's refusal of a node.
func refusal(node int32, code RefusalCode, why string, args ...any) *RefusedError {
	return &RefusedError{Node: node, Code: code, Reason: printable(fmt.Sprintf(why, args...), reasonMax)}
}

func invalid(field, why string, args ...any) error {
	return fmt.Errorf("%w: %s %s", ErrInvalidOptions, field, fmt.Sprintf(why, args...))
}

func invalidIdentity(id int32, want string, who Identity) error {
	return fmt.Errorf("%w: node %d needs the name %q, the certificate has %q", ErrIdentity, id, want, who.Names)
}
