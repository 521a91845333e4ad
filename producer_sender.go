package billet

import (
	"container/heap"
	"sync"
	"time"
)

// sender is the goroutine of a Producer that sends what nobody else is there to
// send: batches whose time has come, and those that waited for an answer.
type sender struct {
	producer *Producer
	wake     chan struct{}
	stop     chan struct{}
	done     chan struct{}

	mu struct {
		sync.Mutex
		ready []*producerPartition // to be served at once
		timed senderHeap           // to be served later, soonest first
		// asleep is when the goroutine will look again by itself; 0 while it
		// is awake, and looks before it sleeps.
		asleep int64
	}
}

// senderEntry is a partition's place in the sender.
type senderEntry struct {
	partition *producerPartition
	at        int64 // when it is to be served; never if not at all
	index     int   // in the heap, or -1
	ready     bool  // in the list
}

func (s *sender) init(p *Producer) {
	s.producer = p
	s.wake = make(chan struct{}, 1)
	s.stop = make(chan struct{})
	s.done = make(chan struct{})
}

// schedule has the partition served at the given time, or before: a partition
// that is served too early schedules itself again.
func (s *sender) schedule(p *producerPartition, at int64) {
	s.mu.Lock()
	e := &p.timer
	if e.ready || at >= e.at {
		s.mu.Unlock()
		return
	}
	if at <= 0 {
		e.ready = true
		s.mu.ready = append(s.mu.ready, p)
	} else {
		e.at = at
		if e.index < 0 {
			heap.Push(&s.mu.timed, e)
		} else {
			heap.Fix(&s.mu.timed, e.index)
		}
	}
	wake := at < s.mu.asleep
	s.mu.Unlock()
	if wake {
		signal(s.wake)
	}
}

func (s *sender) run() {
	defer close(s.done)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	var due []*producerPartition
	for {
		var next int64
		if due, next = s.take(due[:0]); len(due) > 0 {
			for _, p := range due {
				p.service()
			}
			continue
		}
		wait := time.Hour
		if next < never {
			wait = min(wait, time.Duration(next-s.producer.now()))
		}
		timer.Reset(wait)
		select {
		case <-s.wake:
		case <-timer.C:
		case <-s.stop:
			return
		}
	}
}

// take returns what is due. If nothing is, it says when something will be, and
// notes that the caller goes to sleep until then.
func (s *sender) take(due []*producerPartition) ([]*producerPartition, int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.mu.ready {
		p.timer.ready = false
		due = append(due, p)
	}
	clear(s.mu.ready)
	s.mu.ready = s.mu.ready[:0]
	if len(s.mu.timed) > 0 {
		now := s.producer.now()
		for len(s.mu.timed) > 0 && s.mu.timed[0].at <= now {
			e := heap.Pop(&s.mu.timed).(*senderEntry)
			e.at = never
			due = append(due, e.partition)
		}
	}
	if len(due) > 0 {
		s.mu.asleep = 0
		return due, 0
	}
	s.mu.asleep = never
	if len(s.mu.timed) > 0 {
		s.mu.asleep = s.mu.timed[0].at
	}
	return due, s.mu.asleep
}

func (s *sender) close() {
	close(s.stop)
	<-s.done
}

// service does for the partition what its time has come for.
func (p *producerPartition) service() {
	p.mu.Lock()
	if now := p.producer.now(); now >= p.deadlineLocked() {
		p.expireLocked(now)
	}
	p.mu.Unlock()
	p.pump(true)
}

// hurry ends the waiting of all open batches, when their memory is wanted.
func (p *Producer) hurry() {
	if p.config.Linger == 0 {
		return // they do not wait for long
	}
	for _, partition := range p.partitions() {
		partition.mu.Lock()
		open := partition.mu.open
		if open != nil {
			open.urgent = true
		}
		partition.mu.Unlock()
		if open != nil {
			p.sender.schedule(partition, 0)
		}
	}
}

// senderHeap is a heap of entries by time.
type senderHeap []*senderEntry

func (h senderHeap) Len() int           { return len(h) }
func (h senderHeap) Less(i, j int) bool { return h[i].at < h[j].at }
func (h senderHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push is for package heap.
func (h *senderHeap) Push(x any) {
	e := x.(*senderEntry)
	e.index = len(*h)
	*h = append(*h, e)
}

// Pop is for package heap.
func (h *senderHeap) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	e.index = -1
	return e
}
