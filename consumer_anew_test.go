package billet

import (
	"errors"
	"testing"

	"github.com/billetlog/billet/internal/batch"
)

// A topic was deleted and made again under a member: what it has read of the first one is
// not kept for the second.
func TestGroupConsumerCommitsNothingForATopicMadeAnew(t *testing.T) {
	r := newGroupRig(t, 1, 10)
	c := r.join(ConsumerConfig{CommitInterval: -1})
	c.take(func() bool { return c.read == 10 })
	old := c.group.positions(false)
	if len(old.positions) != 1 {
		t.Fatalf("it stands at %v", old)
	}
	if err := r.cat.DeleteTopic(r.ctx, "t"); err != nil {
		t.Fatal(err)
	}
	r.logs = r.cat.topic("t", 1, 1<<20)
	if err := c.Commit(r.ctx); !errors.Is(err, ErrUnknownTopic) {
		t.Errorf("a commit of what was read before: %v", err)
	}
	if at, ok, err := c.Committed(r.ctx, "t", 0); ok || err == nil { // Poll has not seen the new one
		t.Errorf("the old one's offset is %d, %v, %v", at, ok, err)
	}
	r.fill(0, 3, batch.None)
	c.take(func() bool { return c.read == 13 })
	if err := c.group.commit(r.ctx, old); !errors.Is(err, ErrUnknownTopic) {
		t.Errorf("a late commit: %v", err)
	}
	if at, ok, err := c.Committed(r.ctx, "t", 0); at != 0 || ok || err != nil {
		t.Errorf("the new one's offset is %d, %v, %v", at, ok, err)
	}
	for _, other := range []string{"there-is-none", "t"} {
		err := c.CommitRecords(r.ctx, Record{Topic: other, Offset: 1})
		if want := other == "t"; (err == nil) != want || !want && !errors.Is(err, ErrUnknownTopic) {
			t.Errorf("a commit for %q: %v", other, err)
		}
	}
	if at, ok, err := c.Committed(r.ctx, "t", 0); at != 2 || !ok || err != nil {
		t.Errorf("the new one's offset is %d, %v, %v", at, ok, err)
	}
}

// What was to come is not taken up when the topic of that name is another one by now.
func TestGroupConsumerTakesUpNoOtherTopic(t *testing.T) {
	r := newGroupRig(t, 1, 0)
	c := r.join(ConsumerConfig{})
	old, _ := r.cat.Topic("t")
	if err := r.cat.DeleteTopic(r.ctx, "t"); err != nil {
		t.Fatal(err)
	}
	r.cat.topic("t", 1, 1<<20)
	if c.takeUp(placed{memberKey{assignmentKey{"t", 0}, topicIDOf(old.ID)}, 7}) {
		t.Error("it reads the new topic from where the old one was read")
	}
}
