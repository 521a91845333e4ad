package billet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/billetlog/billet/group"
	"github.com/billetlog/billet/internal/kerr"
)

// asyncCommitsMax bounds the callbacks of CommitAsync that wait.
const asyncCommitsMax = 1024

// commitTries is how often a commit is sent again because the member's epoch moved.
const commitTries = 10

// commitGrace is how much longer than its caller waits a commit may take.
const commitGrace = time.Second

// commitAsk is positions that shall be kept. Turns grow: of two the greater was asked for later.
type commitAsk struct {
	turn      uint64
	positions map[memberKey]int64
}

// keptPosition is what the group has of a partition as far as this member knows, and the turn that set it.
type keptPosition struct {
	offset int64
	turn   uint64
}

// asyncCommits is what CommitAsync was asked for since the last time.
type asyncCommits struct {
	commitAsk
	done []func(error)
}

// Commit makes the group keep the positions of this consumer: after a failure or a
// rebalance, reading goes on there. They stand after the last record that Poll returned,
// or Records yielded. It returns when the coordinator has them durably.
//
// Errors: ErrNotMember when the partitions are others' by now, who read again what was
// not committed; ErrClosed; ctx's own.
func (c *Consumer) Commit(ctx context.Context) error {
	m, err := c.membershipFor("commit")
	if err != nil {
		return err
	}
	return m.commit(ctx, m.positions(false))
}

// CommitRecords makes the group keep the positions after the given records, which are of
// topics that there are now under their names. Otherwise as Commit; ErrUnknownTopic when
// there is none.
func (c *Consumer) CommitRecords(ctx context.Context, records ...Record) error {
	m, err := c.membershipFor("commit")
	if err != nil {
		return err
	}
	positions := map[memberKey]int64{}
	for i := range records {
		key, err := c.memberKey(records[i].Topic, records[i].Partition)
		if err != nil {
			return fmt.Errorf("billet: commit: %w", err)
		}
		positions[key] = max(positions[key], records[i].Offset+1)
	}
	m.mu.Lock()
	a := m.askLocked(positions)
	m.mu.Unlock()
	return m.commit(ctx, a)
}

// memberKey finds a partition as a group knows it: the one that is read now, or else the
// one that there is.
func (c *Consumer) memberKey(topic string, partition int32) (memberKey, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := assignmentKey{topic, partition}
	if a := c.mu.byKey[key]; a != nil {
		return a.member(), nil
	}
	state, ok := c.catalog.Topic(topic)
	if !ok {
		return memberKey{}, fmt.Errorf("topic %q: %w: %s", topic, ErrUnknownTopic, adviceUnknownTopic)
	}
	return memberKey{key, topicIDOf(state.ID)}, nil
}

// CommitAsync is Commit without waiting. done, unless nil, gets the error, from a
// goroutine that does nothing else meanwhile, so it must be quick. Calls that come while
// another one is under way are done together; beyond 1,024 of them done gets ErrBusy.
func (c *Consumer) CommitAsync(done func(error)) {
	if done == nil {
		done = func(error) {}
	}
	m, err := c.membershipFor("commit")
	if err != nil {
		done(err)
		return
	}
	ask := m.positions(false)
	m.mu.Lock()
	a := &m.mu.async
	switch {
	case m.mu.closed:
		err = fmt.Errorf("billet: commit: %w: make a new Consumer", ErrClosed)
	case len(a.done) >= asyncCommitsMax:
		err = fmt.Errorf("billet: commit: %w: %d commits wait already", ErrBusy, len(a.done))
	default:
		a.commitAsk, a.done = ask, append(a.done, done)
	}
	m.mu.Unlock()
	if err != nil {
		done(err)
		return
	}
	signal(m.wake)
}

// Committed returns the offset at which the group goes on with a partition, whoever reads
// it; ok is false when it has none. Errors: ErrNotMember when the consumer is in no
// group, ErrUnknownTopic, ErrClosed; ctx's own.
func (c *Consumer) Committed(ctx context.Context, topic string, partition int32) (offset int64, ok bool, err error) {
	m, err := c.membershipFor("committed offset")
	if err != nil {
		return 0, false, err
	}
	key, err := c.memberKey(topic, partition)
	if err != nil {
		return 0, false, fmt.Errorf("billet: committed offset: %w", err)
	}
	for range commitTries {
		m.mu.Lock()
		q := m.mu.member.Fetch([]group.TopicPartition{{Topic: key.id, Partition: partition}})
		m.mu.Unlock()
		answer, err := m.groups.Ask(ctx, c.config.ClientID, q)
		if err != nil {
			return 0, false, groupError(c.config.Group, err)
		}
		positions, stale, err := m.mu.member.Fetched(answer)
		if stale {
			continue
		}
		if err != nil {
			return 0, false, groupError(c.config.Group, err)
		}
		if len(positions) == 0 {
			return 0, false, nil
		}
		return positions[0].Offset, true, nil
	}
	return 0, false, fmt.Errorf("billet: committed offset of %s/%d: %w: its place in group %q changes all the time", topic, partition, ErrNotMember, c.config.Group)
}

