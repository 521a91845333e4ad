package group

// Status is what a core knows of a group. It may be ahead of the log by a moment.
type Status struct {
	Group string
	// Type is "classic" or "consumer", State what Kafka calls it.
	Type, State string
	Members     int
	// Offsets are what it has committed, by topic and partition.
	Offsets []CommittedOffset
}

// CommittedOffset is where a group is in a partition.
type CommittedOffset struct {
	Topic     string
	Partition int32
	Offset    int64
}

// Look tells how many groups and members there are, and of the first groups by name what
// they have: as many as have together no more offsets than offsetsMax, groupsMax at most.
// It changes nothing.
func (c *Core) Look(groupsMax, offsetsMax int) (list []Status, groups, members int) {
	for _, g := range c.groups {
		members += g.memberCount()
	}
	for _, id := range sortedKeys(c.groups) {
		g := c.groups[id]
		s := Status{Group: id, Members: g.memberCount()}
		s.Type, s.State, _ = g.kind()
		for _, topic := range sortedKeys(g.offsets) {
			offsetsMax -= len(g.offsets[topic])
			if offsetsMax < 0 {
				return list, len(c.groups), members
			}
			for _, p := range c.committedIn(g, topic) {
				s.Offsets = append(s.Offsets, CommittedOffset{topic, p, g.offsets[topic][p].offset})
			}
		}
		if len(list) == groupsMax {
			break
		}
		list = append(list, s)
	}
	return list, len(c.groups), members
}

func (g *group) memberCount() int {
	if g.consumer != nil {
		return len(g.consumer.members)
	}
	return len(g.classic.members)
}
