package replication

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lni/dragonboat/v4/raftio"
	pb "github.com/lni/dragonboat/v4/raftpb"

	"github.com/billetlog/billet/transport"
)

// raftLinks are the connections for Raft messages, one for each node: a peer takes one, and a second ends the first with what is on its
// way. dragonboat wants several, by shard, so they share it.
type raftLinks struct {
	mu    sync.Mutex
	links map[int32]*raftLink
}

// raftLink is the connection to one node. dragonboat never hears that it is down: it would stay away for up to a second and a half, longer than
// most nodes need to start again. What cannot be sent is dropped, and the replicas that sent it are told that the other one was not reached.
type raftLink struct {
	mu      sync.Mutex // also held while it is dialled: whoever comes then waits for the same
	batches *transport.Batches
	tried   time.Time
}

const linkDialPause = 10 * time.Millisecond // between two attempts to make a connection

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
func (l *raftLink) get(ctx context.Context, n *transport.Node, node int32) *transport.Batches {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.batches != nil && l.batches.Err() == nil {
		return l.batches
	}
	l.batches = nil
	if n.PeerState(node).Status != transport.PeerReachable || time.Since(l.tried) < linkDialPause || ctx.Err() != nil {
		return nil
	}
	l.tried = time.Now()
	// A full queue makes dragonboat's own, bounded one fill up.
	b, err := n.OpenBatches(ctx, node, transport.FullWaits)
	if err != nil {
		return nil
	}
	l.batches = b
	return b
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

func (c *raftConn) send(b pb.MessageBatch) error {
	if len(b.Requests) == 0 {
		return nil
	}
	link := c.t.links.of(c.node).get(c.ctx, c.t.peers.node, c.node)
	if link == nil {
		c.t.notReached(b.Requests)
		return nil
	}
	data, err := b.Marshal()
	if err != nil {
		return fmt.Errorf("replication: encoding messages: %w", err)
	}
	if link.Send(data) != nil {
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
