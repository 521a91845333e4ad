package replication

import (
	"context"
	"time"
)

// watch has the node tell when the route's partition moves. One long poll at a time is under way to a node, for all routes that are watched there.
func (p *remotePeer) watch(r *Route) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.watched[r] = struct{}{}
	p.kickLocked()
	if !p.mu.watching {
		p.mu.watching = p.router.spawn(p.observe)
	}
}

func (p *remotePeer) unwatch(r *Route) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.mu.watched, r)
	if len(p.mu.watched) == 0 {
		p.kickLocked()
	}
}

// kickLocked ends the long poll under way, so that another one asks for what is watched now.
func (p *remotePeer) kickLocked() {
	p.mu.kicked = true
	if p.mu.stop != nil {
		p.mu.stop()
	}
}

// nextWatch lists what is watched; none ends the watch.
func (p *remotePeer) nextWatch() (ctx context.Context, cancel context.CancelFunc, routes []*Route) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.kicked, p.mu.stop = false, nil
	if len(p.mu.watched) == 0 {
		p.mu.watching = false
		return nil, nil, nil
	}
	for r := range p.mu.watched { // beyond the bound others have their turn the next time, as the map's order is another one each time
		if len(routes) == watchMax {
			break
		}
		routes = append(routes, r)
	}
	ctx, cancel = context.WithTimeout(p.router.ctx, waitMax+waitSlack)
	p.mu.stop = cancel
	return ctx, cancel, routes
}

func (p *remotePeer) wasKicked() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.kicked
}

// observe keeps what is known of the watched partitions fresh.
func (p *remotePeer) observe() {
	wait := announceRetryMin
	for p.router.ctx.Err() == nil {
		ctx, cancel, routes := p.nextWatch()
		if len(routes) == 0 {
			return
		}
		failed, refused := p.observeOnce(ctx, routes)
		cancel()
		switch {
		case p.wasKicked():
		case failed:
			for _, r := range routes {
				r.retarget()
			}
			pause(p.router.ctx, wait)
			wait = min(2*wait, announceRetryMax/2)
			continue
		case refused: // another leader may have to be found first
			pause(p.router.ctx, retryPause)
		}
		wait = announceRetryMin
	}
	p.mu.Lock()
	p.mu.watching = false
	p.mu.Unlock()
}

func (p *remotePeer) observeOnce(ctx context.Context, routes []*Route) (failed, refused bool) {
	q := watchRequest{wait: waitMax}
	for _, r := range routes {
		at, known := r.standing()
		if !known {
			at.epoch = -1 // unlike any
		}
		q.entries = append(q.entries, watchEntry{r.key, at})
	}
	if p.watchedRoutes() > watchMax {
		q.wait = time.Millisecond // the others are to have their turn
	}
	b, err := p.router.ask(ctx, p.node, append([]byte{byte(requestWatch)}, q.encode()...))
	if err != nil {
		return true, false
	}
	a, err := decodeWatchAnswer(b, len(routes))
	if err != nil {
		return true, false
	}
	for i := range a.entries {
		n := &a.entries[i]
		r := routes[n.place]
		if n.code == codeNone {
			r.learn(n.standing)
			continue
		}
		refused = true
		r.refused(wireLeader{p.node, r.leaderEpoch(), n.leader.replica}, n.leader)
	}
	return false, refused
}

func (p *remotePeer) watchedRoutes() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.mu.watched)
}

func (r *Route) leaderEpoch() int32 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.leader.epoch
}
