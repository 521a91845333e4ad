package billet

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/billetlog/billet/group"
	"github.com/billetlog/billet/internal/batch"
)

// fakeGroups is a coordinator in memory: a real core, whose writes are committed at once.
type fakeGroups struct {
	t   testing.TB
	cat *fakeCatalog

	mu struct {
		sync.Mutex
		core   *group.Core
		token  group.Token
		log    []group.Write
		err    error // of all calls
		asked  int
		answer map[group.Token]group.Answer
		ids    int
		ahead  time.Duration // of the machine's clock
	}
}

func newFakeGroups(t testing.TB, cat *fakeCatalog) *fakeGroups {
	g := &fakeGroups{t: t, cat: cat}
	g.mu.answer = map[group.Token]group.Answer{}
	g.load()
	return g
}

// load makes a core of what was written, as when the coordinator moves.
func (g *fakeGroups) load() {
	g.mu.Lock()
	defer g.mu.Unlock()
	core, err := group.New(group.Options{
		NewID:                     func() string { g.mu.ids++; return fmt.Sprint(g.mu.ids) },
		ConsumerHeartbeatInterval: 10 * time.Millisecond,
		ConsumerSessionTimeout:    time.Minute,
	})
	if err != nil {
		g.t.Fatal(err)
	}
	for _, w := range g.mu.log {
		for _, r := range w.Records {
			if err := core.Apply(w.Time, r); err != nil {
				g.t.Fatal(err)
			}
		}
	}
	g.mu.core = core
	g.takeLocked(core.Loaded(g.nowLocked()))
}

func (g *fakeGroups) takeLocked(e group.Effects) {
	for {
		for _, r := range e.Responses {
			g.mu.answer[r.Token] = r.Body
		}
		if len(e.Writes) == 0 {
			return
		}
		g.mu.log = append(g.mu.log, e.Writes...)
		e = g.mu.core.Committed(e.Writes[len(e.Writes)-1].Seq)
	}
}

// Ask implements groups.
func (g *fakeGroups) Ask(ctx context.Context, clientID string, q group.Message) (group.Answer, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.asked++
	if g.mu.err != nil {
		return nil, g.mu.err
	}
	var topics []group.Topic
	for _, t := range g.cat.Topics() {
		one := group.Topic{Name: t.Name, Partitions: int32(t.Partitions)}
		if _, err := hex.Decode(one.ID[:], []byte(t.ID)); err != nil {
			return nil, err
		}
		topics = append(topics, one)
	}
	g.mu.core.SetTopics(group.NewTopics(topics))
	g.takeLocked(g.mu.core.Tick(g.nowLocked()))
	g.mu.token++
	token := g.mu.token
	g.takeLocked(g.mu.core.Handle(g.nowLocked(), group.Request{Token: token, ClientID: clientID, ClientHost: "here", Body: q}))
	answer, ok := g.mu.answer[token]
	if !ok {
		return nil, errors.New("no answer")
	}
	delete(g.mu.answer, token)
	return answer, ctx.Err()
}

func (g *fakeGroups) nowLocked() time.Time { return time.Now().Add(g.mu.ahead) }

// skip lets time pass for the coordinator.
func (g *fakeGroups) skip(d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.ahead += d
}

func (g *fakeGroups) fail(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.err = err
}

// groupRig is consumers of one group on a fake topic "t".
type groupRig struct {
	*consumerRig
	groups *fakeGroups
}

func newGroupRig(t *testing.T, partitions, each int) *groupRig {
	r := &groupRig{consumerRig: &consumerRig{t: t, ctx: testContext(t), cat: newFakeCatalog()}}
	r.logs = r.cat.topic("t", partitions, 1<<20)
	for n := range partitions {
		if each > 0 {
			r.fill(n, each, batch.None)
		}
	}
	r.groups = newFakeGroups(t, r.cat)
	return r
}

// join makes a consumer of the group g; it closes at the end of the test.
func (r *groupRig) join(config ConsumerConfig) *groupConsumer {
	r.t.Helper()
	g := &groupConsumer{rig: r, next: map[int32]int64{}}
	config.Group = "g"
	if config.Topics == nil && config.Pattern == "" {
		config.Topics = []string{"t"}
	}
	config.OnAssign = func(p []TopicPartition) { g.note("assign", p) }
	if config.OnRevoke == nil {
		config.OnRevoke = func(p []TopicPartition) { g.note("revoke", p) }
	}
	config.OnLost = func(p []TopicPartition) { g.note("lost", p) }
	var err error
	if g.Consumer, err = newConsumer(r.cat, r.groups, config, nil); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = g.Close() })
	return g
}

