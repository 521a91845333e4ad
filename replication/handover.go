package replication

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"
)

const (
	handOverTimeout  = time.Second            // for all of a node's leaderships when it closes
	handOverParallel = 64                     // leaderships on their way at once
	transferTimeout  = 2 * time.Second        // for one partition, which takes nothing meanwhile, to be led by the other
	handOverDrain    = 200 * time.Millisecond // for the batches in flight
	handOverPoll     = time.Millisecond
	handOverShots    = 5 * time.Millisecond // between two campaigns of the heir: dragonboat ignores one while committed entries are not applied
)

// kindTakeOver asks the host of the next leader to make it campaign.
const kindTakeOver requestKind = 't'

// takeOver is the request's body.
type takeOver struct {
	Shard   uint64 `json:"shard"`
	Replica uint64 `json:"replica"` // the next leader
	Leader  uint64 `json:"leader"`  // who asks
	Term    uint64 `json:"term"`    // that it leads
	Last    uint64 `json:"last"`    // where its log ends
}

// HandOver gives the leaderships of this node to other voters that have all of the log, as far as there are any and for a second or until ctx ends. It returns how
// many it still has of partitions with other voters. Nothing keeps leaderships from coming back later.
func (h *Host) HandOver(ctx context.Context) (left int) {
	if h.cfg.peers == nil {
		return 0
	}
	ctx, cancel := context.WithTimeout(ctx, handOverTimeout)
	defer cancel()
	var wg sync.WaitGroup
	var mu sync.Mutex
	slots := make(chan struct{}, handOverParallel)
	for _, p := range h.Partitions() {
		if len(p.voters()) < 2 || !p.leadsAny() {
			continue
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if err := p.handOver(ctx); err != nil {
				h.logger.Info("a leadership was not handed over", "partition", p.name(), "err", err)
				mu.Lock()
				left++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return left
}

// handOver tries the voters, the best one first.
func (p *Partition) handOver(ctx context.Context) error {
	err := fmt.Errorf("%w: %s: no other voter is in sync", ErrUnreachable, p.name())
	for _, to := range p.heirs() {
		if err = p.tryHeir(ctx, to); err == nil || ctx.Err() != nil || !p.leadsAny() {
			break
		}
	}
	return err
}

// tryHeir waits no longer than Raft itself does before it gives up on the transfer.
func (p *Partition) tryHeir(ctx context.Context, to uint64) error {
	ctx, cancel := context.WithTimeout(ctx, electionTicks*p.host.cfg.TickInterval)
	defer cancel()
	return p.transferLeadership(ctx, to)
}

// heirs lists the other voters that can be reached and are in sync, those with the most of the log first; equals are turned by the shard, so that
// not all leaderships fall to one node.
func (p *Partition) heirs() []uint64 {
	var list []ReplicaStatus
	for _, s := range p.Replication().Replicas {
		if s.Replica != p.spec.Replica && s.Voter && s.InSync && p.host.reachable(s.Node) {
			list = append(list, s)
		}
	}
	if n := len(list); n > 1 {
		turn := int(p.spec.Shard % uint64(n))
		list = append(slices.Clone(list[turn:]), list[:turn]...)
	}
	slices.SortStableFunc(list, func(a, b ReplicaStatus) int {
		switch {
		case a.Match > b.Match:
			return -1
		case a.Match < b.Match:
			return 1
		}
		return 0
	})
	out := make([]uint64, len(list))
	for i, s := range list {
		out[i] = s.Replica
	}
	return out
}

// transferLeadership makes another voter the leader. New batches are refused as retriable from the start, and those in flight are let
// through first: dragonboat drops what is proposed while leadership is on its way. When it fails, this replica goes on to lead, unless
// Raft has chosen another one.
func (p *Partition) transferLeadership(ctx context.Context, to uint64) error {
	ctx, cancel := context.WithTimeout(ctx, transferTimeout)
	defer cancel()
	epoch, ok := p.beginHandOver()
	if !ok {
		return fmt.Errorf("%w: %s: there is no leadership to hand over", ErrNotLeader, p.name())
	}
	defer p.endHandOver()
	p.awaitDrained(ctx)
	if err := p.host.guard.transfer(p.spec.Shard, to); err != nil {
		return fmt.Errorf("replication: %s: handing over leadership: %w", p.name(), err)
	}
	p.askHeir(ctx, takeOver{p.spec.Shard, to, p.spec.Replica, epoch, p.r.storedTo.Load()})
	for {
		leader, term, ok := p.host.guard.leader(p.spec.Shard)
		switch {
		case ok && leader == to && term > epoch:
			return nil
		case ok && leader != p.spec.Replica && term > epoch:
			return fmt.Errorf("%w: %s: replica %x took the leadership that was meant for %x", ErrNotLeader, p.name(), leader, to)
		}
		if !pause(ctx, handOverPoll) {
			return fmt.Errorf("replication: %s: replica %x did not take over: %w", p.name(), to, ctx.Err())
		}
	}
}

// askHeir does not rely on dragonboat's one message to the heir, which is ignored when the heir is about to apply something.
func (p *Partition) askHeir(ctx context.Context, t takeOver) {
	body, err := json.Marshal(t)
	if err != nil {
		return
	}
	p.host.spawn(func() {
		if _, err := p.host.call(ctx, nodeOf(t.Replica), kindTakeOver, body); err != nil {
			p.host.logger.Debug("the next leader was not asked to take over", "partition", p.name(), "replica", t.Replica, "err", err)
		}
	})
}

// onTakeOver campaigns until the term ends or the caller loses patience. It comes from the leader itself, and waits until the log here is the leader's.
func (h *Host) onTakeOver(ctx context.Context, from int32, payload []byte) ([]byte, error) {
	var t takeOver
	if err := json.Unmarshal(payload, &t); err != nil {
		return nil, fmt.Errorf("replication: a request to take over: %w", err)
	}
	p := h.partitionOf(t.Shard)
	if p == nil || p.spec.Replica != t.Replica || nodeOf(t.Leader) != from {
		return nil, fmt.Errorf("%w: shard %d: replica %x is asked to take over from %x", ErrNotLeader, t.Shard, t.Replica, t.Leader)
	}
	ctx, cancel := context.WithTimeout(ctx, electionTicks*h.cfg.TickInterval)
	defer cancel()
	defer context.AfterFunc(h.ctx, cancel)()
	for {
		leader, term, ok := h.guard.leader(t.Shard)
		if term > t.Term || p.stopped() || p.r.latched.Load() {
			return nil, nil
		}
		if ok && leader == t.Leader && term == t.Term && p.r.storedTo.Load() >= t.Last {
			h.net.timeoutNow(t.Shard, t.Replica)
		}
		if !pause(ctx, handOverShots) {
			return nil, ctx.Err()
		}
	}
}

func (p *Partition) beginHandOver() (epoch uint64, ok bool) {
	p.append.Lock()
	defer p.append.Unlock()
	if !p.append.leading || p.append.handing {
		return 0, false
	}
	p.append.handing, p.append.leading = true, false
	p.leads.Store(0)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.setStateLocked(StateStarting, nil)
	return p.append.epoch, true
}

func (p *Partition) handing() bool {
	p.append.Lock()
	defer p.append.Unlock()
	return p.append.handing
}

// endHandOver lets an elector find out who leads.
func (p *Partition) endHandOver() {
	p.append.Lock()
	p.append.handing = false
	p.append.Unlock()
	p.host.elect(p, false)
}

// awaitDrained waits for the batches in flight, but not long: what is left is answered as ambiguous.
func (p *Partition) awaitDrained(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, handOverDrain)
	defer cancel()
	moved := make(chan struct{}, 1)
	defer p.Notify(moved)()
	for {
		if w, _ := p.oldestWaiter(); w == nil {
			return
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return
		}
	}
}

// transfer asks the leader of shard to hand over. It is the leader's own to do; what becomes of it is seen in who leads.
func (g *guard) transfer(shard, to uint64) error {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if g.closed {
		return ErrClosed
	}
	return g.nh.RequestLeaderTransfer(shard, to)
}
