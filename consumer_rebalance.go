package billet

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/billetlog/billet/group"
)

// isClosing says that Close was called.
func (m *membership) isClosing() bool {
	select {
	case <-m.closing:
		return true
	default:
		return false
	}
}

// begin is told that Poll was called.
func (m *membership) begin() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.polling = true
	if m.mu.away {
		m.mu.away = false
		signal(m.wake)
	}
}

// pause is told that Poll ends.
func (m *membership) pause() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.polling, m.mu.polled = false, time.Now()
}

// rebalance gives up and takes up partitions as the coordinator wants it. Poll calls it
// when all records that it returned were dealt with.
func (m *membership) rebalance() error {
	m.mu.Lock()
	lost, err := m.mu.lost, m.mu.err
	if m.mu.err = nil; m.mu.final != nil {
		err = m.mu.final
	}
	var gone, revoked []group.TopicPartition
	for tp := range m.mu.has {
		switch {
		case lost:
			gone = append(gone, tp)
		case !m.mu.member.Target()[tp]:
			revoked = append(revoked, tp)
		}
	}
	m.mu.Unlock()
	if lost {
		m.drop(gone)
	}
	if len(revoked) > 0 {
		m.revoke(revoked)
	}
	m.takeUp()
	return err
}

// drop forgets partitions that are others' already.
func (m *membership) drop(gone []group.TopicPartition) {
	keys := m.forget(gone)
	m.consumer.giveUp(keys)
	m.mu.Lock()
	m.mu.lost = false
	m.mu.Unlock()
	signal(m.wake)
	config := &m.consumer.config
	switch {
	case len(keys) == 0:
	case config.OnLost != nil:
		config.OnLost(partitionsOf(keys))
	case config.OnRevoke != nil:
		config.OnRevoke(partitionsOf(keys))
	}
}

// revoke gives partitions up. Their positions are committed before the coordinator hears
// of it.
func (m *membership) revoke(revoked []group.TopicPartition) {
	m.mu.Lock()
	keys := m.keysLocked(revoked)
	m.mu.Unlock()
	if m.consumer.config.OnRevoke != nil {
		m.consumer.config.OnRevoke(partitionsOf(keys))
	}
	positions := m.consumer.giveUp(keys)
	m.forget(revoked)
	m.mu.Lock()
	if m.consumer.config.CommitInterval > 0 && !m.mu.lost {
		for key, offset := range positions {
			m.mu.released[key] = offset
		}
	}
	m.mu.tell = true
	m.mu.Unlock()
	signal(m.wake)
}

// forget takes partitions off what Poll reads.
func (m *membership) forget(gone []group.TopicPartition) []memberKey {
	m.mu.Lock()
	defer m.mu.Unlock()
	keys := m.keysLocked(gone)
	for _, tp := range gone {
		delete(m.mu.has, tp)
	}
	return keys
}

// keysLocked are partitions that Poll reads with the names of their topics.
func (m *membership) keysLocked(partitions []group.TopicPartition) []memberKey {
	keys := make([]memberKey, 0, len(partitions))
	for _, tp := range partitions {
		keys = append(keys, memberKey{m.mu.has[tp], tp.Topic})
	}
	return keys
}

// takeUp begins to read what has come.
func (m *membership) takeUp() {
	m.mu.Lock()
	coming := m.mu.coming
	if len(coming) == 0 || m.mu.lost {
		m.mu.Unlock()
		return
	}
	m.mu.coming = map[group.TopicPartition]placed{}
	m.mu.Unlock()
	var keys []memberKey
	for tp, p := range coming {
		if !m.consumer.takeUp(p) {
			continue // its topic was deleted just now
		}
		m.mu.Lock()
		m.mu.has[tp] = p.assignmentKey
		delete(m.mu.released, p.memberKey)
		m.mu.kept[p.memberKey] = keptPosition{p.offset, m.askLocked(nil).turn}
		m.mu.Unlock()
		keys = append(keys, p.memberKey)
	}
	m.mu.Lock()
	m.mu.tell = true
	m.mu.Unlock()
	signal(m.wake)
	if m.consumer.config.OnAssign != nil && len(keys) > 0 {
		m.consumer.config.OnAssign(partitionsOf(keys))
	}
}

