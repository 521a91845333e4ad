package replication

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Route is the way from this node to one partition, wherever that is led: to the replica of this node while it leads, else to the leader. Its methods
// may be called from several goroutines at once, and none of them waits for the network but those that take a context.
type Route struct {
	router *Router
	key    wirePartition
	topic  string
	shard  atomic.Uint64 // another one once the partition was recovered

	// here is this node's replica while it leads, and always on a node without a network.
	here atomic.Pointer[Partition]
	// near and away are how many batches are not answered, of those appended here and of those forwarded. Not counted on a node without a network.
	near, away atomic.Int64

	mu struct {
		sync.Mutex
		gone     error // the topic is no more
		replicas []ReplicaAssignment
		local    *Partition // this node's replica, whatever it does; nil if there is none
		leader   wireLeader // node is 0 while none is known
		since    time.Time  // no leader is known since then
		tenure   *tenure    // of the leader elsewhere that is in use

		sent      []*sentBatch // forwarded batches, oldest first
		answering bool
		lanes     map[int32]uint64 // the last lane to each node

		known bool // what the leader said is known
		at    standing

		subs     map[int]*routeSub
		nextSub  int
		watcher  *remotePeer   // where the route is watched
		changed  chan struct{} // closed and replaced when the leader changes
		resolved time.Time     // when it was last asked who leads
	}
}

// tenure is the time in which one other node is taken for the leader. What waits for that node ends with it.
type tenure struct {
	leader wireLeader
	ctx    context.Context
	cancel context.CancelCauseFunc
	lane   *sendLane
}

// errTenure ends what waits for a node when another one leads.
var errTenure = errors.New("replication: another node leads the partition now")

// routeSub is a channel of Notify.
type routeSub struct {
	ch     chan<- struct{}
	local  bool       // it is served by this node's replica where there is one
	part   *Partition // that tells it, too
	cancel func()
}

func newRoute(r *Router, key wirePartition, topic string, a PartitionAssignment) *Route {
	route := &Route{router: r, key: key, topic: topic}
	route.shard.Store(a.Shard)
	route.mu.subs = map[int]*routeSub{}
	route.mu.changed = make(chan struct{})
	route.mu.since = time.Now()
	return route
}

// only is the replica that a node without a network has; nil on other nodes.
func (r *Route) only() *Partition {
	if !r.router.alone {
		return nil
	}
	return r.here.Load()
}

func (r *Route) name() string { return fmt.Sprintf("%s-%d", r.topic, r.key.number) }

// retarget looks who leads now.
func (r *Route) retarget() {
	id, a, err := r.router.dir.assignment(r.topic, r.key.number)
	if err == nil && id != r.key.topic {
		err = fmt.Errorf("%w: topic %q was deleted", ErrUnknownTopic, r.topic)
	}
	if err != nil {
		if errors.Is(err, ErrUnknownTopic) {
			r.leave(err)
		}
		return
	}
	r.shard.Store(a.Shard)
	local := r.router.dir.replica(r.topic, r.key.number)
	if r.router.alone && local != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.mu.replicas = a.Replicas
		r.setLocalLocked(local)
		r.here.Store(local)
		r.signalLocked()
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.gone != nil {
		return
	}
	leader := r.router.leaderOf(a.Shard, local)
	here := (*Partition)(nil)
	if local != nil {
		if epoch := local.Epoch(); epoch > 0 && epoch >= leader.epoch { // or it was deposed and has not heard of it
			here, leader = local, wireLeader{r.router.self, epoch, local.spec.Replica}
		} else if leader.node == r.router.self {
			leader = wireLeader{}
		}
	}
	r.mu.replicas = a.Replicas
	r.setLocalLocked(local)
	r.setLeaderLocked(here, leader)
}

// awaitLocal looks for the replica of a node without a network, which is not there yet while its topic is being made. Nobody else would tell. Until it is
// there all who ask share the route, later ones get one of their own.
func (r *Route) awaitLocal() {
	defer r.router.drop(r)
	for wait := localLookMin; r.here.Load() == nil && pause(r.router.ctx, wait); wait = min(2*wait, localLookMax) {
		if id, _, err := r.router.dir.assignment(r.topic, r.key.number); errors.Is(err, ErrUnknownTopic) || err == nil && id != r.key.topic {
			return
		}
		r.retarget()
	}
}

// setLocalLocked takes over this node's replica, which may be another one than before.
func (r *Route) setLocalLocked(local *Partition) {
	if r.mu.local == local {
		return
	}
	r.mu.local = local
	for _, s := range r.mu.subs {
		r.bindLocked(s)
	}
}

