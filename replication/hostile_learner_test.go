package replication

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"testing"

	"github.com/lni/dragonboat/v4/raftio"
	pb "github.com/lni/dragonboat/v4/raftpb"

	"github.com/billetlog/billet/internal/vfs"
	"github.com/billetlog/billet/transport"
)

// Lies to a learner, which does not vote: its group goes on, its host neither parks a worker nor fails to open again.
func TestLyingToLearner(t *testing.T) {
	const seed = 7
	quiet := slog.New(slog.DiscardHandler)
	c := newTrioWith(t, func(n *testNode) { n.logger = quiet })
	tape, u := newTape(seed), mutation{rand.New(rand.NewPCG(seed, 3))}
	n := &testNode{t: t, fs: vfs.NewMem(), dir: "/data", id: 4, net: c.net, logger: quiet}
	n.open()
	deliver := n.host.net.deliver
	n.host.net.deliver = func(b pb.MessageBatch) {
		for j := range b.Requests {
			tape.record(&b.Requests[j])
		}
		deliver(b)
	}
	c.load(-1, 10, 10)
	c.nodes, c.parts = append(c.nodes, n), append(c.parts, nil)
	c.startLearner(3, nil, true)
	c.change(func(p *Partition, ctx context.Context) error { return p.AddLearner(ctx, c.learner(3), 4) })
	waitHW(t, c.parts[3], c.load(-1, 30, 10))
	for _, m := range []pb.Message{{Type: pb.RequestVote, Term: 3, LogIndex: 90, LogTerm: 2}, {Type: pb.RequestPreVote, Term: 3}, {Type: pb.TimeoutNow, Term: 2},
		{Type: pb.ReadIndex, Hint: 5}, {Type: pb.ReadIndexResp, Term: 2, LogIndex: 3, Hint: 5}, {Type: pb.LeaderTransfer, Hint: 5}, {Type: pb.NoOP, Term: 2},
		{Type: pb.ReplicateResp, Term: 2, LogIndex: 3}, {Type: pb.SnapshotReceived}} {
		m.ShardID, m.From, m.To = 2, replicaID(1, 1), c.learner(3)
		tape.record(&m)
	}
	for range hostileRounds(1500) {
		m := tape.any(u.rng)
		for range u.rng.IntN(3) {
			u.message(&m)
		}
		b := pb.MessageBatch{Requests: []pb.Message{m}, DeploymentId: deploymentID, BinVer: raftio.TransportBinVersion}
		n.peers.onBatch(transport.Peer{ID: nodeOf(m.From)}, pb.MustMarshal(&b))
	}
	end := c.load(-1, 10, 10)
	if parked := n.host.parked.Load(); parked != 0 {
		t.Fatalf("%d workers of Raft are parked", parked)
	}
	if err := n.host.Close(testContext(t)); errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("close: %v", err)
	}
	_ = n.peers.node.Close()
	n.open()
	c.startLearner(3, nil, false)
	c.parts, c.nodes = c.parts[:3], c.nodes[:3]
	for _, p := range c.parts {
		waitHW(t, p, end)
	}
	c.same(c.load(-1, 5, 10))
	if parked := n.host.parked.Load(); parked != 0 {
		t.Errorf("%d workers of Raft are parked", parked)
	}
	_ = n.host.Close(testContext(t))
	_ = n.peers.node.Close()
	c.close()
}
