package billet

import (
	"context"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/group"
)

// meetingGroups answers members that leave when all of them do, or their time is over.
type meetingGroups struct {
	groups
	members int
	met     chan struct{} // closed when all leave

	mu struct {
		sync.Mutex
		leaving int
		alone   int // whose time was over
	}
}

func (g *meetingGroups) Ask(ctx context.Context, clientID string, q group.Message) (group.Answer, error) {
	if beat, ok := q.(*kmsg.ConsumerGroupHeartbeatRequest); !ok || beat.MemberEpoch >= 0 {
		return g.groups.Ask(ctx, clientID, q)
	}
	g.mu.Lock()
	if g.mu.leaving++; g.mu.leaving == g.members {
		close(g.met)
	}
	g.mu.Unlock()
	select {
	case <-g.met:
		return g.groups.Ask(ctx, clientID, q)
	case <-ctx.Done():
		g.mu.Lock()
		defer g.mu.Unlock()
		g.mu.alone++
		return nil, ctx.Err()
	}
}

func TestLogClosesConsumersSideBySide(t *testing.T) {
	const members = 3
	r := newGroupRig(t, members, 0)
	meeting := &meetingGroups{groups: r.groups, members: members, met: make(chan struct{})}
	log := newFakeTestLog(t, r.cat)
	log.groups = meeting
	for range members {
		c, err := log.NewConsumer(ConsumerConfig{Group: "g", Topics: []string{"t"}})
		if err != nil {
			t.Fatal(err)
		}
		g := &groupConsumer{rig: r, Consumer: c, next: map[int32]int64{}}
		g.take(func() bool { _, epoch := c.Member(); return epoch > 0 })
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	meeting.mu.Lock()
	defer meeting.mu.Unlock()
	if meeting.mu.leaving != members || meeting.mu.alone > 0 {
		t.Errorf("%d members left, %d of them waited for nothing", meeting.mu.leaving, meeting.mu.alone)
	}
}
