package billet

import (
	"time"

	"github.com/billetlog/billet/transport/kafka"
)

// KafkaMetrics tells of Kafka clients of this node; its zero value when it serves none.
type KafkaMetrics struct {
	// Listeners has one entry for each listener.
	Listeners []KafkaListenerMetrics
	// Requests has one entry for each kind of request that was answered, by its number.
	// RequestTimes are the bounds of their Times.
	Requests     []KafkaRequestMetrics
	RequestTimes []time.Duration
	// RequestMemory is that of requests that are read or carried out, FetchMemory that of
	// records on their way to clients: Kafka.RequestMemoryMax and FetchMemoryMax bound them.
	RequestMemory, FetchMemory KafkaMemoryMetrics
	// ProduceWaits is how often a batch had to wait since its partition had too much in
	// flight, and with it what came behind it on its connection; ProduceWaitTime how long in
	// all. It is the only way in which clients are slowed down: there are no quotas.
	ProduceWaits    uint64
	ProduceWaitTime time.Duration
}

// KafkaListenerMetrics tells of the connections of one listener.
type KafkaListenerMetrics struct {
	Name string
	// Open is how many connections there are.
	Open int64
	// Accepted counts the connections that were taken, Refused those that were more than
	// Kafka.ConnectionsMax or ConnectionsPerHostMax.
	Accepted, Refused uint64
	// Closed counts those that are over.
	Closed KafkaCloseMetrics
	// BytesReceived and BytesSent count requests and answers, without TLS.
	BytesReceived, BytesSent uint64
}

// KafkaCloseMetrics counts connections by what ended them.
type KafkaCloseMetrics struct {
	// Client: it went.
	Client uint64
	// Idle: it asked nothing for Kafka.IdleTimeout.
	Idle uint64
	// Slow: it did not take its answer.
	Slow uint64
	// Protocol: it said what nobody may say, or nothing where it had to.
	Protocol uint64
	// Denied: it is not who it says it is.
	Denied uint64
	// Memory: it held memory that others waited for, and did not move.
	Memory uint64
	// Failed: a request failed that has no answer which could say so.
	Failed uint64
	// Server: this node closed.
	Server uint64
}

// KafkaRequestMetrics tells of one kind of request.
type KafkaRequestMetrics struct {
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
	// Errors counts the error codes in answers, each partition's by itself. Some are how the
	// protocol goes, such as 79 for a member that has no id yet.
	Errors map[int16]uint64
}

// KafkaMemoryMetrics tells of memory that clients share.
type KafkaMemoryMetrics struct {
	// Used is how many bytes of Max are taken.
	Used, Max int64
	// Waiting is how many wait for some now, Waits how many had to so far, and WaitTime how
	// long in all.
	Waiting  int64
	Waits    uint64
	WaitTime time.Duration
}

func newKafkaMetrics(s *kafka.Server) KafkaMetrics {
	seen := s.Metrics()
	m := KafkaMetrics{
		RequestTimes: kafka.RequestTimes(), RequestMemory: KafkaMemoryMetrics(seen.RequestMemory), FetchMemory: KafkaMemoryMetrics(seen.FetchMemory),
		ProduceWaits: seen.ProduceWaits, ProduceWaitTime: seen.ProduceWaitTime,
	}
	for _, l := range seen.Listeners {
		m.Listeners = append(m.Listeners, KafkaListenerMetrics{Name: l.Name, Open: l.Open, Accepted: l.Accepted, Refused: l.Refused,
			Closed: KafkaCloseMetrics(l.Closed), BytesReceived: l.BytesReceived, BytesSent: l.BytesSent})
	}
	for _, r := range seen.Requests {
		m.Requests = append(m.Requests, KafkaRequestMetrics(r))
	}
	return m
}
