package group

import (
	"maps"
	"slices"
	"time"

	"cmp"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// consumerProtocolType is that of groups whose members consume topics.
const consumerProtocolType = "consumer"

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K {
	return slices.Sorted(maps.Keys(m))
}

// expireOffsets removes offsets that nobody has needed for long, and groups that
// have nothing left.
func (c *Core) expireOffsets() {
	for _, id := range sortedKeys(c.groups) {
		g := c.groups[id]
		var records []Record
		for _, topic := range sortedKeys(g.offsets) {
			deadline := g.retained(c.topics, topic, c.opts.OffsetsRetention)
			if deadline == nil {
				continue
			}
			for _, p := range sortedKeys(g.offsets[topic]) {
				if at := deadline(g.offsets[topic][p]); !c.now.Before(at) {
					records = append(records, Record{Key: offsetKey(id, topic, p)})
					g.offsets.remove(topic, p)
				}
			}
		}
		c.write(g, records...)
		if len(g.offsets) == 0 && g.isEmpty() && (g.classic == nil || len(g.classic.pending) == 0) {
			c.write(g, g.tombstones()...)
			c.drop(g)
		}
	}
}

// retained returns until when offsets of a topic stay, or nil for as long as it is
// as it is: while the group rebalances, and while members are subscribed to the topic.
func (g *group) retained(topics *Topics, topic string, retention time.Duration) func(commit) time.Time {
	sinceCommit := func(one commit) time.Time {
		if !one.expires.IsZero() {
			return one.expires
		}
		return one.at.Add(retention)
	}
	since := func(from time.Time) func(commit) time.Time {
		return func(one commit) time.Time {
			if !one.expires.IsZero() {
				return one.expires
			}
			if one.at.After(from) {
				return one.at.Add(retention)
			}
			return from.Add(retention)
		}
	}
	k := g.classic
	switch {
	case k == nil && len(g.consumer.members) == 0:
		return since(g.consumer.emptySince)
	case k == nil && g.consumer.state() != "Stable" || g.subscribesTo(topics, topic):
		return nil
	case k == nil, k.protocolType == "":
		return sinceCommit
	case k.state == stateEmpty:
		return since(k.stateAt)
	case k.state == stateStable && k.protocolType == consumerProtocolType:
		return sinceCommit
	}
	return nil
}

// subscribesTo tells whether a member reads the topic. Of members whose metadata
// says nothing intelligible it must be assumed.
func (g *group) subscribesTo(topics *Topics, topic string) bool {
	if g.consumer != nil {
		return g.consumer.subscribesTo(topics, topic)
	}
	k := g.classic
	if k.state == stateEmpty {
		return false
	}
	for _, m := range k.members {
		for i := range m.protocols {
			if k.protocol != "" && m.protocols[i].name != k.protocol {
				continue
			}
			var metadata kmsg.ConsumerMemberMetadata
			if metadata.ReadFrom(m.protocols[i].metadata) != nil || slices.Contains(metadata.Topics, topic) {
				return true
			}
		}
	}
	return false
}

// TopicsDeleted removes the offsets of topics that exist no more. Where there is another
// topic of the name already its own stay.
func (c *Core) TopicsDeleted(now time.Time, names []string) Effects {
	c.begin(now)
	for _, id := range sortedKeys(c.groups) {
		g := c.groups[id]
		var records []Record
		for _, name := range names {
			for _, p := range sortedKeys(g.offsets[name]) {
				if t := c.topics.byName[name]; t == nil || g.offsets[name][p].topic != t.ID {
					g.offsets.remove(name, p)
					records = append(records, Record{Key: offsetKey(id, name, p)})
				}
			}
		}
		c.write(g, records...)
	}
	return c.end()
}
