package main

import (
	"fmt"
	"sync"
	"time"
)

const laneInterval = 5 * time.Millisecond // between two records of a lane

// lane is what is known of the records sent to one partition, one after the other
// at a fixed pace whatever becomes of them.
type lane struct {
	mu      sync.Mutex
	sent    []time.Time
	offsets []int64 // of each record, or unanswered
	acked   time.Time
	newest  time.Time     // when the newest acknowledged record was sent
	gap     time.Duration // the longest between two acknowledgements since watch
	failure error
}

const unanswered = -1

// next notes that a record is sent and returns its number.
func (l *lane) next() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent, l.offsets = append(l.sent, time.Now()), append(l.offsets, unanswered)
	return len(l.sent) - 1
}

// answer notes what became of a record.
func (l *lane) answer(number int, offset int64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		if l.failure == nil {
			l.failure = fmt.Errorf("record %d: %w", number, err)
		}
		return
	}
	now := time.Now()
	if !l.acked.IsZero() {
		l.gap = max(l.gap, now.Sub(l.acked))
	}
	l.acked, l.offsets[number] = now, offset
	if l.sent[number].After(l.newest) {
		l.newest = l.sent[number]
	}
}

// watch forgets the gaps so far. One that has begun counts as a whole.
func (l *lane) watch() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gap = 0
}

// since returns the longest gap, and whether a record sent after start is acknowledged.
func (l *lane) since(start time.Time) (gap time.Duration, over bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.gap, l.newest.After(start), l.failure
}

// check holds what was acknowledged against what the partition contains: each
// record where its acknowledgement says, and all in the order in which they were
// sent, none twice.
func (l *lane) check(numbers []int, offsets []int64) error {
	at := map[int]int64{}
	for i, n := range numbers {
		if i > 0 && n <= numbers[i-1] {
			return fmt.Errorf("record %d is behind record %d", n, numbers[i-1])
		}
		at[n] = offsets[i]
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for n, offset := range l.offsets {
		if found, ok := at[n]; offset != unanswered && (!ok || found != offset) {
			return fmt.Errorf("record %d was acknowledged at offset %d and is not there", n, offset)
		}
	}
	return nil
}
