package replication

import (
	"testing"
	"time"
)

// A segment that was found good is left alone for a while, and is looked at then: readers that are wrong, or lie, must not keep the disk busy.
func TestLooksRest(t *testing.T) {
	n := newTestNode(t)
	defer n.close()
	p := n.start(testSpec(t, 1), true)
	a, b := suspect{p, 0}, suspect{p, 10}
	now := time.Now()
	l := looks{rests: map[suspect]time.Time{a: now.Add(time.Second)}, later: map[suspect]struct{}{a: {}, b: {}}}
	if got := l.due(now); len(got) != 1 || got[0] != b || len(l.later) != 1 {
		t.Errorf("due is %v, %d wait", got, len(l.later))
	}
	if got := l.due(now.Add(time.Second)); len(got) != 1 || got[0] != a || len(l.later) != 0 || len(l.rests) != 0 {
		t.Errorf("due is %v, %d wait, %d rest", got, len(l.later), len(l.rests))
	}
	// Places of one segment are one look.
	s := newScrubber()
	for offset := range int64(5) {
		s.mu.suspects[suspect{p, offset}] = struct{}{}
	}
	if got := s.take(); len(got) != 1 || len(s.mu.suspects) != 0 {
		t.Errorf("%d looks for one segment, %d suspicions are left", len(got), len(s.mu.suspects))
	}
}
