package replication

import (
	"context"
	"errors"
	"fmt"

	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/raftio"
	pb "github.com/lni/dragonboat/v4/raftpb"
)

var errUnreachable = errors.New("replication: node unreachable")

// network is what carries Raft messages between nodes. A node that is alone has none and talks to itself only.
type network interface {
	// attach makes the node known under name; messages for it go to deliver with the name of the node that sent them, which the network
	// vouches for, each call on a goroutine of the network.
	attach(name string, deliver func(from string, b pb.MessageBatch)) (detach func())
	// send hands a batch over, in order for each pair of nodes. It may block until ctx ends.
	send(ctx context.Context, from, to string, b pb.MessageBatch) error
	// reachable says whether a connection to the node can be made.
	reachable(from, to string) bool
}

// raftNet is dragonboat's transport: it filters what a sick replica would say, and lets the host speak to its own replicas.
type raftNet struct {
	host    *Host
	name    string
	deliver raftio.MessageHandler
	net     network
	detach  func()
}

type raftNetFactory struct{ host *Host }

func (f raftNetFactory) Validate(string) bool { return true }

func (f raftNetFactory) Create(c config.NodeHostConfig, deliver raftio.MessageHandler, _ raftio.ChunkHandler) raftio.ITransport {
	t := &raftNet{host: f.host, name: c.RaftAddress, deliver: deliver, net: f.host.cfg.network}
	f.host.net = t
	return t
}

func (t *raftNet) Name() string { return "billet" }

func (t *raftNet) Start() error {
	if t.net != nil {
		t.detach = t.net.attach(t.name, t.receive)
	}
	return nil
}

func (t *raftNet) Close() error {
	if t.detach != nil {
		t.detach()
	}
	return nil
}

func (t *raftNet) GetConnection(ctx context.Context, target string) (raftio.IConnection, error) {
	if t.net == nil || !t.net.reachable(t.name, target) {
		return nil, fmt.Errorf("%w: %s", errUnreachable, target)
	}
	return &raftConn{t: t, ctx: ctx, to: target}, nil
}

// GetSnapshotConnection refuses: the bytes of a snapshot never travel through dragonboat, and a node alone has nobody to send to.
func (t *raftNet) GetSnapshotConnection(_ context.Context, target string) (raftio.ISnapshotConnection, error) {
	return nil, fmt.Errorf("%w: %s takes no snapshots", errUnreachable, target)
}

// receive lets in what a sound peer may say to a replica that is well.
func (t *raftNet) receive(from string, b pb.MessageBatch) {
	kept := b.Requests[:0]
	for i := range b.Requests {
		m := &b.Requests[i]
		if err := checkMessage(from, m); err != nil {
			t.host.logger.Warn("a peer's message was dropped", "peer", from, "shard", m.ShardID, "err", err)
			continue
		}
		if t.host.db.admits(m) {
			kept = append(kept, *m)
		}
	}
	if len(kept) == 0 {
		return
	}
	// Where replies go follows from the peer itself, never from what it says.
	t.deliver(pb.MessageBatch{Requests: kept, DeploymentId: b.DeploymentId, BinVer: b.BinVer, SourceAddress: from})
}

// isProposal finds proposals of batches. They never cross the wire: one appender, on the leader's node, gives out offsets and
// sequences. Membership changes may.
func isProposal(m pb.Message) bool {
	if m.Type != pb.Propose {
		return false
	}
	for _, e := range m.Entries {
		if e.Type != pb.ConfigChangeEntry {
			return true
		}
	}
	return false
}

// timeoutNow makes a replica of this node campaign at once. Only for a group that has no other voter: it skips the pre-vote.
func (t *raftNet) timeoutNow(shard, replica uint64) {
	g := &t.host.guard
	g.mu.RLock()
	defer g.mu.RUnlock()
	if g.closed {
		return
	}
	t.deliver(pb.MessageBatch{
		DeploymentId: deploymentID,
		BinVer:       raftio.TransportBinVersion,
		Requests:     []pb.Message{{Type: pb.TimeoutNow, From: replica, To: replica, ShardID: shard}},
	})
}

type raftConn struct {
	t   *raftNet
	ctx context.Context
	to  string
}

func (c *raftConn) Close() {}

// SendMessageBatch drops what a latched replica would say: a vote or an acknowledgement of what is only in memory.
func (c *raftConn) SendMessageBatch(b pb.MessageBatch) error {
	kept := make([]pb.Message, 0, len(b.Requests))
	for _, m := range b.Requests {
		if !c.t.host.db.muted(m.ShardID, m.From) && !isProposal(m) {
			kept = append(kept, m)
		}
	}
	if len(kept) == 0 {
		return nil
	}
	b.Requests = kept
	return c.t.net.send(c.ctx, c.t.name, c.to, b)
}
