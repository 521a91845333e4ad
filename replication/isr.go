package replication

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	pb "github.com/lni/dragonboat/v4/raftpb"

	"github.com/lni/dragonboat/v4"
)

// The bounds and the default of HostConfig.ReplicaLagTimeMax.
const (
	DefaultReplicaLagTimeMax = 10 * time.Second
	MinReplicaLagTimeMax     = 100 * time.Millisecond
	MaxReplicaLagTimeMax     = time.Hour
)

const (
	isrLooks      = 20                     // looks at the in-sync replicas within the lag bound
	isrLookMax    = 500 * time.Millisecond // between two looks at most
	isrWakeGap    = 10 * time.Millisecond  // between two looks that were asked for
	caughtUpSlack = MaxInFlightBatches     // entries that a replica may lack and still be taken as caught up
)

// isr watches the replicas of the partitions that this node leads together with others. Nothing runs for groups of one.
type isr struct {
	origin time.Time // of the monotonic clock
	wake   chan struct{}

	mu struct {
		sync.Mutex
		led     map[*Partition]struct{}
		changed map[uint64]struct{} // shards whose members may have changed
	}
}

func newISR() *isr {
	w := &isr{origin: time.Now(), wake: make(chan struct{}, 1)}
	w.mu.led = make(map[*Partition]struct{})
	w.mu.changed = make(map[uint64]struct{})
	return w
}

// now is the time since the host was opened. It does not jump with the wall clock.
func (w *isr) now() int64 { return int64(time.Since(w.origin)) }

func (w *isr) nudge() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *isr) watch(p *Partition) {
	w.mu.Lock()
	w.mu.led[p] = struct{}{}
	w.mu.Unlock()
	w.nudge()
}

// voters are the members of p's group that vote, as far as this node has applied its log.
func (p *Partition) voters() []uint64 {
	if v := p.voting.Load(); v != nil {
		return *v
	}
	return nil
}

// Alone says whether this node's copy is all that a record needs to be committed, and that min.insync.replicas asks for no more.
func (p *Partition) Alone() bool {
	return len(p.voters()) == 1 && p.settings.Load().MinInsyncReplicas <= 1
}

func (p *Partition) setVoters(members map[uint64]string) {
	list := make([]uint64, 0, len(members))
	for id := range members {
		list = append(list, id)
	}
	slices.Sort(list)
	p.voting.Store(&list)
}

// memberEvents hears from dragonboat that a group's members changed. It runs on dragonboat's goroutine, which a call back would block.
type memberEvents struct {
	quietSystemEvents
	host *Host
}

func (e memberEvents) changed(shard uint64) {
	w := e.host.isr
	w.mu.Lock()
	w.mu.changed[shard] = struct{}{}
	w.mu.Unlock()
	w.nudge()
}

// refreshMembers asks dragonboat for the members of the groups where they changed.
func (h *Host) refreshMembers() {
	h.isr.mu.Lock()
	changed := h.isr.mu.changed
	if len(changed) > 0 {
		h.isr.mu.changed = make(map[uint64]struct{})
	}
	h.isr.mu.Unlock()
	if len(changed) == 0 {
		return
	}
	for _, info := range h.guard.shards() {
		_, ok := changed[info.ShardID]
		p := h.partitionOf(info.ShardID)
		if !ok || p == nil || info.Pending || info.ReplicaID != p.spec.Replica {
			continue
		}
		p.setVoters(info.Replicas)
		if p.leadsAny() {
			h.isr.watch(p)
		}
	}
}

// shards tells what dragonboat knows of all groups here.
func (g *guard) shards() []dragonboat.ShardInfo {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if g.closed {
		return nil
	}
	info := g.nh.GetNodeHostInfo(dragonboat.NodeHostInfoOption{SkipLogInfo: true})
	if info == nil {
		return nil
	}
	return info.ShardInfoList
}

// watchReplicas reviews the replicas of what this node leads, now and then and when asked to.
func (h *Host) watchReplicas() {
	every := min(max(h.cfg.ReplicaLagTimeMax/isrLooks, time.Millisecond), isrLookMax)
	timer := time.NewTimer(every)
	defer timer.Stop()
	for {
		select {
		case <-h.ctx.Done():
			return
		case <-timer.C:
		case <-h.isr.wake:
		}
		h.refreshMembers()
		if h.reviewLed() {
			timer.Reset(every)
		}
		if !pause(h.ctx, isrWakeGap) {
			return
		}
	}
}

// pause waits for d; false when ctx ended.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// reviewLed returns whether there is anything to review.
func (h *Host) reviewLed() (more bool) {
	w := h.isr
	w.mu.Lock()
	list := make([]*Partition, 0, len(w.mu.led))
	for p := range w.mu.led {
		list = append(list, p)
	}
	w.mu.Unlock()
	now := w.now()
	for _, p := range list {
		if p.review(now) {
			more = true
			continue
		}
		w.mu.Lock()
		delete(w.mu.led, p)
		w.mu.Unlock()
		if p.leadsAny() && len(p.voters()) > 1 { // it began to lead again meanwhile
			w.watch(p)
			more = true
		}
	}
	return more
}

// leadsAny says whether p leads in some epoch, be it that it takes nothing for a moment.
func (p *Partition) leadsAny() bool {
	_, ok := p.ledEpoch()
	return ok
}

func (p *Partition) ledEpoch() (epoch uint64, ok bool) {
	p.append.Lock()
	defer p.append.Unlock()
	return p.append.epoch, p.append.announced
}

