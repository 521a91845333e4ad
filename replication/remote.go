package replication

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/billetlog/billet/transport"
)

// The times and bounds of reaching partitions that other nodes lead.
const (
	announceDelay    = 2 * time.Millisecond // changes of leadership are told together
	announceEvery    = 30 * time.Second     // all that this node leads is told again
	announceTimeout  = 2 * time.Second
	announceRetryMin = 50 * time.Millisecond
	announceRetryMax = 2 * time.Second
	sweepEvery       = time.Second            // routes look again at what they follow
	offlineAfter     = 3 * time.Second        // without a known leader a partition is offline
	forwardTimeout   = 30 * time.Second       // for the answer to a forwarded batch
	askTimeout       = 5 * time.Second        // for one answer to a question about offsets
	resolveTimeout   = time.Second            // for one answer to who leads
	localLookMin     = 5 * time.Millisecond   // for a replica that starts
	localLookMax     = 200 * time.Millisecond // for one that does not
	resolveEvery     = 100 * time.Millisecond // one route asks around at most that often
	retryPause       = 10 * time.Millisecond  // before a question goes out again
	waitMax          = 10 * time.Second       // a long poll is answered after that, news or not
	waitSlack        = 5 * time.Second        // for its answer to arrive
	peerBytesMax     = 6 << 20                // forwarded batches on their way to one node; a larger one goes alone
	peerBatchesMax   = 512
	peerPollsMax     = 128      // long polls of cursors at one node
	readAheadMax     = 64 << 20 // bytes that all cursors have read ahead
	fetchBytesMax    = 4 << 20  // of one fetch, but for a batch that is larger
	fetchBytes       = 512 << 10
	fetchBytesFew    = 64 << 10 // when readAheadMax is reached
	routePeersMax    = 1024
	checksMax        = 8 // batches of other nodes that are checked at a time
)

// directory is what routing needs to know of topics. It is this node's newest view, and may be behind that of others.
type directory interface {
	// assignment says where a partition's replicas are. ErrUnknownTopic when there is none of the name and number.
	assignment(topic string, n int32) (id [16]byte, a PartitionAssignment, err error)
	// replica returns this node's replica of a partition, or nil.
	replica(topic string, n int32) *Partition
	// name returns a topic's name.
	name(id [16]byte) (topic string, ok bool)
	// nodes lists the cluster's nodes, as far as known.
	nodes() []int32
}

// Router makes every partition of the cluster usable on this node: what another node leads is asked of that node.
type Router struct {
	host  *Host
	dir   directory
	self  int32
	alone bool // a node without a network: every route is its replica
	table *leaders
	lanes servedLanes

	ctx    context.Context // ends with Close and with the host
	cancel context.CancelFunc
	tasks  sync.WaitGroup
	wake   chan struct{}
	ahead  atomic.Int64  // bytes read ahead by cursors
	checks chan struct{} // tokens of batches of other nodes that are being checked

	mu struct {
		sync.Mutex
		closed bool
		serial uint64
		routes map[wirePartition]*Route
		dirty  map[*Partition]struct{} // whose leadership changed
		peers  map[int32]*remotePeer
	}
}

// OpenRouter starts serving and using other nodes' partitions. Close it before the host.
func OpenRouter(c *Controller) *Router { return newRouter(c.host, c) }

func newRouter(h *Host, dir directory) *Router {
	r := &Router{
		host: h, dir: dir, self: h.cfg.Node.ID, alone: h.cfg.peers == nil, table: newLeaders(), wake: make(chan struct{}, 1),
		checks: make(chan struct{}, checksMax),
	}
	r.lanes.mu.all = map[laneKey]*servedLane{}
	r.ctx, r.cancel = context.WithCancel(h.ctx)
	r.mu.routes = map[wirePartition]*Route{}
	r.mu.dirty = map[*Partition]struct{}{}
	r.mu.peers = map[int32]*remotePeer{}
	if r.alone {
		return r
	}
	h.leadership.add(r.led)
	h.peerStates.add(r.peerChanged)
	h.serve(requestLeaders, r.serveLeaders)
	h.serve(requestAppend, r.serveAppend)
	h.serve(requestFetch, r.serveFetch)
	h.serve(requestOffsets, r.serveOffsets)
	h.serve(requestWatch, r.serveWatch)
	for _, p := range h.Partitions() {
		r.led(p)
	}
	r.spawn(r.run)
	return r
}

// Close ends all calls to other nodes and waits for them. Appends under way are answered.
func (r *Router) Close() {
	r.mu.Lock()
	r.mu.closed = true
	routes := make([]*Route, 0, len(r.mu.routes))
	for _, route := range r.mu.routes {
		routes = append(routes, route)
	}
	r.mu.Unlock()
	if !r.alone {
		for _, kind := range []requestKind{requestLeaders, requestAppend, requestFetch, requestOffsets, requestWatch} {
			r.host.serve(kind, nil)
		}
	}
	r.cancel()
	for _, route := range routes {
		route.shut()
	}
	r.tasks.Wait()
}

// spawn runs f on a goroutine that Close waits for; false when the router is closed.
func (r *Router) spawn(f func()) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.closed || r.ctx.Err() != nil {
		return false
	}
	r.tasks.Go(f)
	return true
}

