package group

import (
	"container/heap"
	"time"
)

// timerKind says what happens when a timer fires.
type timerKind int8

const (
	timerSession          timerKind = iota // a classic member was silent for too long
	timerPending                           // a member that was given an id did not come back
	timerJoin                              // a classic rebalance has waited long enough for members
	timerSync                              // members did not fetch their assignment
	timerConsumerSession                   // a consumer member was silent for too long
	timerConsumerRevoking                  // a consumer member did not give partitions up in time
	timerOffsets                           // offsets are looked through
)

// timer is one deadline; its owner holds it as a value and must stop it before it
// goes.
type timer struct {
	kind   timerKind
	group  *group
	member string
	at     time.Time
	place  int // in the heap, from 1; 0 when it is not running
}

// timers is a heap by deadline.
type timers []*timer

func (t timers) Len() int           { return len(t) }
func (t timers) Less(i, j int) bool { return t[i].at.Before(t[j].at) }
func (t timers) Swap(i, j int) {
	t[i], t[j] = t[j], t[i]
	t[i].place, t[j].place = i+1, j+1
}

// Push is called by package heap.
func (t *timers) Push(x any) {
	one := x.(*timer)
	*t = append(*t, one)
	one.place = len(*t)
}

// Pop is called by package heap.
func (t *timers) Pop() any {
	last := len(*t) - 1
	one := (*t)[last]
	(*t)[last] = nil
	*t = (*t)[:last]
	one.place = 0
	return one
}

// start sets or moves a timer.
func (t *timers) start(one *timer, at time.Time) {
	one.at = at
	if one.place == 0 {
		heap.Push(t, one)
		return
	}
	heap.Fix(t, one.place-1)
}

// stop is harmless when the timer does not run.
func (t *timers) stop(one *timer) {
	if one.place != 0 {
		heap.Remove(t, one.place-1)
	}
}

// due takes the next timer whose time has come off the heap.
func (t *timers) due(now time.Time) *timer {
	if len(*t) == 0 || (*t)[0].at.After(now) {
		return nil
	}
	return heap.Pop(t).(*timer)
}

// next is when the next one fires, or zero.
func (t timers) next() time.Time {
	if len(t) == 0 {
		return time.Time{}
	}
	return t[0].at
}
