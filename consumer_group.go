package billet

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/billetlog/billet/group"
	"github.com/billetlog/billet/internal/broker"
	"github.com/billetlog/billet/internal/kerr"
	"github.com/billetlog/billet/transport/kafka"
)

// groups is how members reach the coordinators of their groups, wherever those are.
type groups interface {
	// Ask gets an answer to what a member says. It waits for a coordinator as long as
	// ctx allows.
	Ask(ctx context.Context, clientID string, q group.Message) (group.Answer, error)
}

// brokerGroups reaches them through the node.
type brokerGroups struct{ *broker.Broker }

// memberHost is where coordinators say that members of the process are.
const memberHost = "in-process"

// Ask hands on what a member says.
func (g brokerGroups) Ask(ctx context.Context, clientID string, q group.Message) (group.Answer, error) {
	return g.Broker.Ask(ctx, kafka.Client{ID: clientID, Host: memberHost}, q)
}

// The times of a membership.
const (
	groupRetry       = 300 * time.Millisecond // after something failed
	groupAskTimeout  = 10 * time.Second
	groupLeaveBudget = 5 * time.Second
)

// membership is a consumer's place in its group. Its loop talks to the coordinator,
// which says what the consumer shall have; Poll gives up and takes up partitions, so
// that this happens between the records of one Poll and the next, and calls the
// callbacks. The loop alone tells the coordinator what the consumer has, after it has
// committed what was given up.
type membership struct {
	consumer *Consumer
	groups   groups
	ctx      context.Context
	end      context.CancelFunc
	wake     chan struct{} // for the loop
	closing  chan struct{}
	done     chan struct{} // closed when the loop has ended
	// committing has a token while a commit is under way.
	committing chan struct{}

	mu struct {
		sync.Mutex
		member *group.Member
		// has is what Poll reads, changed by Poll alone. coming is what it shall take up.
		has    map[group.TopicPartition]assignmentKey
		coming map[group.TopicPartition]placed
		// lost says that all Poll reads belongs to others by now.
		lost bool
		// tell says that has changed and the coordinator does not know.
		tell bool
		// away says that the member left since nobody polled; Poll joins again.
		away bool
		// err is for the next Poll; final is why the member cannot be one any more.
		err, final error
		errCode    int16 // of the last that Poll was given
		released   map[memberKey]int64
		kept       map[memberKey]keptPosition // committed last, or where it began
		turn       uint64                     // of the last commit that was asked for
		async      asyncCommits
		polling    bool
		polled     time.Time // Poll last ended
		closed     bool
	}
}

// memberKey is a partition that a member has, told from that of another topic which had
// the name before.
type memberKey struct {
	assignmentKey
	id group.TopicID
}

// member is the partition as a group knows it.
func (a *assignment) member() memberKey { return memberKey{a.assignmentKey, topicIDOf(a.topicID)} }

// topicIDOf reads a topic's id, which is zero if it is none.
func topicIDOf(text string) (id group.TopicID) {
	if _, err := hex.Decode(id[:], []byte(text)); err != nil || len(text) != hex.EncodedLen(len(id)) {
		return group.TopicID{}
	}
	return id
}

// placed is a partition with the position at which its reading begins; -1: StartAt says.
type placed struct {
	memberKey
	offset int64
}

func newMembership(c *Consumer, g groups) *membership {
	o := &c.config
	m := &membership{consumer: c, groups: g, wake: make(chan struct{}, 1), closing: make(chan struct{}), done: make(chan struct{}), committing: make(chan struct{}, 1)}
	m.ctx, m.end = context.WithCancel(context.Background())
	m.mu.member = group.NewMember(group.MemberOptions{
		Group: o.Group, ID: newMemberID(), Instance: o.InstanceID, Rack: o.Rack, Assignor: o.Assignor,
		Topics: o.Topics, Pattern: o.Pattern, RebalanceTimeout: o.MaxPollInterval,
	})
	m.mu.has = map[group.TopicPartition]assignmentKey{}
	m.mu.coming = map[group.TopicPartition]placed{}
	m.mu.released = map[memberKey]int64{}
	m.mu.kept = map[memberKey]keptPosition{}
	m.mu.polled = time.Now()
	go m.run()
	return m
}

// run is the loop: heartbeats, and what follows from them.
func (m *membership) run() {
	defer close(m.done)
	timer := time.NewTimer(0)
	defer timer.Stop()
	var beat, commit time.Time // when the next is due
	for {
		select {
		case <-m.ctx.Done():
			return
		case <-timer.C:
		case <-m.wake:
		}
		m.leaveIdle()
		m.commitAsync()
		if interval := m.consumer.config.CommitInterval; interval > 0 && !time.Now().Before(commit) {
			m.commitDone()
			commit = time.Now().Add(interval)
		}
		m.commitReleased()
		if wait := m.heartbeat(beat); wait > 0 {
			beat = time.Now().Add(wait)
		}
		next := time.Until(beat)
		if !m.place() {
			next = min(next, groupRetry)
		}
		if m.consumer.config.CommitInterval > 0 {
			next = min(next, time.Until(commit))
		}
		timer.Reset(max(next, time.Millisecond))
	}
}

