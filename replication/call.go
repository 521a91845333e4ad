package replication

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/billetlog/billet/transport"
)

// Calls between nodes for the layers above: what is in them is theirs.

// requestCall is a call: kind 1 | payload. The answer is code 2 | payload, or the error's words.
const requestCall requestKind = 22

// A call may wait for minutes, so calls have bounds of their own, which keep them from taking the places of what must not wait.
const (
	requestsMax  = 1024     // places of everything else at one node
	callsMax     = 4096     // calls that wait for one node, and that one node has wait here
	callBytesMax = 16 << 20 // bytes they ask with; a larger one goes alone
	callTextMax  = 4096     // bytes of an error's words
)

// codeCallNotServed is the code of a call that nobody serves, beside those of errorCodes.
const codeCallNotServed uint16 = 65534

// CallHandler answers the calls of one kind. The payload is the handler's. It may take as long as ctx lasts, which ends with the caller's and with the node.
type CallHandler = func(ctx context.Context, from int32, payload []byte) ([]byte, error)

// calls are those that wait, by node, and who answers them.
type calls struct {
	handlers sync.Map // uint8 -> CallHandler

	mu struct {
		sync.Mutex
		out, in map[int32]callLoad
	}
}

// callLoad is how many calls wait and how much they ask with.
type callLoad struct {
	n     int
	bytes int64
}

// enter counts a call; ok is false when there are too many.
func (c *calls) enter(load *map[int32]callLoad, node int32, size int) (leave func(), ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if *load == nil {
		*load = map[int32]callLoad{}
	}
	now := (*load)[node]
	if now.n >= callsMax || (now.n > 0 && now.bytes+int64(size) > callBytesMax) {
		return nil, false
	}
	(*load)[node] = callLoad{now.n + 1, now.bytes + int64(size)}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		now := (*load)[node]
		if now = (callLoad{now.n - 1, now.bytes - int64(size)}); now.n == 0 {
			delete(*load, node)
		} else {
			(*load)[node] = now
		}
	}, true
}

// Handle says who answers the calls of a kind. It replaces an earlier handler; nil takes it away. Calls that run go on.
func (n *Node) Handle(kind uint8, f func(ctx context.Context, from int32, payload []byte) ([]byte, error)) {
	n.Host.handle(kind, f)
}

func (h *Host) handle(kind uint8, f CallHandler) {
	if f == nil {
		h.calls.handlers.Delete(kind)
		return
	}
	h.calls.handlers.Store(kind, f)
}

// Call has a node, which may be this one, answer a call. It waits until ctx ends. The error of the handler comes back with its words, and wraps
// the same sentinel of this package if it did. ErrUnreachable says that the node cannot be reached or does not serve the kind, together with ErrAmbiguous
// that it went away while the call may have run; ErrBusy that too many calls wait for the node; ErrTooLarge that payload or answer are.
func (n *Node) Call(ctx context.Context, node int32, kind uint8, payload []byte) ([]byte, error) {
	return n.Host.callNode(ctx, node, kind, payload)
}

func (h *Host) callNode(ctx context.Context, node int32, kind uint8, payload []byte) ([]byte, error) {
	if node == h.cfg.Node.ID {
		return h.callHere(ctx, kind, payload)
	}
	if h.cfg.peers == nil {
		return nil, fmt.Errorf("%w: node %d: this node is alone", ErrUnreachable, node)
	}
	leave, ok := h.calls.enter(&h.calls.mu.out, node, len(payload))
	if !ok {
		return nil, fmt.Errorf("%w: too many calls wait for node %d", ErrBusy, node)
	}
	defer leave()
	q := make([]byte, 0, 2+len(payload))
	q = append(append(q, byte(requestCall), kind), payload...)
	b, err := h.cfg.peers.node.Call(ctx, node, q)
	if err != nil {
		return nil, callError(ctx, node, err)
	}
	if len(b) < 2 {
		return nil, fmt.Errorf("%w: answer of node %d to a call", errWire, node)
	}
	switch code := binary.BigEndian.Uint16(b); code {
	case codeNone:
		return b[2:], nil
	case codeCallNotServed:
		return nil, fmt.Errorf("%w: node %d does not serve calls of kind %d", ErrUnreachable, node, kind)
	default:
		return nil, errorOf(node, code, strings.Map(printableRune, string(b[2:])))
	}
}

// callHere runs the handler as one that another node calls.
func (h *Host) callHere(ctx context.Context, kind uint8, payload []byte) ([]byte, error) {
	f, ok := h.calls.handlers.Load(kind)
	if !ok {
		return nil, fmt.Errorf("%w: this node does not serve calls of kind %d", ErrUnreachable, kind)
	}
	end, err := h.begin()
	if err != nil {
		return nil, err
	}
	defer end()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(h.ctx, cancel)() // Close waits for this call
	return f.(CallHandler)(ctx, h.cfg.Node.ID, bytes.Clone(payload))
}

// callError is the error of a call that no answer came for.
func callError(ctx context.Context, node int32, err error) error {
	switch {
	case errors.Is(err, transport.ErrTooLarge):
		return fmt.Errorf("%w: call of node %d: %w", ErrTooLarge, node, err)
	case errors.Is(err, transport.ErrQueueFull), errors.Is(err, transport.ErrBusy):
		return fmt.Errorf("%w: node %d: %w", ErrBusy, node, err)
	case errors.Is(err, transport.ErrConnLost):
		return fmt.Errorf("%w: %w: node %d: %w", ErrUnreachable, ErrAmbiguous, node, err)
	case ctx.Err() != nil, errors.Is(err, transport.ErrTimeout):
		return fmt.Errorf("%w: calling node %d: %w", ErrAmbiguous, node, cmpError(context.Cause(ctx), err))
	case errors.Is(err, transport.ErrClosed):
		return fmt.Errorf("%w: node", ErrClosed)
	}
	return fmt.Errorf("%w: node %d: %w", ErrUnreachable, node, err)
}

func (h *Host) answerCall(ctx context.Context, from int32, q []byte) ([]byte, error) {
	if len(q) == 0 {
		return nil, fmt.Errorf("%w: call", errWire)
	}
	leave, ok := h.calls.enter(&h.calls.mu.in, from, len(q))
	if !ok {
		return nil, fmt.Errorf("replication: too many calls of node %d: %w", from, transport.ErrBusy)
	}
	defer leave()
	f, ok := h.calls.handlers.Load(q[0])
	if !ok {
		return binary.BigEndian.AppendUint16(nil, codeCallNotServed), nil
	}
	b, err := f.(CallHandler)(ctx, from, q[1:])
	if err != nil {
		r := resultOf(err)
		text := err.Error()
		if len(text) > callTextMax {
			text = strings.ToValidUTF8(text[:callTextMax], "")
		}
		return append(binary.BigEndian.AppendUint16(nil, r.code), text...), nil
	}
	return append(binary.BigEndian.AppendUint16(make([]byte, 0, 2+len(b)), codeNone), b...), nil
}
