package replication

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lni/dragonboat/v4/raftio"
	pb "github.com/lni/dragonboat/v4/raftpb"

	"github.com/billetlog/billet/transport"
)

// raftLinks are the connections for Raft messages, two for each node: a peer takes one of each kind, and a second ends the first with what is on its
// way. dragonboat wants several, by shard, so they share them.
type raftLinks struct {
	mu    sync.Mutex
	links map[int32]*raftLink
}

// raftLink is the way to one node. dragonboat never hears that it is down: it would stay away for up to a second and a half, longer than
// most nodes need to start again. What cannot be sent is dropped, and the replicas that sent it are told that the other one was not reached.
//
// What keeps groups together (urgent) has a connection of its own: where the way is narrow it would arrive seconds after the entries that were
// sent before it, and the other node would take its leaders for dead and learn nothing of the cluster.
type raftLink struct {
	bulk, urgent raftStream
}

// raftStream is one connection to a node.
type raftStream struct {
	mu      sync.Mutex // also held while it is dialled: whoever comes then waits for the same
	batches *transport.Batches
	tried   time.Time
	full    atomic.Int64 // when there was no room for linkPatience, in nanoseconds since 1970
}

const (
	linkDialPause = 10 * time.Millisecond // between two attempts to make a connection
	// linkPatience is how long entries wait for room on their connection: what is urgent waits behind them in dragonboat's queue. They are dropped then, and
	// for linkFullPause as soon as there is no room.
	linkPatience  = 200 * time.Millisecond
	linkFullPause = time.Second
)

func (l *raftLinks) of(node int32) *raftLink {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.links == nil {
		l.links = make(map[int32]*raftLink)
	}
	if l.links[node] == nil {
		l.links[node] = &raftLink{}
	}
	return l.links[node]
}

// get returns the connection that stands, or makes one if the node can be reached; nil if not. ctx is dragonboat's own; the connection ends with it.
func (s *raftStream) get(ctx context.Context, n *transport.Node, node int32, open openBatches) *transport.Batches {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.batches != nil && s.batches.Err() == nil {
		return s.batches
	}
	s.batches = nil
	if n.PeerState(node).Status != transport.PeerReachable || time.Since(s.tried) < linkDialPause || ctx.Err() != nil {
		return nil
	}
	s.tried = time.Now()
	b, err := open(ctx, node, transport.FullFails)
	if err != nil {
		return nil
	}
	s.batches = b
	return b
}

// send waits for room, but not again and again.
func (s *raftStream) send(b *transport.Batches, data []byte) error {
	patience := linkPatience
	if time.Since(time.Unix(0, s.full.Load())) < linkFullPause {
		patience = 0
	}
	err := b.SendWithin(data, patience)
	if errors.Is(err, transport.ErrQueueFull) && patience > 0 {
		s.full.Store(time.Now().UnixNano())
	}
	return err
}

// urgent says what must not wait behind entries: what is small and keeps a group together, and all of the metadata's group. Messages of one group may
// overtake each other; those with entries, and what tells only how far they are committed, stay in order among themselves.
func urgent(m *pb.Message) bool {
	return m.ShardID == metadataShard || (m.Type != pb.Replicate && m.Type != pb.ReplicateResp)
}

// raftConn is dragonboat's way to one node.
type raftConn struct {
	t    *raftNet
	ctx  context.Context
	node int32
	late lateCommits
}

// GetConnection implements dragonboat's transport.
func (t *raftNet) GetConnection(ctx context.Context, target string) (raftio.IConnection, error) {
	id, ok := nodeID(target)
	if t.peers == nil || !ok {
		return nil, fmt.Errorf("%w: %s", ErrUnreachable, target)
	}
	c := &raftConn{t: t, ctx: ctx, node: id}
	c.late.send = c.sendLate
	return c, nil
}

// Close leaves the connection: it is shared, and ends with the context.
func (c *raftConn) Close() { c.late.close() }

// SendMessageBatch drops what a latched replica would say: a vote or an acknowledgement of what is only in memory.
func (c *raftConn) SendMessageBatch(b pb.MessageBatch) error {
	if err := c.ctx.Err(); err != nil {
		return err
	}
	kept := make([]pb.Message, 0, len(b.Requests))
	for _, m := range b.Requests {
		if c.speaks(&m) {
			kept = append(kept, m)
		}
	}
	b.Requests = c.late.sift(kept)
	return c.send(b)
}

// speaks says whether a message goes out. Proposals never do: one appender, on the leader's node, gives out offsets and sequences, and who changes the
// membership leads, with the membership before its eyes.
func (c *raftConn) speaks(m *pb.Message) bool {
	return !c.t.host.db.muted(m.ShardID, m.From) && m.Type != pb.Propose
}

// send gives each message to its connection. The list is changed in place.
func (c *raftConn) send(b pb.MessageBatch) error {
	bulk := b.Requests[:0]
	var quick []pb.Message
	for _, m := range b.Requests {
		if urgent(&m) {
			quick = append(quick, m)
		} else {
			bulk = append(bulk, m)
		}
	}
	link, n := c.t.links.of(c.node), c.t.peers.node
	b.Requests = quick
	if err := c.sendTo(&link.urgent, n.OpenUrgent, b); err != nil {
		return err
	}
	b.Requests = bulk
	return c.sendTo(&link.bulk, n.OpenBatches, b)
}

type openBatches func(context.Context, int32, transport.FullPolicy) (*transport.Batches, error)

func (c *raftConn) sendTo(s *raftStream, open openBatches, b pb.MessageBatch) error {
	if len(b.Requests) == 0 {
		return nil
	}
	batches := s.get(c.ctx, c.t.peers.node, c.node, open)
	if batches == nil {
		c.t.notReached(b.Requests)
		return nil
	}
	data, err := b.Marshal()
	if err != nil {
		return fmt.Errorf("replication: encoding messages: %w", err)
	}
	if s.send(batches, data) != nil {
		c.t.notReached(b.Requests)
	}
	return nil
}

// sendLate sends what has waited. What becomes of it dragonboat learns by the next heartbeat.
func (c *raftConn) sendLate(list []pb.Message) {
	list = slices.DeleteFunc(list, func(m pb.Message) bool { return !c.speaks(&m) })
	_ = c.send(pb.MessageBatch{Requests: list, DeploymentId: deploymentID, BinVer: raftio.TransportBinVersion, SourceAddress: c.t.name})
}

// notReached tells leaders which followers did not get their entries, as dragonboat's own transport does when a connection breaks.
func (t *raftNet) notReached(sent []pb.Message) {
	told := make(map[raftio.NodeInfo]bool)
	var out []pb.Message
	for i := range sent {
		m := &sent[i]
		to := raftio.NodeInfo{ShardID: m.ShardID, ReplicaID: m.To}
		if m.Type != pb.Replicate || told[to] {
			continue
		}
		told[to] = true
		out = append(out, pb.Message{Type: pb.Unreachable, From: m.To, To: m.From, ShardID: m.ShardID})
	}
	if len(out) > 0 {
		t.hand(pb.MessageBatch{DeploymentId: deploymentID, BinVer: raftio.TransportBinVersion, Requests: out})
	}
}
