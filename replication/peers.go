package replication

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	pb "github.com/lni/dragonboat/v4/raftpb"

	"github.com/billetlog/billet/transport"
)

// peers is how a host reaches the other nodes: Raft batches, requests and pulls over one transport node. A host that is alone has none.
type peers struct {
	node      *transport.Node
	directory [16]byte             // told to who asks, also before a host is attached
	host      atomic.Pointer[Host] // who takes what arrives; nil before the host runs and after it closed

	mu struct {
		sync.Mutex
		registered map[int32]string // addresses from the metadata that the transport was told
	}
}

// newPeers starts the transport node; its callbacks are set here. Until a host is attached nothing is let in.
func newPeers(o transport.Options) (*peers, error) {
	p := &peers{}
	o.OnBatch = p.onBatch
	o.OnRequest = p.onRequest
	o.OnPull = p.onPull
	state := o.OnPeerState
	o.OnPeerState = func(s transport.PeerState) {
		if state != nil {
			state(s)
		}
		if h := p.host.Load(); h != nil {
			h.peerStates.tell(s)
		}
	}
	// Calls may wait for minutes, and have their places beside those of all else.
	o.RequestsMax = cmp.Or(o.RequestsMax, requestsMax) + callsMax
	// The largest batch that a topic may allow has to fit a request and an answer.
	o.RequestBytesMax, o.ResponseBytesMax = max(o.RequestBytesMax, wireBatchMax), max(o.ResponseBytesMax, wireBatchMax)
	var err error
	if p.node, err = transport.NewNode(o); err != nil {
		return nil, fmt.Errorf("replication: %w", err)
	}
	return p, nil
}

func (p *peers) onBatch(from transport.Peer, payload []byte) {
	h := p.host.Load()
	if h == nil {
		return
	}
	var b pb.MessageBatch
	if err := unmarshal(&b, payload); err != nil {
		h.logger.Warn("a peer's batch of messages was dropped", "peer", from.ID, "err", err)
		return
	}
	h.net.receive(nodeName(from.ID), b)
}

var errStarting = fmt.Errorf("replication: the node is starting or closing: %w", transport.ErrBusy)

func (p *peers) onRequest(ctx context.Context, from transport.Peer, payload []byte) ([]byte, error) {
	if len(payload) == 1 && requestKind(payload[0]) == requestDirectory {
		return p.directory[:], nil
	}
	h := p.host.Load()
	if h == nil {
		return nil, errStarting
	}
	return h.answer(ctx, from.ID, payload)
}

func (p *peers) onPull(ctx context.Context, from transport.Peer, r transport.PullRequest) (transport.Source, error) {
	h := p.host.Load()
	if h == nil {
		return transport.Source{}, errStarting
	}
	f := h.pulls.Load()
	if f == nil {
		return transport.Source{}, fmt.Errorf("replication: pulls are not served here: %w", transport.ErrNotServed)
	}
	return (*f)(ctx, from.ID, r)
}

// pullHandler opens what another node wants to pull.
type pullHandler func(ctx context.Context, from int32, r transport.PullRequest) (transport.Source, error)

// peerWatchers are told of changes in reaching other nodes, one after the other on one goroutine of the transport; they must not block.
type peerWatchers struct {
	mu   sync.Mutex
	list []func(transport.PeerState)
}

func (w *peerWatchers) add(f func(transport.PeerState)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.list = append(w.list, f)
}

func (w *peerWatchers) tell(s transport.PeerState) {
	w.mu.Lock()
	list := w.list
	w.mu.Unlock()
	for _, f := range list {
		f(s)
	}
}

// requestKind is the first byte of a request. The values are frozen: they are on the wire.
type requestKind byte

// requestDirectory asks for the id of a node's directory.
const requestDirectory requestKind = 20

// directoryOf asks a node for the id of its directory; zero when it does not answer in time.
func (h *Host) directoryOf(ctx context.Context, node int32) (dir [16]byte) {
	ctx, cancel := context.WithTimeout(ctx, barrierTimeout)
	defer cancel()
	if b, err := h.call(ctx, node, requestDirectory, nil); err == nil && len(b) == len(dir) {
		copy(dir[:], b)
	}
	return dir
}

// requestHandler answers one kind of request. ctx ends with the caller's patience and with the node.
type requestHandler func(ctx context.Context, from int32, payload []byte) ([]byte, error)

