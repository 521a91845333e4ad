package main

import (
	"sync"
	"time"
)

// silence counts acknowledgements and measures the longest time without one, over
// all partitions and for each.
type silence struct {
	mu    sync.Mutex
	begin time.Time // of the stretch
	acks  int64     // in it
	all   gap
	by    [partitions]gap
}

func newSilence() *silence { return &silence{begin: time.Now()} }

// heard takes note of an acknowledgement.
func (s *silence) heard(partition int32, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.acks++
	s.all.heard(at)
	s.by[partition].heard(at)
}

// cut ends a stretch of time and begins the next. A silence that lasts across the
// cut counts in both.
func (s *silence) cut(now time.Time) stretch {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := stretch{acks: s.acks, took: now.Sub(s.begin), all: s.all.cut(now)}
	for i := range s.by {
		out.by[i] = s.by[i].cut(now)
	}
	s.begin, s.acks = now, 0
	return out
}

// gap is the longest time between two acknowledgements.
type gap struct {
	last    time.Time // acknowledgement
	longest time.Duration
}

func (g *gap) heard(at time.Time) {
	if !g.last.IsZero() {
		g.longest = max(g.longest, at.Sub(g.last))
	}
	g.last = at
}

// cut returns the longest gap, the one that goes on included, and forgets it.
func (g *gap) cut(now time.Time) time.Duration {
	longest := g.longest
	if !g.last.IsZero() {
		longest = max(longest, now.Sub(g.last))
	}
	g.longest = 0
	return longest
}

// stretch is what happened from one cut to the next.
type stretch struct {
	acks int64
	took time.Duration
	all  time.Duration // the longest time without any acknowledgement
	by   [partitions]time.Duration
}

// rate is how many were acknowledged a second.
func (s stretch) rate() int64 { return int64(float64(s.acks) / max(s.took.Seconds(), 1e-9)) }

// longest is the longest time that a single partition had no acknowledgement.
func (s stretch) longest() time.Duration {
	var d time.Duration
	for _, p := range s.by {
		d = max(d, p)
	}
	return d
}
