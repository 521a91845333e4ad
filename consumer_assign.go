package billet

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/billetlog/billet/replication"
)

// Assign adds partitions of a topic to those read, at StartAt; those that are
// assigned already stay where they are. Without partitions the whole topic is
// read, partitions added later included. Errors: ErrUnknownTopic, ErrClosed;
// ErrInvalidConfig in a group, whose coordinator assigns.
func (c *Consumer) Assign(topic string, partitions ...int32) error {
	if c.group != nil {
		return fmt.Errorf("billet: assign %q: %w: the coordinator of group %q assigns: use Subscribe", topic, ErrInvalidConfig, c.config.Group)
	}
	c.refreshTopic(topic, partitions)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.closed {
		return fmt.Errorf("billet: assign %q: %w: make a new Consumer", topic, ErrClosed)
	}
	state, ok := c.catalog.Topic(topic)
	if !ok {
		return fmt.Errorf("billet: assign %q: %w: %s", topic, ErrUnknownTopic, adviceUnknownTopic)
	}
	whole := len(partitions) == 0
	for n := range state.Partitions {
		if whole {
			partitions = append(partitions, int32(n))
		}
	}
	for _, n := range partitions {
		if n < 0 || int(n) >= state.Partitions {
			return fmt.Errorf("billet: assign %s/%d: %w: the topic has partitions 0 to %d",
				topic, n, ErrUnknownTopic, state.Partitions-1)
		}
	}
	for _, n := range partitions {
		if c.mu.byKey[assignmentKey{topic, n}] != nil {
			continue
		}
		if err := c.addLocked(&state, n, c.config.StartAt); err != nil {
			return err
		}
	}
	if whole {
		c.mu.subscribed[topic] = state.ID
	}
	signal(c.wake)
	return nil
}

// refreshTopic asks for offsets of partitions that other nodes lead, so that
// positions are those of now.
func (c *Consumer) refreshTopic(topic string, partitions []int32) {
	state, _ := c.catalog.Topic(topic)
	var logs []partitionLog
	for n := range state.Partitions {
		if len(partitions) > 0 && !slices.Contains(partitions, int32(n)) {
			continue
		}
		if log, err := c.open(topic, int32(n)); err == nil {
			logs = append(logs, log)
		}
	}
	refreshAll(context.Background(), logs)
}

// open returns a partition as it is to be read.
func (c *Consumer) open(topic string, n int32) (partitionLog, error) {
	log, err := c.catalog.Partition(topic, n)
	if err != nil || !c.config.ReadLocal {
		return log, err
	}
	return log.ReadLocal(), nil
}

// addLocked assigns one partition.
func (c *Consumer) addLocked(state *topicState, n int32, at StartAt) error {
	log, err := c.open(state.Name, n)
	if err != nil {
		return fmt.Errorf("billet: assign %s/%d: %w", state.Name, n, wrapSeam(err))
	}
	a := &assignment{assignmentKey: assignmentKey{state.Name, n}, topicID: state.ID,
		log: log, cursor: log.NewCursor(), done: -1}
	a.cancel = log.Notify(c.wake)
	a.unplaced, a.place = true, at
	a.settle()
	c.mu.assigned = append(c.mu.assigned, a)
	c.mu.byKey[a.assignmentKey] = a
	if s, cause := log.State(); s == replication.StateQuarantined {
		a.failed = true
		c.mu.errs = append(c.mu.errs, fmt.Errorf("billet: read %s/%d: %w", a.topic, n, wrapSeam(cause)))
	}
	return nil
}

// settle gives the assignment its position, if offsets are known by now.
func (a *assignment) settle() bool {
	if a.unplaced && a.log.Known() {
		a.unplaced = false
		a.position = a.log.StartOffset()
		if a.place == Latest {
			a.position = a.log.HighWatermark()
		}
	}
	return !a.unplaced
}

// Unassign stops reading partitions of a topic, or without partitions the whole
// topic. Those that are not assigned are ignored, and in a group all are.
func (c *Consumer) Unassign(topic string, partitions ...int32) {
	if c.group != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(partitions) == 0 {
		delete(c.mu.subscribed, topic)
	}
	for _, a := range slices.Clone(c.mu.assigned) {
		if a.topic == topic && (len(partitions) == 0 || slices.Contains(partitions, a.partition)) {
			c.dropLocked(a)
		}
	}
}

func (c *Consumer) dropLocked(a *assignment) {
	m := &c.mu
	c.forgetReadLocked(a)
	a.close()
	delete(m.byKey, a.assignmentKey)
	if i := slices.Index(m.assigned, a); i >= 0 {
		m.assigned = slices.Delete(m.assigned, i, i+1)
		if i <= m.next && m.next > 0 {
			m.next--
		}
	}
}

// forgetReadLocked drops what was read ahead from the partition.
func (c *Consumer) forgetReadLocked(a *assignment) {
	if c.mu.current == a {
		c.mu.current = nil
		c.mu.decoder.reset("", 0, nil, 0)
	}
}

// moveLocked sets the position.
func (c *Consumer) moveLocked(a *assignment, offset int64) {
	c.forgetReadLocked(a)
	a.position = offset
	a.unplaced, a.failed = false, false
	signal(c.wake)
}

// TopicPartition names a partition.
type TopicPartition struct {
	Topic     string
	Partition int32
}