// serve says who answers a kind of request. It replaces an earlier handler; nil takes it away.
func (h *Host) serve(kind requestKind, f requestHandler) {
	if f == nil {
		h.handlers.Delete(kind)
		return
	}
	h.handlers.Store(kind, f)
}

func (h *Host) answer(ctx context.Context, from int32, payload []byte) ([]byte, error) {
	if len(payload) == 0 {
		return nil, errors.New("replication: empty request")
	}
	f, ok := h.handlers.Load(requestKind(payload[0]))
	if !ok {
		return nil, fmt.Errorf("replication: request of kind %d is not served here: %w", payload[0], transport.ErrNotServed)
	}
	end, err := h.begin()
	if err != nil {
		return nil, err
	}
	defer end()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(h.ctx, cancel)() // Close waits for this call
	return f.(requestHandler)(ctx, from, payload[1:])
}

// call asks another node. The errors are transport's.
func (h *Host) call(ctx context.Context, to int32, kind requestKind, payload []byte) ([]byte, error) {
	if h.cfg.peers == nil {
		return nil, fmt.Errorf("%w: node %d: this node is alone", ErrUnreachable, to)
	}
	return h.cfg.peers.node.Call(ctx, to, append([]byte{byte(kind)}, payload...))
}

// reachable says whether a connection to the node stands.
func (h *Host) reachable(node int32) bool {
	if node == h.cfg.Node.ID {
		return true
	}
	return h.cfg.peers != nil && h.cfg.peers.node.PeerState(node).Status == transport.PeerReachable
}

// addresses tells the transport where the other nodes were when they last registered. Gossip knows better where a node is that it sees, so a node that
// can be reached is left alone.
func (h *Host) addresses(nodes []NodeState) {
	if h.cfg.peers == nil {
		return
	}
	for _, n := range nodes {
		if n.Mode == NodeRemoved {
			h.cfg.peers.forget(n.ID)
		} else if n.ID != h.cfg.Node.ID && n.Address != "" && !h.reachable(n.ID) {
			h.cfg.peers.moved(n.ID, n.Address, false)
		}
	}
}

// moved notes a node's address. One that was told before is not told again: what gossip said since then may be newer.
func (p *peers) moved(id int32, addr string, gossip bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.registered == nil {
		p.mu.registered = make(map[int32]string)
	}
	if !gossip {
		if p.mu.registered[id] == addr {
			return
		}
		p.mu.registered[id] = addr
	}
	p.node.SetAddress(id, addr)
}

// forget ends the connections to a node that was removed, unless it can be reached: then it may not know yet.
func (p *peers) forget(id int32) {
	switch p.node.PeerState(id).Status {
	case transport.PeerUnknown, transport.PeerReachable, transport.PeerLost:
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.mu.registered, id)
	p.node.Forget(id)
}

// nodeID reads a node's name.
func nodeID(name string) (int32, bool) {
	digits, ok := strings.CutPrefix(name, "node-")
	id, err := strconv.ParseInt(digits, 10, 32)
	return int32(id), ok && err == nil
}

// callJSON asks another node in JSON. A request that certainly did not run gives an error that wraps ErrUnreachable, one whose fate is
// unknown one that wraps ErrAmbiguous.
func (h *Host) callJSON(ctx context.Context, to int32, kind requestKind, q, answer any) error {
	body, err := h.call(ctx, to, kind, mustJSON(q))
	switch {
	case err == nil:
	case errors.Is(err, transport.ErrConnLost), errors.Is(err, transport.ErrTimeout), ctx.Err() != nil:
		return fmt.Errorf("%w: asking node %d: %w", ErrAmbiguous, to, err)
	case isRemote(err):
		return err
	default:
		return fmt.Errorf("%w: node %d: %w", ErrUnreachable, to, err)
	}
	if err := json.Unmarshal(body, answer); err != nil {
		return fmt.Errorf("replication: answer of node %d: %w", to, err)
	}
	return nil
}

func unmarshalJSON(b []byte, v any) error {
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("replication: answer: %w", err)
	}
	return nil
}

func isRemote(err error) bool {
	var remote *transport.RemoteError
	return errors.As(err, &remote)
}

// mustJSON encodes what is made of plain fields and so always encodes.
func mustJSON(v any) []byte {
	b, _ := json.Marshal(v)
	return b
}