// Member returns the consumer's id in its group, and its epoch there: 0 while it is not
// in it.
func (c *Consumer) Member() (id string, epoch int32) {
	if c.group == nil {
		return "", 0
	}
	c.group.mu.Lock()
	defer c.group.mu.Unlock()
	return c.group.mu.member.ID(), c.group.mu.member.Epoch()
}

func (c *Consumer) membershipFor(what string) (*membership, error) {
	if c.group == nil {
		return nil, fmt.Errorf("billet: %s: %w: give ConsumerConfig.Group", what, ErrNotMember)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.closed {
		return nil, fmt.Errorf("billet: %s: %w: make a new Consumer", what, ErrClosed)
	}
	return c.group, nil
}

// positions are those of the partitions that Poll reads: after what it returned or, if
// done, after what it had returned when it was last called.
func (m *membership) positions(done bool) commitAsk {
	c := m.consumer
	c.mu.Lock()
	defer c.mu.Unlock()
	positions := map[memberKey]int64{}
	for _, a := range c.mu.assigned {
		switch {
		case a.unplaced, done && a.done < 0:
		case done:
			positions[a.member()] = a.done
		default:
			positions[a.member()] = a.position
		}
	}
	if !done { // an iteration has not come to these
		for i := len(c.mu.unyielded) - 1; i >= 0; i-- {
			r := &c.mu.unyielded[i]
			if a := c.mu.byKey[assignmentKey{r.Topic, r.Partition}]; a != nil && positions[a.member()] > 0 {
				positions[a.member()] = r.Offset
			}
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, offset := range positions {
		if kept, ok := m.mu.kept[key]; ok && kept.offset == offset {
			delete(positions, key)
		}
	}
	return m.askLocked(positions)
}

// askLocked gives positions their turn.
func (m *membership) askLocked(positions map[memberKey]int64) commitAsk {
	m.mu.turn++
	return commitAsk{m.mu.turn, positions}
}

// commit sends positions until they are kept or refused. One is under way at a time: of two the later one could be carried out first, and the group would go
// back. So one that its caller gave up has a little longer to be answered.
func (m *membership) commit(ctx context.Context, a commitAsk) error {
	if len(a.positions) == 0 {
		return nil
	}
	name := m.consumer.config.Group
	if err := m.takeTurn(ctx); err != nil {
		return groupError(name, err)
	}
	patient, cancel := context.WithCancel(context.WithoutCancel(ctx))
	giveUp := func() { time.AfterFunc(commitGrace, cancel) }
	stops := []func() bool{context.AfterFunc(ctx, giveUp), context.AfterFunc(m.ctx, giveUp)}
	done := make(chan error, 1)
	go func() {
		defer m.endTurn()
		defer cancel()
		done <- m.carry(patient, a)
		for _, stop := range stops {
			stop()
		}
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return groupError(name, ctx.Err())
	}
}

// commitLast is commit when the membership ends.
func (m *membership) commitLast(ctx context.Context, a commitAsk) {
	if len(a.positions) == 0 || m.takeTurn(ctx) != nil {
		return
	}
	defer m.endTurn()
	_ = m.carry(ctx, a) // what is not committed is read again
}

// takeTurn waits until no commit is under way.
func (m *membership) takeTurn(ctx context.Context) error {
	select {
	case m.committing <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (m *membership) endTurn() { <-m.committing }

// carry sends the positions for which no later commit was kept meanwhile.
func (m *membership) carry(ctx context.Context, a commitAsk) error {
	list := make([]group.Position, 0, len(a.positions))
	names := make(map[group.TopicID]string, len(a.positions))
	m.mu.Lock()
	for key, offset := range a.positions {
		if m.mu.kept[key].turn <= a.turn {
			names[key.id] = key.topic
			list = append(list, group.Position{TopicPartition: group.TopicPartition{Topic: key.id, Partition: key.partition}, Offset: offset, Epoch: -1})
		}
	}
	m.mu.Unlock()
	if len(list) == 0 {
		return nil
	}
	name := m.consumer.config.Group
	var err error
	for range commitTries {
		m.mu.Lock()
		q := m.mu.member.Commit(list)
		joined := m.mu.member.Epoch() > 0 && !m.mu.lost // it may be back already, and Poll has not dropped what is others' yet
		m.mu.Unlock()
		if !joined {
			return fmt.Errorf("billet: commit: %w: it lost its place in group %q, and what it had is others'", ErrNotMember, name)
		}
		answer, askErr := m.groups.Ask(ctx, m.consumer.config.ClientID, q)
		if askErr != nil {
			return groupError(name, askErr)
		}
		stale := false
		if stale, err = m.mu.member.Committed(answer, names); !stale {
			break
		}
	}
	if err != nil {
		return groupError(name, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, offset := range a.positions {
		if m.mu.kept[key].turn <= a.turn {
			m.mu.kept[key] = keptPosition{offset, a.turn}
		}
	}
	return nil
}

// commitDone commits what has been dealt with.
func (m *membership) commitDone() { _ = m.commit(m.ctx, m.positions(true)) } // the next one tries again

// commitReleased commits the positions of partitions that were given up.
func (m *membership) commitReleased() {
	m.mu.Lock()
	a := m.askLocked(m.mu.released)
	m.mu.released = map[memberKey]int64{}
	for key, offset := range a.positions {
		delete(m.mu.async.positions, key) // it was asked for earlier, and would come later
		if m.mu.kept[key].offset == offset {
			delete(a.positions, key)
		}
		delete(m.mu.kept, key)
	}
	m.mu.Unlock()
	ctx, cancel := context.WithTimeout(m.ctx, groupAskTimeout)
	defer cancel()
	_ = m.commit(ctx, a) // what is not committed is read again by who has it next
	m.mu.Lock()
	defer m.mu.Unlock()
	for key := range a.positions {
		if m.mu.kept[key].turn == a.turn { // or it has come back
			delete(m.mu.kept, key)
		}
	}
}

// commitAsync does what CommitAsync was asked for.
func (m *membership) commitAsync() {
	m.mu.Lock()
	a := m.mu.async
	m.mu.async = asyncCommits{}
	m.mu.Unlock()
	if len(a.done) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(m.ctx, groupAskTimeout)
	defer cancel()
	err := m.commit(ctx, a.commitAsk)
	for _, done := range a.done {
		done(err)
	}
}

// failAsync answers what CommitAsync was asked for and is not done any more.
func (m *membership) failAsync(err error) {
	m.mu.Lock()
	a := m.mu.async
	m.mu.async = asyncCommits{}
	m.mu.Unlock()
	for _, done := range a.done {
		done(err)
	}
}

// groupErrors are what coordinators answer, as this package says it.
var groupErrors = map[int16]error{
	kerr.UNKNOWN_MEMBER_ID:          ErrNotMember,
	kerr.FENCED_MEMBER_EPOCH:        ErrNotMember,
	kerr.STALE_MEMBER_EPOCH:         ErrNotMember,
	kerr.ILLEGAL_GENERATION:         ErrNotMember,
	kerr.FENCED_INSTANCE_ID:         ErrFencedInstance,
	kerr.UNRELEASED_INSTANCE_ID:     ErrFencedInstance,
	kerr.GROUP_ID_NOT_FOUND:         ErrGroupProtocol,
	kerr.GROUP_MAX_SIZE_REACHED:     ErrGroupFull,
	kerr.INVALID_REQUEST:            ErrInvalidConfig,
	kerr.INVALID_GROUP_ID:           ErrInvalidConfig,
	kerr.UNSUPPORTED_ASSIGNOR:       ErrInvalidConfig,
	kerr.INVALID_REGULAR_EXPRESSION: ErrInvalidConfig,
	kerr.UNKNOWN_TOPIC_OR_PARTITION: ErrUnknownTopic,
	kerr.UNKNOWN_TOPIC_ID:           ErrUnknownTopic,
}

// groupError gives an answer of a coordinator its public name.
func groupError(name string, err error) error {
	var told *kerr.Error
	if errors.As(err, &told) {
		public, ok := groupErrors[told.Code]
		switch {
		case public == ErrGroupProtocol:
			return fmt.Errorf("billet: group %q: %w: %s (%w)", name, public, adviceGroupProtocol, err)
		case ok:
			return fmt.Errorf("billet: group %q: %w: %w", name, public, err)
		}
	}
	return fmt.Errorf("billet: group %q: %w", name, wrapSeam(err))
}
