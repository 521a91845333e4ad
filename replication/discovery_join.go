package replication

import (
	"math/rand/v2"
	"strings"
	"sync"
	"time"
)

// join keeps this node joined. memberlist joins once, and forgets for good whom it lost for longer than dead: after a longer partition both
// sides would stay apart. So what is known to be a node's address and is not among the alive is joined again and again.
func (d *discovery) join() {
	defer d.wg.Done()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-d.ctx.Done():
			return
		}
		targets := d.missing()
		d.joinAll(targets)
		d.peers.forget(time.Now().Add(-2 * d.cfg.timings.dead))
		wait := d.cfg.timings.rejoin
		if len(targets) > 0 && len(d.peers.alive()) == 1 {
			wait = min(wait, d.cfg.timings.joinRetry)
		}
		// Nodes that were started together do not stay in step.
		timer.Reset(wait*3/4 + time.Duration(rand.Int64N(int64(wait/2)+1)))
	}
}

// missing draws addresses of seeds and registered nodes at which no node that is alive listens. A seed under another name than the node's
// own counts as missing for ever; joining it then costs one exchange of records each time.
func (d *discovery) missing() []string {
	addrs := d.cfg.seeds
	if d.cfg.registered != nil {
		addrs = append(addrs[:len(addrs):len(addrs)], d.cfg.registered()...)
	}
	known := map[string]bool{"": true}
	for _, p := range d.peers.alive() {
		known[p.Addr] = true
	}
	var targets []string
	for _, a := range addrs {
		if !known[a] {
			known[a] = true
			targets = append(targets, a)
		}
	}
	rand.Shuffle(len(targets), func(i, j int) { targets[i], targets[j] = targets[j], targets[i] })
	return targets[:min(len(targets), joinTargetsMax)]
}

// joinAll joins some addresses, a few at a time: one that hangs must not hold up the others.
func (d *discovery) joinAll(targets []string) {
	queue := make(chan string, len(targets))
	for _, a := range targets {
		queue <- a
	}
	close(queue)
	var wg sync.WaitGroup
	for range min(len(targets), joinParallelMax) {
		wg.Go(func() {
			for a := range queue {
				if d.ctx.Err() == nil {
					d.joinOne(a)
				}
			}
		})
	}
	wg.Wait()
}

// joinOne exchanges records with whoever listens at an address.
func (d *discovery) joinOne(addr string) {
	made := d.peers.startJoin(addr)
	defer d.peers.endJoin(made)
	if _, err := d.list.Join([]string{made}); err != nil && d.ctx.Err() == nil {
		d.log.warn("a node was not joined", "a node was not joined; it is tried again", "address", addr, "err", strings.Join(strings.Fields(err.Error()), " "))
	}
}