// bindLocked makes this node's replica tell a subscriber as well.
func (r *Route) bindLocked(s *routeSub) {
	if s.part == r.mu.local {
		return
	}
	if s.cancel != nil {
		s.cancel()
		s.cancel = nil
	}
	if s.part = r.mu.local; s.part != nil {
		s.cancel = s.part.Notify(s.ch)
	}
}

// setLeaderLocked takes over who leads.
func (r *Route) setLeaderLocked(here *Partition, leader wireLeader) {
	before := r.here.Swap(here)
	if before != nil && here == nil {
		// Who looks now must not find the partition empty, or where it stood long ago. It may follow already, and know of more than it led to.
		at := before.standingAt(r.mu.leader.epoch)
		if id, term, ok := r.router.host.guard.leader(before.spec.Shard); ok && id != 0 && term <= maxEpoch {
			at.epoch = max(at.epoch, int32(term))
		}
		r.learnLocked(at)
	}
	same := before == here && r.mu.leader == leader
	if r.mu.leader.node != 0 && leader.node == 0 {
		r.mu.since = time.Now()
	}
	r.mu.leader = leader
	if t := r.mu.tenure; t != nil && t.leader.node != leader.node && leader.node != 0 {
		t.cancel(errTenure)
		r.mu.tenure = nil
	}
	r.watchLocked()
	if same {
		return
	}
	close(r.mu.changed)
	r.mu.changed = make(chan struct{})
	r.signalLocked()
}

func (r *Route) signalLocked() {
	for _, s := range r.mu.subs {
		select {
		case s.ch <- struct{}{}:
		default:
		}
	}
}

// leave ends the route: its topic is gone.
func (r *Route) leave(err error) {
	r.mu.Lock()
	if r.mu.gone == nil && !r.router.alone {
		r.mu.gone = err
		r.setLocalLocked(nil)
		if t := r.mu.tenure; t != nil {
			t.cancel(err)
			r.mu.tenure = nil
		}
		r.setLeaderLocked(nil, wireLeader{})
	}
	r.mu.Unlock()
	r.router.drop(r)
}

// shut ends what waits when the router closes.
func (r *Route) shut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.router.alone {
		return
	}
	close(r.mu.changed)
	r.mu.changed = make(chan struct{})
	r.signalLocked()
}

// watchLocked has the leader's node watched while somebody elsewhere waits for news of it.
func (r *Route) watchLocked() {
	var want *remotePeer
	if r.here.Load() == nil && r.mu.gone == nil && r.mu.leader.node > 0 && r.wantsNewsLocked() {
		want = r.router.peer(r.mu.leader.node)
	}
	if want == r.mu.watcher {
		return
	}
	if r.mu.watcher != nil {
		r.mu.watcher.unwatch(r)
	}
	if r.mu.watcher = want; want != nil {
		want.watch(r)
	}
}

func (r *Route) wantsNewsLocked() bool {
	for _, s := range r.mu.subs {
		if !s.local || !canRead(r.mu.local) {
			return true
		}
	}
	return false
}

// tenureLocked is the present leader elsewhere; nil when none is known.
func (r *Route) tenureLocked() *tenure {
	if r.mu.leader.node <= 0 || r.here.Load() != nil || r.mu.gone != nil {
		return nil
	}
	if t := r.mu.tenure; t != nil && t.leader.node == r.mu.leader.node {
		t.leader = r.mu.leader
		return t
	}
	t := &tenure{leader: r.mu.leader}
	t.ctx, t.cancel = context.WithCancelCause(r.router.ctx)
	r.mu.tenure = t
	return t
}

// refused takes what a node says that was taken for the leader and is not: who leads, if it knows.
func (r *Route) refused(by wireLeader, hint wireLeader) {
	r.router.table.deny(r.shard.Load(), by.node, by.epoch)
	if hint.node != by.node || hint.epoch > by.epoch {
		r.router.table.hint(r.key, r.shard.Load(), hint)
	}
	r.retarget()
}

// learn takes where the partition stands from whoever leads it.
func (r *Route) learn(at standing) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.learnLocked(at)
}

func (r *Route) learnLocked(at standing) {
	old := r.mu.at
	if r.mu.known {
		newer, older := at, old
		if at.epoch < old.epoch {
			newer, older = old, at
		}
		if newer.epoch == older.epoch { // answers may overtake each other
			newer.start, newer.end = max(newer.start, older.start), max(newer.end, older.end)
		}
		if newer.end >= older.hw { // a new leader may be slower to apply what it has
			newer.hw = max(newer.hw, older.hw)
		}
		at = newer
	}
	news := !r.mu.known || old.moved(&at)
	r.mu.known, r.mu.at = true, at
	if news {
		r.signalLocked()
	}
}