// ask sends something to the coordinator, within a bound.
func (m *membership) ask(ctx context.Context, q group.Message) (group.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, groupAskTimeout)
	defer cancel()
	return m.groups.Ask(ctx, m.consumer.config.ClientID, q)
}

// heartbeat says that the member is there, if that is due or it has something to tell,
// and takes the answer. It returns how long the next one may wait, 0 when none was sent.
func (m *membership) heartbeat(due time.Time) time.Duration {
	m.mu.Lock()
	member := m.mu.member
	if m.mu.final != nil || m.mu.away {
		m.mu.Unlock()
		return m.consumer.config.MaxPollInterval // Poll wakes the loop
	}
	if m.mu.tell && len(m.mu.released) == 0 { // what was given up just now is committed first
		m.mu.tell = false
		var holds []group.TopicPartition
		for tp := range m.mu.has {
			if member.Target()[tp] { // after a loss it has things that it must not claim
				holds = append(holds, tp)
			}
		}
		member.Hold(holds)
	}
	if !member.Changed() && time.Now().Before(due) {
		m.mu.Unlock()
		return 0
	}
	q := member.Heartbeat()
	m.mu.Unlock()
	answer, err := m.ask(m.ctx, q)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		member.Unheard()
		return groupRetry
	}
	lost, final, err := member.Heard(answer)
	if lost {
		m.loseLocked()
	}
	if err != nil {
		err = groupError(m.consumer.config.Group, err)
		if final {
			m.mu.final = err
		}
		m.reportLocked(err, lost)
		return groupRetry
	}
	m.mu.errCode = kerr.NONE
	for tp := range m.mu.coming {
		if !member.Target()[tp] {
			delete(m.mu.coming, tp)
		}
	}
	for tp := range m.mu.has {
		if !member.Target()[tp] {
			signal(m.consumer.wake)
			break
		}
	}
	return member.Interval()
}

// reportLocked gives an error to the next Poll, once as long as it is the same. That the
// member was lost is no error: it joins again, and OnLost tells.
func (m *membership) reportLocked(err error, lost bool) {
	var told *kerr.Error
	if m.mu.final == nil && lost || !errors.As(err, &told) || told.Code == m.mu.errCode {
		return
	}
	m.mu.err, m.mu.errCode = err, told.Code
	signal(m.consumer.wake)
}

// loseLocked drops what the member had: others have it.
func (m *membership) loseLocked() {
	m.mu.lost, m.mu.tell = true, false
	clear(m.mu.coming)
	clear(m.mu.released)
	signal(m.consumer.wake)
}

// leaveIdle leaves the group when nobody has polled for too long, so that others get
// the partitions.
func (m *membership) leaveIdle() {
	m.mu.Lock()
	idle := !m.mu.polling && !m.mu.away && m.mu.member.Epoch() > 0 && time.Since(m.mu.polled) > m.consumer.config.MaxPollInterval
	if !idle {
		m.mu.Unlock()
		return
	}
	m.mu.away = true
	q := m.mu.member.Leave(false)
	m.loseLocked()
	m.mu.Unlock()
	_, _ = m.ask(m.ctx, q) // else the session ends by itself
}

// place finds out where to begin with partitions that are the member's from now on, and
// gives them to Poll. It returns false when something is missing yet.
func (m *membership) place() bool {
	m.mu.Lock()
	if m.mu.lost { // Poll first drops what is there
		m.mu.Unlock()
		return true
	}
	var missing []group.TopicPartition
	complete := true
	var names map[group.TopicID]string
	for tp := range m.mu.member.Target() {
		if _, ok := m.mu.has[tp]; ok {
			continue
		}
		if _, ok := m.mu.coming[tp]; ok {
			continue
		}
		if names == nil {
			names = m.consumer.topicNames()
		}
		if _, ok := names[tp.Topic]; !ok {
			complete = false // it was made or deleted just now
			continue
		}
		missing = append(missing, tp)
	}
	member, epoch := m.mu.member, m.mu.member.Epoch()
	q := member.Fetch(missing)
	m.mu.Unlock()
	if len(missing) == 0 {
		return complete
	}
	answer, err := m.ask(m.ctx, q)
	if err != nil {
		return false
	}
	positions, _, err := member.Fetched(answer)
	if err != nil {
		return false
	}
	at := map[group.TopicPartition]int64{}
	for _, p := range positions {
		at[p.TopicPartition] = p.Offset
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.lost || epoch == 0 {
		return true
	}
	for _, tp := range missing {
		if !member.Target()[tp] {
			continue
		}
		offset, ok := at[tp]
		if !ok {
			offset = -1
		}
		m.mu.coming[tp] = placed{memberKey{assignmentKey{names[tp.Topic], tp.Partition}, tp.Topic}, offset}
	}
	signal(m.consumer.wake)
	return complete
}

// topicNames are the names of all topics by their ids.
func (c *Consumer) topicNames() map[group.TopicID]string {
	names := map[group.TopicID]string{}
	for _, t := range c.catalog.Topics() {
		names[topicIDOf(t.ID)] = t.Name
	}
	return names
}

// newMemberID returns an id that no other member has: a random UUID (RFC 9562).
func newMemberID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
