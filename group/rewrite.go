package group

import "time"

// Names lists the groups.
func (c *Core) Names() []string { return sortedKeys(c.groups) }

// Live is about how many records of the log count: the others say what is not so any
// more.
func (c *Core) Live() (records int) {
	for _, g := range c.groups {
		for _, partitions := range g.offsets {
			records += len(partitions)
		}
		if g.consumer != nil {
			records += 2 + 3*len(g.consumer.members)
		} else {
			records++
		}
	}
	return records
}

// Rewrite writes again all that the log has to hold of some groups. When that was done
// for all that Names lists, and is committed, what the log had when it began is needed no
// more: it may be taken away.
//
// Of a classic group in a rebalance only the generation is kept, since its members will
// have something else in a moment. If the coordinator moves before, they join again.
func (c *Core) Rewrite(now time.Time, names []string) Effects {
	c.begin(now)
	for _, id := range names {
		if g := c.groups[id]; g != nil && !c.stopped {
			c.rewrite(g)
		}
	}
	return c.end()
}

func (c *Core) rewrite(g *group) {
	for _, topic := range sortedKeys(g.offsets) {
		for _, p := range sortedKeys(g.offsets[topic]) {
			c.write(g, commitRecord(g.id, topic, p, g.offsets[topic][p]))
		}
	}
	switch k := g.classic; {
	case k == nil:
		c.rewriteConsumer(g)
	case !k.persisted:
	case k.state == stateStable || k.state == stateEmpty:
		c.write(g, k.record(g.id))
	default:
		bare := newClassicGroup(nil, c.now)
		bare.protocolType, bare.generation = k.protocolType, k.generation
		c.write(g, bare.record(g.id))
	}
}

func (c *Core) rewriteConsumer(g *group) {
	k := g.consumer
	for _, id := range sortedKeys(k.members) {
		c.write(g, memberRecord(g.id, k.members[id]))
	}
	if len(k.members) == 0 { // the time of this record tells since when it is empty
		now := c.now
		defer func() { c.now = now }()
		c.now, c.open = k.emptySince, nil
	}
	c.write(g, groupEpochRecord(g.id, k.epoch, k.hash), targetEpochRecord(g.id, k.assignmentEpoch))
	c.open = nil
	for _, id := range sortedKeys(k.target) {
		c.write(g, targetRecord(g.id, id, k.target[id]))
	}
	for _, id := range sortedKeys(k.members) {
		c.write(g, currentRecord(g.id, k.members[id]))
	}
}
