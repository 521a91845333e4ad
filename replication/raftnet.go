package replication

import (
	"context"
	"fmt"

	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/raftio"
	pb "github.com/lni/dragonboat/v4/raftpb"
)

// raftNet is dragonboat's transport: it filters what a sick replica would say, and lets the host speak to its own replicas.
type raftNet struct {
	host    *Host
	name    string
	deliver raftio.MessageHandler
	chunks  raftio.ChunkHandler
	peers   *peers // nil: a node alone
	links   raftLinks
}

type raftNetFactory struct{ host *Host }

func (f raftNetFactory) Validate(string) bool { return true }

func (f raftNetFactory) Create(c config.NodeHostConfig, deliver raftio.MessageHandler, chunks raftio.ChunkHandler) raftio.ITransport {
	t := &raftNet{host: f.host, name: c.RaftAddress, deliver: deliver, chunks: chunks, peers: f.host.cfg.peers}
	f.host.net = t
	return t
}

func (t *raftNet) Name() string { return "billet" }

// Start lets the peers' messages in.
func (t *raftNet) Start() error {
	if t.peers != nil {
		t.peers.host.Store(t.host)
	}
	return nil
}

// Close shuts them out.
func (t *raftNet) Close() error {
	if t.peers != nil {
		t.peers.host.CompareAndSwap(t.host, nil)
	}
	return nil
}

// GetSnapshotConnection never fails where there are peers: an error would keep all messages from the node for a while.
func (t *raftNet) GetSnapshotConnection(ctx context.Context, target string) (raftio.ISnapshotConnection, error) {
	id, ok := nodeID(target)
	if t.peers == nil || !ok {
		return nil, fmt.Errorf("%w: %s takes no snapshots", ErrUnreachable, target)
	}
	return &snapshotConn{host: t.host, ctx: ctx, node: id}, nil
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
		r, err := t.host.db.admits(m)
		if err != nil {
			t.host.logger.Warn("a peer's message was dropped", "peer", from, "shard", m.ShardID, "err", err)
		}
		if r == nil || err != nil {
			continue
		}
		if observes(m) {
			r.observe(m, t.host.isr.now())
		}
		kept = append(kept, *m)
	}
	if len(kept) == 0 {
		return
	}
	// Where replies go follows from the peer itself, never from what it says.
	t.hand(pb.MessageBatch{Requests: kept, DeploymentId: b.DeploymentId, BinVer: b.BinVer, SourceAddress: from})
}

// hand gives messages to dragonboat, unless that is closing: then it would dereference nil.
func (t *raftNet) hand(b pb.MessageBatch) {
	g := &t.host.guard
	g.mu.RLock()
	defer g.mu.RUnlock()
	if !g.closed {
		t.deliver(b)
	}
}

// stepDown makes a candidate of this node a follower again, in the given term, which must be above its own: a candidate takes no notice of
// timeoutNow, and two that have split the votes would stay candidates until an election timeout.
func (t *raftNet) stepDown(shard, replica, term uint64) {
	t.hand(pb.MessageBatch{
		DeploymentId: deploymentID,
		BinVer:       raftio.TransportBinVersion,
		Requests:     []pb.Message{{Type: pb.NoOP, From: replica, To: replica, ShardID: shard, Term: term}},
	})
}

// timeoutNow makes a replica of this node campaign at once, without the pre-vote. It is for groups with no other voter, and for those whose leader is gone.
func (t *raftNet) timeoutNow(shard, replica uint64) {
	t.hand(pb.MessageBatch{
		DeploymentId: deploymentID,
		BinVer:       raftio.TransportBinVersion,
		Requests:     []pb.Message{{Type: pb.TimeoutNow, From: replica, To: replica, ShardID: shard}},
	})
}
