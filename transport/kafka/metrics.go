package kafka

import (
	"slices"
	"time"
)

// Metrics is a snapshot of a Server. Counters count since Open.
type Metrics struct {
	// Listeners has one entry for each, in the order of Options.
	Listeners []ListenerMetrics
	// Requests has one entry for each kind that was asked, by key.
	Requests []RequestMetrics
	// RequestMemory is that of requests that are read or carried out, FetchMemory that of
	// records on their way to clients.
	RequestMemory, FetchMemory MemoryMetrics
	// ProduceWaits is how often a batch had to wait since its partition had too much in
	// flight, and with it what came behind it on its connection; ProduceWaitTime how long in
	// all.
	ProduceWaits    uint64
	ProduceWaitTime time.Duration
}

// ListenerMetrics tells of the connections of one listener.
type ListenerMetrics struct {
	Name string
	// Open is how many connections there are.
	Open int64
	// Accepted counts the connections that were taken, Refused those that were one too many.
	Accepted, Refused uint64
	// Closed counts those that are over.
	Closed CloseMetrics
	// BytesReceived and BytesSent count requests and answers, without TLS.
	BytesReceived, BytesSent uint64
}

// CloseMetrics counts connections by what ended them.
type CloseMetrics struct {
	// Client: it went.
	Client uint64
	// Idle: it asked nothing for IdleTimeout.
	Idle uint64
	// Slow: it did not take its answer within WriteTimeout.
	Slow uint64
	// Protocol: it said what nobody may say, or nothing where it had to.
	Protocol uint64
	// Denied: it is not who it says it is.
	Denied uint64
	// Memory: it held memory that others waited for, and did not move.
	Memory uint64
	// Failed: a request failed that has no answer which could say so.
	Failed uint64
	// Server: this one closed.
	Server uint64
}

// RequestMetrics tells of one kind of request.
type RequestMetrics struct {
	// Key is the kind's number in Kafka's protocol, Name what it is called there.
	Key  int16
	Name string
	// Count is how many were answered. A fetch that waits for records, or a member that waits
	// for others, counts when it has its answer.
	Count uint64
	// Time is how long they took in all, from when they were read until the answer was
	// there. Times counts them by that: those that took up to each of RequestTimes, but longer
	// than the one before, and last those that took longer than all.
	Time  time.Duration
	Times []uint64
	// Errors counts the error codes in answers, each partition's by itself.
	Errors map[int16]uint64
}

// MemoryMetrics tells of memory that clients share.
type MemoryMetrics struct {
	// Used is how many bytes of Max are taken.
	Used, Max int64
	// Waiting is how many wait for some now, Waits how many had to so far, and WaitTime how
	// long in all.
	Waiting  int64
	Waits    uint64
	WaitTime time.Duration
}

// RequestTimes are the bounds by which RequestMetrics.Times counts.
func RequestTimes() []time.Duration { return slices.Clone(requestTimes[:]) }

// Metrics returns a snapshot.
func (s *Server) Metrics() Metrics {
	m := Metrics{
		RequestMemory: s.memory.metrics(), FetchMemory: s.fetchMemory.metrics(),
		ProduceWaits: s.produceWaits.Load(), ProduceWaitTime: time.Duration(s.produceWaited.Load()),
	}
	for _, l := range s.listeners {
		m.Listeners = append(m.Listeners, l.metrics())
	}
	for _, a := range s.apis {
		if a.stats.count.Load() > 0 {
			m.Requests = append(m.Requests, a.metrics())
		}
	}
	slices.SortFunc(m.Requests, func(a, b RequestMetrics) int { return int(a.Key) - int(b.Key) })
	return m
}

func (b *budget) metrics() MemoryMetrics {
	return MemoryMetrics{Used: b.used.Load(), Max: b.most, Waiting: b.waiting.Load(), Waits: b.waits.Load(), WaitTime: time.Duration(b.waited.Load())}
}

// metrics adds up what requests wait for.
func (m *memory) metrics() MemoryMetrics {
	out := MemoryMetrics{Used: m.all.used.Load() + m.early.used.Load(), Max: m.all.most + m.early.most}
	for _, b := range []*budget{m.all, m.large, m.early} {
		one := b.metrics()
		out.Waiting, out.Waits, out.WaitTime = out.Waiting+one.Waiting, out.Waits+one.Waits, out.WaitTime+one.WaitTime
	}
	return out
}

func (l *listener) metrics() ListenerMetrics {
	s := &l.stats
	return ListenerMetrics{
		Name: l.opts.Name, Open: s.open.Load(), Accepted: s.accepted.Load(), Refused: s.refused.Load(),
		BytesReceived: s.received.Load(), BytesSent: s.sent.Load(),
		Closed: CloseMetrics{
			Client: s.closed[closedClient].Load(), Idle: s.closed[closedIdle].Load(), Slow: s.closed[closedSlow].Load(),
			Protocol: s.closed[closedProtocol].Load(), Denied: s.closed[closedDenied].Load(), Memory: s.closed[closedMemory].Load(),
			Failed: s.closed[closedFailed].Load(), Server: s.closed[closedServer].Load(),
		},
	}
}

func (a *api) metrics() RequestMetrics {
	s := a.stats
	m := RequestMetrics{Key: a.key.Int16(), Name: a.key.Name(), Count: s.count.Load(), Time: time.Duration(s.nanos.Load()), Errors: map[int16]uint64{}}
	for i := range s.times {
		m.Times = append(m.Times, s.times[i].Load())
	}
	for i := range s.codes {
		if n := s.codes[i].Load(); n > 0 {
			m.Errors[int16(i-1)] = n
		}
	}
	return m
}