// review brings the in-sync replicas up to date and tells of changes. It returns false when there is nothing to look at any more.
func (p *Partition) review(now int64) (keep bool) {
	lag := int64(p.host.cfg.ReplicaLagTimeMax)
	p.expireHeld(now)
	epoch, ok := p.ledEpoch()
	if !ok {
		return p.holding.Load() > 0
	}
	voters := p.voters()
	g := p.r.beginProgress(epoch, now)
	if g.term != epoch {
		return true // a later term has begun and the elector is about to find it
	}
	g.mu.Lock()
	in := g.inSyncLocked(p.spec.Replica, voters, p.r.storedTo.Load(), now, lag)
	was, wasUnder := g.mu.announced, g.mu.under
	if was == nil {
		was = voters // a new leader doubts nobody at first
	}
	g.mu.announced, g.mu.under = in, len(in) < len(voters)
	under := g.mu.under
	g.mu.Unlock()
	p.inSync.Store(int32(len(in)))
	if !slices.Equal(was, in) {
		p.tellISR(was, in, voters)
	}
	if under != wasUnder {
		kind := EventUnderReplicated
		if !under {
			kind = EventReplicated
		}
		p.host.emit(Event{Kind: kind, Topic: p.spec.Topic, Partition: p.spec.Partition, Offset: -1, Detail: isrDetail(in, voters)})
	}
	return len(voters) > 1 || p.holding.Load() > 0
}

// tellISR emits what changed between two looks: at most one event for those that left and one for those that came.
func (p *Partition) tellISR(was, in, voters []uint64) {
	left := slices.ContainsFunc(was, func(v uint64) bool { return slices.Contains(voters, v) && !slices.Contains(in, v) })
	came := slices.ContainsFunc(in, func(v uint64) bool { return !slices.Contains(was, v) })
	e := Event{Topic: p.spec.Topic, Partition: p.spec.Partition, Offset: -1, Detail: isrDetail(in, voters)}
	if left {
		e.Kind = EventISRShrink
		p.host.emit(e)
	}
	if came {
		e.Kind = EventISRGrow
		p.host.emit(e)
	}
	p.host.leadership.tell(p)
}

func isrDetail(in, voters []uint64) string {
	nodes := make([]string, len(in))
	for i, v := range in {
		nodes[i] = fmt.Sprint(nodeOf(v))
	}
	return fmt.Sprintf("%d of %d replicas are in sync, on nodes %s", len(in), len(voters), strings.Join(nodes, ", "))
}

// ReplicaStatus is what a leader knows of one replica of its partition.
type ReplicaStatus struct {
	Replica uint64
	Node    int32
	Voter   bool // false: a learner, which copies and does not count
	// Match is the Raft index up to which it is known to have stored the log.
	Match     uint64
	InSync    bool
	LastHeard time.Time // of the leader itself: now
}

// Replication is how a partition is replicated, as this node knows.
type Replication struct {
	Leader   uint64 // replica id; 0: not known
	Epoch    int32
	Leading  bool // it is led here; what follows is known only then
	Replicas []ReplicaStatus
}

// Replication tells how the partition is replicated. Who leads is known on every node, the rest where it is led.
func (p *Partition) Replication() Replication {
	leader, term, ok := p.host.guard.leader(p.spec.Shard)
	out := Replication{Epoch: int32(min(term, maxEpoch))}
	if ok {
		out.Leader = leader
	}
	epoch, leading := p.ledEpoch()
	if !leading || p.r == nil {
		return out
	}
	out.Leader, out.Epoch, out.Leading = p.spec.Replica, int32(epoch), true
	now, lag, wall := p.host.isr.now(), int64(p.host.cfg.ReplicaLagTimeMax), time.Now()
	g := p.r.beginProgress(epoch, now)
	if g.term != epoch {
		return out
	}
	voters, last := p.voters(), p.r.storedTo.Load()
	g.mu.Lock()
	defer g.mu.Unlock()
	in := g.inSyncLocked(p.spec.Replica, voters, last, now, lag)
	for _, v := range voters {
		s := ReplicaStatus{Replica: v, Node: nodeOf(v), Voter: true, Match: g.matchOf(v), InSync: slices.Contains(in, v), LastHeard: wall.Add(time.Duration(g.heardOf(v) - now))}
		if v == p.spec.Replica {
			s.Match, s.LastHeard = last, wall
		}
		out.Replicas = append(out.Replicas, s)
	}
	for _, q := range *g.peers.Load() { // a replica that was removed falls silent
		if heard := q.heard.Load(); !slices.Contains(voters, q.replica) && now-heard <= lag {
			out.Replicas = append(out.Replicas, ReplicaStatus{Replica: q.replica, Node: nodeOf(q.replica), Match: q.match.Load(), LastHeard: wall.Add(time.Duration(heard - now))})
		}
	}
	return out
}

// InSync returns the voters that are in sync, by replica id; nil when this node does not lead the partition.
func (p *Partition) InSync() []uint64 {
	var in []uint64
	for _, s := range p.Replication().Replicas {
		if s.InSync {
			in = append(in, s.Replica)
		}
	}
	return in
}

// caughtUp says whether a replica, learner or voter, answers and lacks next to nothing, so that it may be made a voter. False where the
// partition is not led.
func (p *Partition) caughtUp(replica uint64) bool {
	epoch, ok := p.ledEpoch()
	if !ok || p.r == nil {
		return false
	}
	g := p.r.progress.Load()
	if g == nil || g.term != epoch {
		return false
	}
	q := g.peer(replica)
	if q == nil || p.host.isr.now()-q.heard.Load() > int64(p.host.cfg.ReplicaLagTimeMax) {
		return false
	}
	return q.match.Load()+caughtUpSlack >= p.r.storedTo.Load()
}

// observes says whether the message tells a leader of a replica.
func observes(m *pb.Message) bool { return m.Type == pb.ReplicateResp || m.Type == pb.HeartbeatResp }
