package group

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/internal/kerr"
)

// rebalance starts one, unless it goes on already, and ends it when all have come.
func (c *Core) rebalance(g *group) {
	k := g.classic
	if k.state == statePreparing {
		c.maybeCompleteJoin(g)
		return
	}
	for _, m := range k.sorted() {
		if m.sync != nil {
			c.fail(g, m.sync, kerr.REBALANCE_IN_PROGRESS)
			m.sync = nil
			c.touch(m)
		}
		m.unsynced = false
	}
	c.timers.stop(&k.sync)
	timeout := k.rebalanceTimeout()
	k.initial = k.state == stateEmpty && c.opts.InitialRebalanceDelay > 0
	k.enter(statePreparing, c.now)
	if k.initial {
		delay := c.opts.InitialRebalanceDelay
		k.initialLeft = max(timeout-delay, 0)
		k.added = false
		c.timers.start(&k.join, c.now.Add(delay))
		return
	}
	c.timers.start(&k.join, c.now.Add(timeout))
	c.maybeCompleteJoin(g)
}

// maybeCompleteJoin ends the rebalance when nobody is missing. The first one of a
// group waits its time, since more members may be starting.
func (c *Core) maybeCompleteJoin(g *group) {
	k := g.classic
	if k.state != statePreparing || k.initial && len(k.members) > 0 || len(k.pending) > 0 || k.awaitingJoin() < len(k.members) {
		return
	}
	c.completeJoin(g)
}

// joinDue ends the rebalance without those that did not come, or prolongs the first
// one while members come.
func (c *Core) joinDue(g *group) {
	k := g.classic
	if k.initial && k.added && k.initialLeft > 0 {
		delay := min(c.opts.InitialRebalanceDelay, k.initialLeft)
		k.initialLeft -= delay
		k.added = false
		c.timers.start(&k.join, c.now.Add(delay))
		return
	}
	c.completeJoin(g)
}

// completeJoin begins the next generation. Dynamic members that did not come are
// out; static ones stay until their session ends.
func (c *Core) completeJoin(g *group) {
	k := g.classic
	k.initial = false
	c.timers.stop(&k.join)
	for _, m := range k.sorted() {
		if m.join == nil && m.instance == nil {
			c.forget(k, m)
		}
	}
	if len(k.members) == 0 {
		k.generation = nextGeneration(k.generation)
		k.protocol, k.leader = "", ""
		k.enter(stateEmpty, c.now)
		c.writeClassic(g)
		return
	}
	if !k.elect() {
		// Only static members that are silent are left.
		c.timers.start(&k.join, c.now.Add(k.rebalanceTimeout()))
		return
	}
	k.generation = nextGeneration(k.generation)
	k.protocol = k.choose()
	k.enter(stateCompleting, c.now)
	for _, m := range k.sorted() {
		m.unsynced = true
		if m.join == nil {
			continue
		}
		c.respond(g, m.join, k.present(m, m.join.Body.(*kmsg.JoinGroupRequest)))
		m.join, m.isNew = nil, false
		c.touch(m)
	}
	c.timers.start(&k.sync, c.now.Add(k.rebalanceTimeout()))
}

// nextGeneration counts on; after the largest it starts again, since negative ones
// mean that there is none.
func nextGeneration(g int32) int32 {
	if g == 1<<31-1 {
		return 0
	}
	return g + 1
}

// elect keeps the leader if it came, or takes the eldest that did.
func (k *classicGroup) elect() bool {
	if m := k.members[k.leader]; m != nil && m.join != nil {
		return true
	}
	for _, m := range k.sorted() {
		if m.join != nil {
			k.leader = m.id
			return true
		}
	}
	return false
}

// syncDue puts out members that did not ask for their assignment, static ones too:
// they hold up the others.
func (c *Core) syncDue(g *group) {
	k := g.classic
	gone := false
	for _, m := range k.sorted() {
		if m.unsynced && m.sync == nil {
			c.forget(k, m)
			gone = true
		}
	}
	if gone {
		c.rebalance(g)
	}
}

// forget takes a member out of the group.
func (c *Core) forget(k *classicGroup, m *classicMember) {
	c.timers.stop(&m.session)
	for _, r := range []*Request{m.join, m.sync} {
		if r != nil {
			c.fail(m.session.group, r, kerr.UNKNOWN_MEMBER_ID)
		}
	}
	m.join, m.sync = nil, nil
	delete(k.members, m.id)
	if m.instance != nil && k.static[*m.instance] == m.id {
		delete(k.static, *m.instance)
	}
	if k.leader == m.id {
		k.leader = ""
		if all := k.sorted(); len(all) > 0 {
			k.leader = all[0].id
		}
	}
}

// remove takes a member out, which the others notice.
func (c *Core) remove(g *group, m *classicMember) {
	c.forget(g.classic, m)
	if g.classic.state != stateEmpty {
		c.rebalance(g)
	}
}

// sessionExpired removes a silent member. One whose request waits here is not
// silent, unless it has never been part of a generation.
func (c *Core) sessionExpired(g *group, id string) {
	m := g.classic.members[id]
	if m == nil || !m.isNew && (m.join != nil || m.sync != nil) {
		return
	}
	c.remove(g, m)
}

// pendingExpired forgets an id that nobody came back with.
func (c *Core) pendingExpired(g *group, id string) {
	delete(g.classic.pending, id)
	c.maybeCompleteJoin(g)
	c.dropIfUnused(g)
}

func (c *Core) dropPending(k *classicGroup) {
	for id, t := range k.pending {
		c.timers.stop(t)
		delete(k.pending, id)
	}
}