// groupConsumer is a member, and what it saw.
type groupConsumer struct {
	*Consumer
	rig   *groupRig
	next  map[int32]int64 // by partition: the offset after the last record
	told  []string
	read  int
	heard func(what string, p []TopicPartition)
}

func (g *groupConsumer) note(what string, p []TopicPartition) {
	g.told = append(g.told, fmt.Sprint(what, len(p)))
	if g.heard != nil {
		g.heard(what, p)
	}
}

// take polls until the condition holds. Polls that find nothing end soon.
func (g *groupConsumer) take(until func() bool) {
	g.rig.t.Helper()
	for !until() {
		g.poll()
		if g.rig.ctx.Err() != nil {
			g.rig.t.Fatalf("it did not come to that: told %v, read %d", g.told, g.read)
		}
	}
}

func (g *groupConsumer) poll() []Record {
	g.rig.t.Helper()
	ctx, cancel := context.WithTimeout(g.rig.ctx, 5*time.Millisecond)
	defer cancel()
	records, err := g.Poll(ctx)
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		g.rig.t.Fatal(err)
	}
	g.rig.check(records)
	for _, r := range records {
		g.read++
		g.next[r.Partition] = r.Offset + 1
	}
	return records
}

func TestGroupConsumerGoesOnWhereItWas(t *testing.T) {
	r := newGroupRig(t, 4, 100)
	c := r.join(ConsumerConfig{})
	c.take(func() bool { return c.read == 400 })
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Poll(r.ctx); !errors.Is(err, ErrClosed) {
		t.Errorf("a closed consumer polls: %v", err)
	}
	for n := range 4 {
		r.fill(n, 10, batch.None)
	}
	r.groups.load() // the coordinator moves
	c = r.join(ConsumerConfig{})
	c.take(func() bool { return c.read == 40 })
	for range 20 {
		c.poll()
	}
	if c.read != 40 {
		t.Errorf("%d records were read after the first consumer had closed, want 40", c.read)
	}
}

func TestGroupConsumersShare(t *testing.T) {
	r := newGroupRig(t, 6, 0)
	seen := make([]map[int64]int, 6)
	for n := range seen {
		seen[n] = map[int64]int{}
	}
	count := func(records []Record) {
		for _, rec := range records {
			seen[rec.Partition][rec.Offset]++
		}
	}
	a := r.join(ConsumerConfig{})
	a.take(func() bool { return len(a.Assignment()) == 6 })
	b := r.join(ConsumerConfig{})
	var c *groupConsumer
	for step := range 300 {
		r.fill(step%6, 3, batch.None)
		count(a.poll())
		if step < 200 {
			count(b.poll())
		}
		switch {
		case step == 100:
			c = r.join(ConsumerConfig{})
		case step == 200:
			if err := b.Close(); err != nil {
				t.Fatal(err)
			}
		case step > 100:
			count(c.poll())
		}
	}
	both := func() bool {
		count(a.poll())
		count(c.poll())
		n := 0
		for _, offsets := range seen {
			n += len(offsets)
		}
		return n == 900
	}
	for !both() && r.ctx.Err() == nil {
	}
	for n, offsets := range seen {
		for offset := range r.logs[n].HighWatermark() {
			if offsets[offset] != 1 {
				t.Fatalf("%d/%d was returned %d times by members that came and went in order", n, offset, offsets[offset])
			}
		}
	}
	for _, told := range [][]string{a.told, b.told, c.told} {
		if slices.Contains(told, "lost6") || slices.ContainsFunc(told, func(s string) bool { return s[:4] == "lost" }) {
			t.Errorf("a member lost partitions: %v", told)
		}
	}
}

func TestGroupConsumerKeepsWhatStays(t *testing.T) {
	r := newGroupRig(t, 6, 0)
	a := r.join(ConsumerConfig{})
	a.take(func() bool { return len(a.Assignment()) == 6 })
	moved := map[int32]bool{}
	a.heard = func(what string, p []TopicPartition) {
		for _, tp := range p {
			moved[tp.Partition] = true
		}
	}
	b := r.join(ConsumerConfig{})
	b.take(func() bool { a.poll(); return len(b.Assignment()) == 3 })
	if len(moved) != 3 || len(a.Assignment()) != 3 {
		t.Errorf("partitions %v were touched and %v stayed, want three each", moved, a.Assignment())
	}
}