// closedError is nil while the router is open.
func (r *Router) closedError() error {
	if r.ctx.Err() != nil {
		return fmt.Errorf("%w: host", ErrClosed)
	}
	return nil
}

// led notes that a local replica's leadership changed.
func (r *Router) led(p *Partition) {
	r.mu.Lock()
	r.mu.dirty[p] = struct{}{}
	r.mu.Unlock()
	r.nudge()
}

func (r *Router) nudge() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// run follows local leaderships, and looks after the routes now and then.
func (r *Router) run() {
	sweep, full := time.NewTicker(sweepEvery), time.NewTicker(announceEvery)
	defer sweep.Stop()
	defer full.Stop()
	r.addNodes()
	for {
		select {
		case <-r.ctx.Done():
			return
		case <-sweep.C:
			r.addNodes()
			r.sweep()
		case <-full.C:
			r.forgetGone()
			r.announceAll()
		case <-r.wake:
			if r.takeLed() {
				pause(r.ctx, announceDelay)
				r.takeLed()
				r.announceAhead()
			}
		}
	}
}

// sweep makes the routes look again at what they follow: topics and replicas that came and went.
func (r *Router) sweep() {
	r.mu.Lock()
	routes := make([]*Route, 0, len(r.mu.routes))
	for _, route := range r.mu.routes {
		routes = append(routes, route)
	}
	r.mu.Unlock()
	for _, route := range routes {
		route.retarget()
		if route.lacksLeader() {
			route.resolve()
		}
	}
}

// Route returns the way to a partition. Errors: ErrUnknownTopic, ErrClosed.
func (r *Router) Route(topic string, n int32) (*Route, error) {
	id, a, err := r.dir.assignment(topic, n)
	if err != nil {
		return nil, err
	}
	key := wirePartition{id, n}
	if r.alone {
		route := newRoute(r, key, topic, a)
		if route.retarget(); route.here.Load() != nil {
			return route, nil
		}
	}
	r.mu.Lock()
	route := r.mu.routes[key]
	if route != nil || r.mu.closed {
		err := r.closedError()
		r.mu.Unlock()
		return route, err
	}
	route = newRoute(r, key, topic, a)
	r.mu.routes[key] = route
	r.mu.Unlock()
	if route.retarget(); r.alone {
		r.spawn(route.awaitLocal)
	}
	return route, nil
}

// routeOf returns the route of a partition if somebody asked for it.
func (r *Router) routeOf(key wirePartition) *Route {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.routes[key]
}

// drop takes the route of a deleted topic off the list.
func (r *Router) drop(route *Route) {
	r.mu.Lock()
	if r.mu.routes[route.key] == route {
		delete(r.mu.routes, route.key)
	}
	r.mu.Unlock()
	r.table.forget(route.shard.Load())
}

// replicaOf finds this node's replica that a request is for.
func (r *Router) replicaOf(key wirePartition) (*Partition, error) {
	topic, ok := r.dir.name(key.topic)
	if !ok {
		return nil, fmt.Errorf("%w: no topic has the id %x here", ErrUnknownTopic, key.topic)
	}
	p := r.dir.replica(topic, key.number)
	if p == nil || p.spec.TopicID != key.topic {
		return nil, fmt.Errorf("%w: node %d has no replica of %s-%d", ErrNotLeader, r.self, topic, key.number)
	}
	return p, nil
}

// leaderFor is what to tell those who ask for a partition that this node does not lead.
func (r *Router) leaderFor(key wirePartition) wireLeader {
	topic, ok := r.dir.name(key.topic)
	if !ok {
		return wireLeader{}
	}
	_, a, err := r.dir.assignment(topic, key.number)
	if err != nil {
		return wireLeader{}
	}
	return r.leaderOf(a.Shard, r.dir.replica(topic, key.number))
}

// leaderOf is who leads a shard as far as this node knows: by what was announced, or by what its own replica knows when that is newer.
func (r *Router) leaderOf(shard uint64, local *Partition) wireLeader {
	var at wireLeader
	known, ok := r.table.lookup(shard)
	if ok {
		at = wireLeader{known.node(), known.epoch, known.replica}
	}
	if local == nil || local.spec.Shard != shard {
		return at
	}
	replica, term, ok := r.host.guard.leader(shard)
	if ok && replica != 0 && term <= maxEpoch && (int32(term) > known.epoch || at.node == 0 && int32(term) == known.epoch && known.replica == 0) {
		return wireLeader{nodeOf(replica), int32(term), replica}
	}
	return at
}

// ask sends one request; its errors are transport's.
func (r *Router) ask(ctx context.Context, node int32, request []byte) ([]byte, error) {
	if r.host.cfg.peers == nil {
		return nil, fmt.Errorf("%w: node %d: this node is alone", ErrUnreachable, node)
	}
	return r.host.cfg.peers.node.Call(ctx, node, request)
}

// didNotRun says whether a call failed before it did anything.
func didNotRun(err error) bool {
	for _, target := range []error{
		transport.ErrUnknownPeer, transport.ErrUnreachable, transport.ErrQueueFull, transport.ErrBusy, transport.ErrNotServed, ErrUnreachable,
	} {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}