func partitionsOf(keys []memberKey) []TopicPartition {
	out := make([]TopicPartition, 0, len(keys))
	for _, k := range keys {
		out = append(out, TopicPartition{k.topic, k.partition})
	}
	slices.SortFunc(out, func(a, b TopicPartition) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return out
}

// giveUp stops reading partitions and returns the positions.
func (c *Consumer) giveUp(keys []memberKey) map[memberKey]int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	positions := map[memberKey]int64{}
	for _, key := range keys {
		if a := c.mu.byKey[key.assignmentKey]; a != nil && a.member() == key {
			if !a.unplaced {
				positions[key] = a.position
			}
			c.dropLocked(a)
		}
	}
	return positions
}

// takeUp begins to read a partition.
func (c *Consumer) takeUp(p placed) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	state, ok := c.catalog.Topic(p.topic)
	if !ok || topicIDOf(state.ID) != p.id || c.mu.closed || c.mu.byKey[p.assignmentKey] != nil {
		return false
	}
	if err := c.addLocked(&state, p.partition, c.config.StartAt); err != nil {
		return false
	}
	if p.offset >= 0 {
		a := c.mu.byKey[p.assignmentKey]
		a.position, a.unplaced = p.offset, false
	}
	signal(c.wake)
	return true
}

// Subscribe changes the topics that a consumer in a group reads: those of the given
// names. Errors: ErrNotMember when it is in no group, ErrClosed.
func (c *Consumer) Subscribe(topics ...string) error { return c.subscribe(topics, "") }

// SubscribePattern changes the topics that a consumer in a group reads: those whose
// whole names match an expression in RE2 syntax. Errors: as Subscribe; one that cannot
// be is what Poll returns.
func (c *Consumer) SubscribePattern(pattern string) error { return c.subscribe(nil, pattern) }

func (c *Consumer) subscribe(topics []string, pattern string) error {
	if c.group == nil {
		return fmt.Errorf("billet: subscribe: %w: give ConsumerConfig.Group, or use Assign", ErrNotMember)
	}
	m := c.group
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.closed {
		return fmt.Errorf("billet: subscribe: %w: make a new Consumer", ErrClosed)
	}
	m.mu.final = nil // it may have been about what was wanted
	m.mu.member.Subscribe(slices.Clone(topics), pattern)
	signal(m.wake)
	return nil
}

// close commits, gives everything up and leaves the group.
func (m *membership) close() {
	m.mu.Lock()
	if m.mu.closed {
		m.mu.Unlock()
		<-m.done
		return
	}
	m.mu.closed = true
	close(m.closing)
	m.mu.Unlock()
	c := m.consumer
	c.poll.Lock() // a Poll under way ends
	defer c.poll.Unlock()
	m.end()
	<-m.done
	ctx, cancel := context.WithTimeout(context.Background(), groupLeaveBudget)
	defer cancel()
	m.mu.Lock()
	var all []group.TopicPartition
	for tp := range m.mu.has {
		all = append(all, tp)
	}
	lost, final := m.mu.lost, m.mu.final
	m.mu.Unlock()
	keys := m.forget(all)
	if len(keys) > 0 && !lost && c.config.OnRevoke != nil {
		c.config.OnRevoke(partitionsOf(keys))
	}
	if !lost && c.config.CommitInterval > 0 {
		m.commitLast(ctx, m.positions(false))
	}
	m.committing <- struct{}{} // none is under way any more
	defer m.endTurn()
	m.mu.Lock()
	joined := m.mu.member.Epoch() > 0 && final == nil
	q := m.mu.member.Leave(true)
	m.mu.Unlock()
	m.failAsync(fmt.Errorf("billet: commit of group %q: %w: commit before Close", c.config.Group, ErrClosed))
	if joined {
		_, _ = m.groups.Ask(ctx, c.config.ClientID, q) // else the session ends by itself
	}
}