func TestGroupConsumerIsLostAndJoinsAgain(t *testing.T) {
	r := newGroupRig(t, 2, 10)
	c := r.join(ConsumerConfig{CommitInterval: -1})
	c.take(func() bool { return c.read == 20 })
	r.groups.fail(errors.New("unreachable"))
	r.groups.skip(2 * time.Minute) // the session ends
	r.groups.fail(nil)
	c.take(func() bool { return slices.Contains(c.told, "lost2") && len(c.Assignment()) == 2 })
	c.take(func() bool { return c.read == 40 }) // nothing was committed
	if err := c.Commit(r.ctx); err != nil {
		t.Error(err)
	}
	if at, ok, err := c.Committed(r.ctx, "t", 0); at != 10 || !ok || err != nil {
		t.Errorf("committed is %d, %v, %v, want 10", at, ok, err)
	}
}

func TestGroupConsumerLeavesWhenNobodyPolls(t *testing.T) {
	r := newGroupRig(t, 2, 10)
	c := r.join(ConsumerConfig{MaxPollInterval: time.Second})
	c.take(func() bool { return c.read == 20 })
	d := r.join(ConsumerConfig{})
	d.take(func() bool { return len(d.Assignment()) == 2 }) // c does not poll
	if err := c.Commit(r.ctx); !errors.Is(err, ErrNotMember) {
		t.Errorf("a commit after the partitions were given to another: %v", err)
	}
	c.take(func() bool { d.poll(); return len(c.Assignment()) == 1 })
	if !slices.Contains(c.told, "lost2") {
		t.Errorf("told %v, nothing of a loss", c.told)
	}
}

func TestGroupConsumerCommits(t *testing.T) {
	r := newGroupRig(t, 1, 10)
	c := r.join(ConsumerConfig{CommitInterval: -1})
	committed := func(want int64) {
		t.Helper()
		at, ok, err := c.Committed(r.ctx, "t", 0)
		if err != nil || ok != (want > 0) || at != want {
			t.Errorf("committed is %d, %v, %v, want %d", at, ok, err, want)
		}
	}
	n := 0
	for rec, err := range c.Records(r.ctx) {
		if err != nil {
			t.Fatal(err)
		}
		if n++; n == 4 {
			committed(0)
			if err := c.Commit(r.ctx); err != nil {
				t.Fatal(err)
			}
			committed(4)
		}
		if n == 6 {
			if err := c.CommitRecords(r.ctx, rec); err != nil {
				t.Fatal(err)
			}
			committed(6)
			break
		}
	}
	done := make(chan error, 1)
	c.CommitAsync(func(err error) { done <- err })
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	committed(6)
	c.take(func() bool { return c.read == 4 })
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	c = r.join(ConsumerConfig{CommitInterval: -1})
	c.take(func() bool { return c.read == 4 }) // Close did not commit
}

func TestGroupConsumerCommitsByItself(t *testing.T) {
	r := newGroupRig(t, 1, 10)
	c := r.join(ConsumerConfig{CommitInterval: 10 * time.Millisecond, MaxPollRecords: 5})
	c.take(func() bool { return c.read == 5 })
	for begin := time.Now(); time.Since(begin) < 50*time.Millisecond; { // what the last Poll returned is not dealt with yet
		if at, _, err := c.Committed(r.ctx, "t", 0); at != 0 || err != nil {
			t.Fatalf("committed is %d, %v while the first records are in use", at, err)
		}
	}
	c.take(func() bool { return c.read == 10 })
	for at := int64(0); at != 5 && r.ctx.Err() == nil; {
		at, _, _ = c.Committed(r.ctx, "t", 0)
	}
}

// A member that has dealt with nothing yet does not take the group back to the beginning.
func TestGroupConsumerCommitsNothingToBeginWith(t *testing.T) {
	const interval = 10 * time.Millisecond
	for _, start := range []StartAt{Earliest, Latest} {
		r := newGroupRig(t, 1, 10)
		member := func(want int64) *groupConsumer {
			c := r.join(ConsumerConfig{CommitInterval: interval, StartAt: start, MaxPollRecords: 4})
			c.heard = func(what string, _ []TopicPartition) {
				for begin := time.Now(); what == "assign" && time.Since(begin) < 5*interval; {
					if at, ok, err := c.Committed(r.ctx, "t", 0); err != nil || ok != (want >= 0) || ok && at != want {
						t.Fatalf("committed is %d, %v, %v, want %d", at, ok, err, want)
					}
				}
			}
			return c
		}
		c := member(-1)
		c.take(func() bool { return len(c.told) > 0 })
		if start == Latest {
			r.fill(0, 10, batch.None)
		}
		c.take(func() bool { return c.read == 10 })
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		c = member(c.next[0])
		c.take(func() bool { return len(c.told) > 0 })
	}
}

