package group

import (
	"container/heap"
	"time"
)

// Timed says whether anybody's silence counts, so that the caller has to notice when it
// is held up.
func (c *Core) Timed() bool { return len(c.timers) > 1 } // besides the sweep of offsets

// Delay tells that the caller was held up for d, such as by a machine that stood still,
// and heard nobody. That time does not count: all deadlines move by it. Members may have
// to find the coordinator again, as after it has moved, so each has d left to be heard
// from, or a whole session where that is shorter.
func (c *Core) Delay(now time.Time, d time.Duration) Effects {
	c.begin(now)
	for _, t := range c.timers {
		t.at = t.at.Add(d)
		if least := now.Add(min(d, c.sessionOf(t))); t.at.Before(least) {
			t.at = least
		}
	}
	heap.Init(&c.timers)
	return c.end()
}

// sessionOf is the whole session that a timer counts; zero when it counts something else.
func (c *Core) sessionOf(t *timer) time.Duration {
	switch t.kind {
	case timerConsumerSession:
		return c.opts.ConsumerSessionTimeout
	case timerSession:
		if m := t.group.classic.members[t.member]; m != nil {
			return m.sessionTimeout
		}
	}
	return 0
}
