package replication

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lni/dragonboat/v4"
	"github.com/lni/dragonboat/v4/client"
	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/raftio"
	pb "github.com/lni/dragonboat/v4/raftpb"
	sm "github.com/lni/dragonboat/v4/statemachine"
)

// guard stands between us and a NodeHost. It makes calls after Close an error (dragonboat dereferences nil in that race), a
// second Close harmless, and a panic inside StartReplica an error.
type guard struct {
	mu     sync.RWMutex
	nh     *dragonboat.NodeHost
	closed bool
}

// proposalTimeout is how long dragonboat itself remembers a proposal. Waiters are completed by the state machine and by contexts, so it is only
// a bound on dragonboat's table.
const proposalTimeout = time.Hour

func (g *guard) propose(s *client.Session, cmd []byte) (*dragonboat.RequestState, error) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if g.closed {
		return nil, ErrClosed
	}
	return g.nh.Propose(s, cmd, proposalTimeout)
}

func (g *guard) session(shard uint64) *client.Session {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if g.closed {
		return nil
	}
	return g.nh.GetNoOPSession(shard)
}

// leader returns the leader of shard and the term, as far as this node knows.
func (g *guard) leader(shard uint64) (replica, term uint64, ok bool) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if g.closed {
		return 0, 0, false
	}
	replica, term, ok, err := g.nh.GetLeaderID(shard)
	return replica, term, ok && err == nil
}

// readIndex waits until all that was committed in shard when it was called is applied here.
func (g *guard) readIndex(ctx context.Context, shard uint64, timeout time.Duration) error {
	g.mu.RLock()
	if g.closed {
		g.mu.RUnlock()
		return ErrClosed
	}
	rs, err := g.nh.ReadIndex(shard, timeout)
	g.mu.RUnlock()
	if err != nil {
		return err
	}
	// The state is not released to dragonboat's pool: after a context ends it may still be written to.
	select {
	case res := <-rs.ResultC():
		if !res.Completed() {
			return fmt.Errorf("%w: read index of shard %d was not completed", ErrNotLeader, shard)
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// start starts a replica. The store must have it open already: StartReplica holds NodeHost's lock, which the clock needs.
func (g *guard) start(join bool, create sm.CreateOnDiskStateMachineFunc, rc config.Config) (err error) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if g.closed {
		return ErrClosed
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: starting shard %d: %v", ErrFailed, rc.ShardID, p)
		}
	}()
	return g.nh.StartOnDiskReplica(nil, join, create, rc)
}

func (g *guard) stop(shard, replica uint64) error {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if g.closed {
		return ErrClosed
	}
	err := g.nh.StopReplica(shard, replica)
	if errors.Is(err, dragonboat.ErrShardNotFound) {
		return nil
	}
	return err
}

// errRecorded means that nothing was applied since the newest snapshot record, or that one is being made.
var errRecorded = errors.New("replication: a snapshot record is there")

// snapshot asks for a snapshot record of shard; entries up to compactTo will not be replicated one by one any more.
func (g *guard) snapshot(ctx context.Context, shard, compactTo uint64, timeout time.Duration) error {
	g.mu.RLock()
	if g.closed {
		g.mu.RUnlock()
		return ErrClosed
	}
	opt := dragonboat.SnapshotOption{OverrideCompactionOverhead: true, CompactionIndex: compactTo}
	if compactTo == 0 {
		opt.CompactionOverhead = keepAllEntries
	}
	rs, err := g.nh.RequestSnapshot(shard, opt, timeout)
	g.mu.RUnlock()
	if err != nil {
		return err
	}
	select {
	case res := <-rs.ResultC():
		if res.Completed() {
			return nil
		}
		if res.Rejected() {
			return errRecorded
		}
		return fmt.Errorf("%w: snapshot of shard %d did not complete", ErrBusy, shard)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// membership returns the members of shard as its leader has them. ctx must have a deadline, and end before close is called.
func (g *guard) membership(ctx context.Context, shard uint64) (*dragonboat.Membership, error) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if g.closed {
		return nil, ErrClosed
	}
	return g.nh.SyncGetShardMembership(ctx, shard)
}

var errNotProposed = errors.New("replication: not proposed")

// change proposes a membership change and waits for its outcome. errNotProposed means that nothing came of it.
func (g *guard) change(ctx context.Context, kind pb.ConfigChangeType, shard, replica uint64, target string, timeout time.Duration) (dragonboat.RequestResult, error) {
	rs, err := g.proposeChange(kind, shard, replica, target, timeout)
	if err != nil {
		return dragonboat.RequestResult{}, fmt.Errorf("%w: %w", errNotProposed, err)
	}
	select {
	case res := <-rs.ResultC():
		return res, nil
	case <-ctx.Done():
		return dragonboat.RequestResult{}, ctx.Err()
	}
}

func (g *guard) proposeChange(kind pb.ConfigChangeType, shard, replica uint64, target string, timeout time.Duration) (*dragonboat.RequestState, error) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if g.closed {
		return nil, ErrClosed
	}
	switch kind {
	case pb.AddNode:
		return g.nh.RequestAddReplica(shard, replica, target, 0, timeout)
	case pb.AddNonVoting:
		return g.nh.RequestAddNonVoting(shard, replica, target, 0, timeout)
	case pb.RemoveNode:
		return g.nh.RequestDeleteReplica(shard, replica, 0, timeout)
	}
	return nil, fmt.Errorf("membership change of kind %d", kind)
}

// chunks gives raft the pieces of a snapshot. An error means that raft does not know of the snapshot.
func (g *guard) chunks(take raftio.ChunkHandler, list []pb.Chunk) (err error) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if g.closed {
		return ErrClosed
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", errNotHanded, p)
		}
	}()
	for _, c := range list {
		if !take(c) {
			return fmt.Errorf("%w: piece %d", errNotHanded, c.ChunkId)
		}
	}
	return nil
}

// close closes the NodeHost. It gives up waiting when ctx ends: a parked worker never ends, nor does a call that dragonboat parked.
func (g *guard) close(ctx context.Context) error {
	done := make(chan error, 1)
	go func() { done <- g.shut() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%w: raft did not stop: %w", ErrFailed, ctx.Err())
	}
}

func (g *guard) shut() (err error) {
	g.mu.Lock()
	closed := g.closed
	g.closed = true
	g.mu.Unlock()
	if closed {
		return nil
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: closing raft: %v", ErrFailed, p)
		}
	}()
	g.nh.Close()
	return nil
}