func TestGroupConsumerSubscribes(t *testing.T) {
	r := newGroupRig(t, 2, 0)
	c := r.join(ConsumerConfig{Pattern: "later-.*"})
	for range 20 {
		c.poll()
	}
	if got := c.Assignment(); len(got) != 0 {
		t.Fatalf("it has %v", got)
	}
	r.cat.topic("later-1", 3, 1<<20)
	c.take(func() bool { return len(c.Assignment()) == 3 })
	if err := c.Subscribe("t", "later-1"); err != nil {
		t.Fatal(err)
	}
	c.take(func() bool { return len(c.Assignment()) == 5 })
	if err := r.cat.DeleteTopic(r.ctx, "later-1"); err != nil {
		t.Fatal(err)
	}
	c.take(func() bool { return len(c.Assignment()) == 2 })
	if err := c.Assign("t"); !errors.Is(err, ErrInvalidConfig) {
		t.Errorf("Assign in a group: %v", err)
	}
	if err := c.SubscribePattern("("); err != nil {
		t.Fatal(err)
	}
	for {
		_, err := c.Poll(r.ctx)
		if errors.Is(err, ErrInvalidConfig) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Subscribe("t"); err != nil {
		t.Fatal(err)
	}
	c.take(func() bool { return len(c.Assignment()) == 2 })
}

func TestGroupConsumerStaticMember(t *testing.T) {
	r := newGroupRig(t, 4, 0)
	a := r.join(ConsumerConfig{InstanceID: "a"})
	b := r.join(ConsumerConfig{InstanceID: "b"})
	b.take(func() bool { a.poll(); return len(a.Assignment()) == 2 && len(b.Assignment()) == 2 })
	before := b.Assignment()
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	b = r.join(ConsumerConfig{InstanceID: "b"})
	b.take(func() bool { return len(b.Assignment()) == 2 })
	if !slices.Equal(b.Assignment(), before) || len(a.Assignment()) != 2 {
		t.Errorf("a static member came back to %v, had %v", b.Assignment(), before)
	}
	other := r.join(ConsumerConfig{InstanceID: "a"})
	if _, err := other.Poll(r.ctx); !errors.Is(err, ErrFencedInstance) {
		t.Errorf("a second member of the same instance: %v", err)
	}
}

// What was given up is committed before the coordinator hears of it, and nothing is committed
// of what was lost, although the member is back.
func TestGroupMembershipOrder(t *testing.T) {
	r := newGroupRig(t, 1, 0)
	config := ConsumerConfig{Group: "g", Topics: []string{"t"}}
	config.EnsureDefaults()
	m := &membership{consumer: &Consumer{config: config, wake: make(chan struct{}, 1)}, groups: r.groups, ctx: r.ctx, committing: make(chan struct{}, 1)}
	m.mu.member = group.NewMember(group.MemberOptions{Group: "g", ID: newMemberID(), Topics: config.Topics, RebalanceTimeout: time.Minute})
	m.mu.kept = map[memberKey]keptPosition{}
	if wait := m.heartbeat(time.Time{}); wait <= 0 || m.mu.member.Epoch() == 0 {
		t.Fatalf("it did not join: %v", m.mu.err)
	}
	later := time.Now().Add(time.Hour)
	state, _ := r.cat.Topic("t")
	key := memberKey{assignmentKey{"t", 0}, topicIDOf(state.ID)}
	m.mu.tell, m.mu.released = true, map[memberKey]int64{key: 5}
	if m.heartbeat(later) != 0 || !m.mu.tell {
		t.Error("the coordinator was told of what is not committed yet")
	}
	m.commitReleased()
	if m.heartbeat(later) == 0 || m.mu.tell {
		t.Error("the coordinator was not told")
	}
	m.mu.lost = true
	if err := m.commit(r.ctx, m.askLocked(map[memberKey]int64{key: 3})); !errors.Is(err, ErrNotMember) {
		t.Errorf("a commit of what was lost: %v", err)
	}
}

func TestGroupConfig(t *testing.T) {
	for name, config := range map[string]ConsumerConfig{
		"no group":       {Pattern: "x"},
		"assign":         {Group: "g", Assign: map[string][]int32{"t": {0}}},
		"interval":       {Group: "g", CommitInterval: time.Microsecond},
		"poll interval":  {Group: "g", MaxPollInterval: time.Millisecond},
		"assignor":       {Group: "g", Assignor: "best"},
		"static nothing": {InstanceID: "i"},
	} {
		if _, err := newConsumer(newFakeCatalog(), nil, config, nil); !errors.Is(err, ErrInvalidConfig) {
			t.Errorf("%s: %v", name, err)
		}
	}
	c, err := newConsumer(newFakeCatalog(), nil, ConsumerConfig{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Commit(context.Background()); !errors.Is(err, ErrNotMember) {
		t.Errorf("commit without a group: %v", err)
	}
}