// committed notes that all below offset is committed: whoever wrote or read it may look for it.
func (r *Route) committed(offset int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.known && offset > r.mu.at.hw {
		r.mu.at.hw, r.mu.at.end = offset, max(r.mu.at.end, offset)
		r.signalLocked()
	}
}

func (r *Route) standing() (standing, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.at, r.mu.known
}

// lacksLeader says whether somebody waits for a partition that nobody is known to lead.
func (r *Route) lacksLeader() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.leader.node == 0 && r.mu.gone == nil && len(r.mu.subs) > 0 && !r.router.alone
}

// resolve asks the nodes that have replicas who leads, on a goroutine of its own and not too often.
func (r *Route) resolve() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.router.alone || r.mu.gone != nil || time.Since(r.mu.resolved) < resolveEvery {
		return
	}
	r.mu.resolved = time.Now()
	replicas := slices.Clone(r.mu.replicas)
	r.router.spawn(func() {
		for _, a := range replicas {
			if a.Node != r.router.self && r.router.host.reachable(a.Node) && r.askWhoLeads(a.Node) {
				return
			}
		}
	})
}

func (r *Route) askWhoLeads(node int32) (found bool) {
	ctx, cancel := context.WithTimeout(r.router.ctx, resolveTimeout)
	defer cancel()
	q := offsetsRequest{wirePartition: r.key}
	b, err := r.router.ask(ctx, node, append([]byte{byte(requestOffsets)}, q.encode()...))
	if err != nil {
		return false
	}
	a, err := decodeOffsetsAnswer(b)
	if err != nil || a.leader.node == 0 {
		return false
	}
	r.router.table.hint(r.key, r.shard.Load(), a.leader)
	r.retarget()
	return true
}

// Writable waits until some node is known to lead the partition. It returns at once with the reason when none ever will.
func (r *Route) Writable(ctx context.Context) error {
	timer := time.NewTimer(resolveEvery)
	defer timer.Stop()
	for {
		if p := r.only(); p != nil {
			return p.Writable(ctx)
		}
		r.retarget()
		if r.only() != nil {
			continue
		}
		r.mu.Lock()
		gone, leader, changed := r.mu.gone, r.mu.leader, r.mu.changed
		r.mu.Unlock()
		switch {
		case gone != nil:
			return gone
		case r.router.ctx.Err() != nil:
			return r.router.closedError()
		case leader.node > 0:
			return nil
		}
		r.resolve()
		select {
		case <-changed:
		case <-timer.C:
			timer.Reset(resolveEvery)
		case <-ctx.Done():
			return fmt.Errorf("%w: nobody is known to lead %s: %w", ErrNotLeader, r.name(), ctx.Err())
		}
	}
}

// State is what the partition is doing as seen from here: StateLeader and StateFollower say that it takes records, on this node or on another one.
// The other states are those of this node's replica while nobody is known to lead.
func (r *Route) State() (PartitionState, error) {
	if p := r.only(); p != nil {
		return p.State()
	}
	r.mu.Lock()
	gone, leader, local := r.mu.gone, r.mu.leader, r.mu.local
	r.mu.Unlock()
	switch {
	case gone != nil:
		return StateClosed, gone
	case r.router.ctx.Err() != nil:
		return StateClosed, nil
	case r.here.Load() != nil:
		return StateLeader, nil
	case leader.node > 0:
		return StateFollower, nil
	}
	if local != nil {
		if s, cause := local.State(); s == StateFailed || s == StateQuarantined {
			return s, cause
		}
	}
	return StateStarting, nil
}

// Notify makes the route send on ch, without ever blocking, whenever the high watermark or the leader changes. Give ch a buffer of one.
func (r *Route) Notify(ch chan<- struct{}) (cancel func()) { return r.notify(ch, false) }

func (r *Route) notify(ch chan<- struct{}, local bool) (cancel func()) {
	if p := r.only(); p != nil {
		return p.Notify(ch)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	id := r.mu.nextSub
	r.mu.nextSub++
	s := &routeSub{ch: ch, local: local}
	r.mu.subs[id] = s
	r.bindLocked(s)
	r.watchLocked()
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if s.cancel != nil {
			s.cancel()
		}
		delete(r.mu.subs, id)
		r.watchLocked()
	}
}
