package billet

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// EventKind names what happened.
type EventKind string

// The kinds of events. Their values are stable and fit for logs and metrics.
const (
	// EventWritable: a partition takes records from now on, because this node
	// became its leader.
	EventWritable EventKind = "writable"
	// EventLeaderLost: this node leads the partition no longer.
	EventLeaderLost EventKind = "leader-lost"
	// EventISRShrink: replicas of a partition that this node leads are in sync no
	// longer. Detail names those that are.
	EventISRShrink EventKind = "isr-shrink"
	// EventISRGrow: replicas are in sync again.
	EventISRGrow EventKind = "isr-grow"
	// EventUnderReplicated: a partition that this node leads has fewer replicas in
	// sync than it should.
	EventUnderReplicated EventKind = "under-replicated"
	// EventFullyReplicated: all of them are in sync again.
	EventFullyReplicated EventKind = "fully-replicated"
	// EventCatchUp: this node's replica of a partition is new or far behind and
	// copies the log of another node.
	EventCatchUp EventKind = "catch-up"
	// EventCatchUpDone: it has it now. Bytes and Duration say how much came over
	// the network, in what time.
	EventCatchUpDone EventKind = "catch-up-done"
	// EventCatchUpFailed: the copy was broken off. What came is kept, and it is
	// tried again.
	EventCatchUpFailed EventKind = "catch-up-failed"
	// EventMetadataBroken: this node cannot read the cluster's metadata any more
	// and hears of no new topics and nodes.
	EventMetadataBroken EventKind = "metadata-broken"
	// EventTailCut: recovery cut the torn end of a partition, which was never
	// acknowledged as durable. Offset is the end from now on.
	EventTailCut EventKind = "tail-cut"
	// EventUnsyncedLost: the machine went down under fsync=interval, and
	// acknowledged records from Offset on may be gone.
	EventUnsyncedLost EventKind = "unsynced-lost"
	// EventQuarantined: damage was found in a partition's files; it is not
	// served and its files are left as they are.
	EventQuarantined EventKind = "quarantined"
	// EventDamaged: damage was found in a partition's files. What is good is
	// served on, reading the rest fails with ErrCorrupt: no other replica
	// can take this one's place, or not yet. Offset is the first record
	// that cannot be read, or -1.
	EventDamaged EventKind = "damaged"
	// EventRecovered: a partition that had lost its majority goes on from one
	// replica's log, which ends at Offset. What was acknowledged after that
	// is lost: RecoverPartition was called, or all machines went down at
	// once under fsync=interval.
	EventRecovered EventKind = "recovered"
	// EventPartitionFailed: a write or a sync of a partition failed; it takes
	// no more records.
	EventPartitionFailed EventKind = "partition-failed"
	// EventPartitionRestarted: a partition that had been stopped runs again.
	EventPartitionRestarted EventKind = "partition-restarted"
	// EventDiskFull: free space fell below DiskReserve; produce is refused.
	EventDiskFull EventKind = "disk-full"
	// EventDiskFree: space is back and produce works again.
	EventDiskFree EventKind = "disk-free"
	// EventJournalOff: the journal failed; partitions sync their own files, so
	// that small durable records cost more.
	EventJournalOff EventKind = "journal-off"
	// EventRetention: segments were deleted. Offset is the start from now on.
	EventRetention EventKind = "retention"
	// EventOrphan: a folder of a partition belongs to no topic; it was left
	// alone.
	EventOrphan EventKind = "orphan"
	// EventInternal: an invariant below broke and one worker was stopped. Please
	// report it.
	EventInternal EventKind = "internal"
	// EventsDropped: OnEvent was too slow and events were dropped. Detail tells
	// how many since the last one of this kind.
	EventsDropped EventKind = "events-dropped"
)

// Event is something that an operator may want to know.
type Event struct {
	Kind EventKind
	Time time.Time
	// Topic is empty when the event concerns the node.
	Topic     string
	Partition int32
	// Offset is the offset concerned, or -1.
	Offset int64
	// Bytes and Duration are those of a catch-up.
	Bytes    int64
	Duration time.Duration
	// Err is the cause, or nil.
	Err error
	// Detail is for people.
	Detail string
}

// String returns the event as one line for people, without its time.
func (e Event) String() string {
	var s strings.Builder
	s.WriteString(string(e.Kind))
	if e.Topic != "" {
		fmt.Fprintf(&s, " %s/%d", e.Topic, e.Partition)
	}
	if e.Offset >= 0 && e.Topic != "" {
		fmt.Fprintf(&s, " offset %d", e.Offset)
	}
	if e.Detail != "" {
		s.WriteString(": " + e.Detail)
	}
	if e.Err != nil {
		s.WriteString(": " + e.Err.Error())
	}
	return s.String()
}

// severe tells whether something was or may be lost or does not work.
func (k EventKind) severe() bool {
	switch k {
	case EventUnsyncedLost, EventQuarantined, EventDamaged, EventRecovered, EventPartitionFailed, EventDiskFull,
		EventUnderReplicated, EventMetadataBroken, EventJournalOff, EventInternal, EventsDropped:
		return true
	}
	return false
}

// eventQueueMax bounds the events that wait for OnEvent.
const eventQueueMax = 1024

// eventQueue hands events to the user's function on a goroutine of its own.
type eventQueue struct {
	logger  *slog.Logger
	onEvent func(Event)
	wake    chan struct{}
	stop    chan struct{}
	done    chan struct{}

	mu struct {
		sync.Mutex
		events  []Event
		dropped int
	}
}

// newEventQueue starts the goroutine unless there is nobody to tell.
func newEventQueue(logger *slog.Logger, onEvent func(Event)) *eventQueue {
	q := &eventQueue{logger: logger, onEvent: onEvent,
		wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{})}
	if onEvent == nil {
		close(q.done)
		return q
	}
	go q.run()
	return q
}

// post logs the event and queues it. It never blocks.
func (q *eventQueue) post(e Event) {
	if q.logger != nil {
		level := slog.LevelInfo
		if e.Kind.severe() {
			level = slog.LevelWarn
		}
		q.logger.Log(context.Background(), level, "billet: "+e.String(), "kind", string(e.Kind))
	}
	if q.onEvent == nil {
		return
	}
	q.mu.Lock()
	if len(q.mu.events) >= eventQueueMax {
		q.mu.dropped++
	} else {
		q.mu.events = append(q.mu.events, e)
	}
	q.mu.Unlock()
	signal(q.wake)
}

func (q *eventQueue) run() {
	defer close(q.done)
	for {
		for _, e := range q.take() {
			q.onEvent(e)
		}
		select {
		case <-q.wake:
		case <-q.stop:
			for _, e := range q.take() {
				q.onEvent(e)
			}
			return
		}
	}
}

// take returns what is queued, and at its end what was dropped.
func (q *eventQueue) take() []Event {
	q.mu.Lock()
	defer q.mu.Unlock()
	events := q.mu.events
	q.mu.events = nil
	if q.mu.dropped > 0 {
		events = append(events, Event{Kind: EventsDropped, Time: time.Now(), Offset: -1,
			Detail: fmt.Sprintf("%d events came faster than OnEvent returned", q.mu.dropped)})
		q.mu.dropped = 0
	}
	return events
}

// close hands over what is queued and waits for it.
func (q *eventQueue) close() {
	close(q.stop)
	<-q.done
}

// signal wakes whoever receives from ch, once, without blocking. ch has room for
// one.
func signal(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
