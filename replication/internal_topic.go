package replication

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// The internal topics besides the metadata. They are made on first use.
const (
	OffsetsTopic      = "__consumer_offsets"
	TransactionsTopic = "__transaction_state"
)

const (
	topicNameMax = 249 // bytes; Kafka's

	// ReplicasMax bounds the replicas of one partition.
	ReplicasMax = 64
)

// checkTopicName refuses names that Kafka's clients could not use, and those of internal topics unless the topic is one.
func checkTopicName(name string, internal bool) error {
	switch {
	case name == "" || len(name) > topicNameMax:
		return fmt.Errorf("%w: a name of %d characters: 1 to %d are possible", ErrInvalidTopic, len(name), topicNameMax)
	case name == "." || name == "..":
		return fmt.Errorf("%w: the name %q cannot be", ErrInvalidTopic, name)
	case name == MetadataTopic, !internal && (name == OffsetsTopic || name == TransactionsTopic):
		return fmt.Errorf("%w: %q is internal", ErrInvalidTopic, name)
	}
	for i := range len(name) {
		c := name[i]
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		if !letter && !strings.ContainsRune("0123456789._-", rune(c)) {
			return fmt.Errorf("%w: the name has %q at byte %d, possible are a-z A-Z 0-9 . _ -", ErrInvalidTopic, c, i)
		}
	}
	return nil
}

// internalConfig is that of internal topics: nothing of them is deleted by age or size, and a batch may hold a large group.
func internalConfig() map[string]string {
	return map[string]string{"retention.ms": "-1", "retention.bytes": "-1", "segment.bytes": "16777216", "max.message.bytes": "8388608"}
}

type internalRequest struct {
	Name       string `json:"name"`
	Partitions int    `json:"partitions"`
}

// EnsureInternal returns an internal topic and makes it when there is none yet, with as many replicas as there are active nodes, three at most. Any number
// of nodes may call it at once; the number of partitions counts for the first. A topic that was there already may lack leaders.
func (c *Controller) EnsureInternal(ctx context.Context, name string, partitions int) (TopicState, error) {
	if t, ok := c.Topic(name); ok && t.Internal && name != MetadataTopic {
		return t, nil
	}
	spec := internalSpec(internalRequest{name, partitions})
	if err := spec.check(); err != nil {
		return TopicState{}, err
	}
	t, err := askAgain(ctx, c, "ensure-internal", internalRequest{name, partitions}, (*Controller).ensureInternal)
	if err != nil {
		return TopicState{}, err
	}
	return t, c.awaitTopic(ctx, &t, 0)
}

func internalSpec(q internalRequest) TopicSpec {
	return TopicSpec{Name: q.Name, Partitions: q.Partitions, Internal: true, Config: internalConfig()}
}

func (c *Controller) ensureInternal(ctx context.Context, q internalRequest) (t TopicState, err error) {
	made := false
	err = c.decide(ctx, func(ctx context.Context) error {
		if old := c.topic(q.Name); old != nil && old.Internal {
			t = *old
			return nil
		}
		made = true
		t, err = c.newTopic(ctx, internalSpec(q))
		return err
	})
	if err == nil && made {
		c.kickOff(ctx, t.Partitions)
	}
	return t, err
}

// raise gives partitions that have fewer replicas than they shall have those that are missing, on nodes that joined, came back or were activated since.
func (c *Controller) raise(ctx context.Context) {
	if c.forming() || len(c.raised(c.nodeViews())) == 0 {
		return
	}
	err := c.decide(ctx, func(ctx context.Context) error {
		records := c.raised(c.nodeViews())
		if len(records) == 0 {
			return nil
		}
		return c.write(ctx, records...)
	})
	if err != nil && ctx.Err() == nil {
		c.host.logger.Info("some topics do not have all their replicas yet", "err", err)
	}
}

// raised are the records of the topics that shall have more replicas. Partitions on their way elsewhere get there first.
func (c *Controller) raised(nodes []nodeView) (out []metadataRecord) {
	most := 0
	for _, n := range nodes {
		if n.takes() {
			most++
		}
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	var load placementLoad
	for _, t := range c.mu.topicsByName() {
		if t.Name == MetadataTopic || !t.lacks(most) {
			continue
		}
		if load.Replicas == nil {
			load = newPlacementLoad(c.mu.assignments()...)
		}
		if more := t.raise(nodes, load, most); more != t {
			out = append(out, topicRecord(more, false))
		}
	}
	return out
}

// wanted is how many replicas a partition shall have where no more than most are possible: those of internal topics have the default number of them, others
// what they had before a node was removed.
func (t *TopicState) wanted(a PartitionAssignment, most int) int {
	if t.Internal {
		return min(most, defaultReplicas)
	}
	return min(most, a.Wanted)
}

func (t *TopicState) lacks(most int) bool {
	return slices.ContainsFunc(t.Partitions, func(a PartitionAssignment) bool { return len(a.Replicas) < t.wanted(a, most) && !a.unsettled() })
}

// raise returns the topic with targets for those partitions that have fewer replicas than wanted, led in turns; the topic itself when there are none.
func (t *TopicState) raise(nodes []nodeView, load placementLoad, most int) *TopicState {
	var raised []PartitionAssignment
	var targets [][]int32
	for _, a := range t.Partitions {
		want := t.wanted(a, most)
		if len(a.Replicas) >= want || a.unsettled() {
			continue
		}
		target, err := retarget(a, nodes, load, want)
		if err != nil || target == nil {
			continue
		}
		if want >= a.Wanted {
			a.Wanted = 0
		}
		load.add(placedOn(a), -1)
		load.add(target, 1)
		raised, targets = append(raised, a), append(targets, slices.Clone(target))
	}
	spreadLeaders(targets, load)
	for i, a := range raised {
		a.Target = targets[i]
		t = t.with(a)
	}
	return t
}