// Assignment returns the assigned partitions, sorted.
func (c *Consumer) Assignment() []TopicPartition {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]TopicPartition, 0, len(c.mu.assigned))
	for _, a := range c.mu.assigned {
		out = append(out, TopicPartition{a.topic, a.partition})
	}
	slices.SortFunc(out, func(a, b TopicPartition) int {
		if a.Topic != b.Topic {
			if a.Topic < b.Topic {
				return -1
			}
			return 1
		}
		return int(a.Partition - b.Partition)
	})
	return out
}

// findLocked returns an assignment or says that there is none.
func (c *Consumer) findLocked(what, topic string, partition int32) (*assignment, error) {
	if c.mu.closed {
		return nil, fmt.Errorf("billet: %s %s/%d: %w: make a new Consumer", what, topic, partition, ErrClosed)
	}
	a := c.mu.byKey[assignmentKey{topic, partition}]
	if a == nil {
		return nil, fmt.Errorf("billet: %s %s/%d: %w: Assign it first", what, topic, partition, ErrNotAssigned)
	}
	return a, nil
}

// Seek sets the position: the offset of the next record that Poll returns from
// the partition. An offset that is not there shows in Poll. Errors:
// ErrNotAssigned, ErrClosed.
func (c *Consumer) Seek(topic string, partition int32, offset int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	a, err := c.findLocked("seek", topic, partition)
	if err != nil {
		return err
	}
	c.moveLocked(a, offset)
	return nil
}

// SeekToTime sets the position to the first record whose timestamp is t or later,
// or after the last record when there is none. Errors: ErrNotAssigned,
// ErrCorrupt, ErrQuarantined, ErrClosed, ctx's own.
func (c *Consumer) SeekToTime(ctx context.Context, topic string, partition int32, t time.Time) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c.mu.Lock()
	a, err := c.findLocked("seek", topic, partition)
	c.mu.Unlock()
	if err != nil {
		return err
	}
	offset, err := offsetForTime(ctx, a.log, t)
	if err != nil {
		return fmt.Errorf("billet: seek %s/%d to %v: %w", topic, partition, t, err)
	}
	return c.Seek(topic, partition, offset)
}

// SeekToBeginning sets the positions of the partitions, or of all assigned ones of
// the topic, to the first record there is. Errors: ErrNotAssigned, ErrClosed.
func (c *Consumer) SeekToBeginning(topic string, partitions ...int32) error {
	return c.seekTo(Earliest, topic, partitions)
}

// SeekToEnd sets the positions of the partitions, or of all assigned ones of the
// topic, to after the last record. Errors: ErrNotAssigned, ErrClosed.
func (c *Consumer) SeekToEnd(topic string, partitions ...int32) error {
	return c.seekTo(Latest, topic, partitions)
}

func (c *Consumer) seekTo(place StartAt, topic string, partitions []int32) error {
	c.refreshTopic(topic, partitions)
	return c.each("seek", topic, partitions, func(a *assignment) {
		c.moveLocked(a, a.position)
		a.unplaced, a.place = true, place
		a.settle()
	})
}

// Pause leaves the partitions, or all assigned ones of the topic, out of Poll
// until Resume. Records of theirs that were returned stay valid as usual. Errors:
// ErrNotAssigned, ErrClosed.
func (c *Consumer) Pause(topic string, partitions ...int32) error {
	return c.each("pause", topic, partitions, func(a *assignment) {
		c.forgetReadLocked(a)
		a.paused = true
	})
}

// Resume ends Pause, and makes Poll try again partitions that it left out after
// an error. Errors: ErrNotAssigned, ErrClosed.
func (c *Consumer) Resume(topic string, partitions ...int32) error {
	return c.each("resume", topic, partitions, func(a *assignment) {
		a.paused, a.failed = false, false
		signal(c.wake)
	})
}

// each does something with the partitions, or with all assigned ones of the topic.
func (c *Consumer) each(what, topic string, partitions []int32, do func(*assignment)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(partitions) == 0 {
		for _, a := range c.mu.assigned {
			if a.topic == topic {
				partitions = append(partitions, a.partition)
			}
		}
		if len(partitions) == 0 {
			_, err := c.findLocked(what, topic, 0)
			return err
		}
	}
	for _, n := range partitions {
		a, err := c.findLocked(what, topic, n)
		if err != nil {
			return err
		}
		do(a)
	}
	return nil
}

// Position returns the offset of the next record that Poll returns from the
// partition. Errors: ErrNotAssigned; ErrNotLeader as long as it depends on a
// leader that was not reached; ErrClosed.
func (c *Consumer) Position(topic string, partition int32) (int64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a, err := c.findLocked("position of", topic, partition)
	if err != nil {
		return 0, err
	}
	if !a.settle() {
		return 0, fmt.Errorf("billet: position of %s/%d: %w: its leader was not reached yet", topic, partition, ErrNotLeader)
	}
	return a.position, nil
}

// Lag returns how many offsets the position is behind the high watermark. Errors:
// those of Position.
func (c *Consumer) Lag(topic string, partition int32) (int64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a, err := c.findLocked("lag of", topic, partition)
	if err != nil {
		return 0, err
	}
	if !a.settle() {
		return 0, fmt.Errorf("billet: lag of %s/%d: %w: its leader was not reached yet", topic, partition, ErrNotLeader)
	}
	return max(a.log.HighWatermark()-a.position, 0), nil
}
