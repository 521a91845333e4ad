package main

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/billetlog/billet"
)

// kafkaCollector makes metrics of what Kafka clients do.
type kafkaCollector struct {
	closed, requests, errors *prometheus.Desc
	each                     map[string]*prometheus.Desc // by name
}

// figure is one of several that have the same label.
type figure[T any] struct {
	name, help string
	kind       prometheus.ValueType
	value      func(m *T) float64
}

func listenerFigures() []figure[billet.KafkaListenerMetrics] {
	const gauge, counter = prometheus.GaugeValue, prometheus.CounterValue
	return []figure[billet.KafkaListenerMetrics]{
		{"kafka_connections", "Connections of Kafka clients.", gauge, func(m *billet.KafkaListenerMetrics) float64 { return float64(m.Open) }},
		{"kafka_connections_accepted_total", "Connections that were taken.", counter, func(m *billet.KafkaListenerMetrics) float64 { return float64(m.Accepted) }},
		{"kafka_connections_refused_total", "Connections that were one too many.", counter, func(m *billet.KafkaListenerMetrics) float64 { return float64(m.Refused) }},
		{"kafka_received_bytes_total", "Bytes of requests, without TLS.", counter, func(m *billet.KafkaListenerMetrics) float64 { return float64(m.BytesReceived) }},
		{"kafka_sent_bytes_total", "Bytes of answers, without TLS.", counter, func(m *billet.KafkaListenerMetrics) float64 { return float64(m.BytesSent) }},
	}
}

func memoryFigures() []figure[billet.KafkaMemoryMetrics] {
	const gauge, counter = prometheus.GaugeValue, prometheus.CounterValue
	return []figure[billet.KafkaMemoryMetrics]{
		{"kafka_memory_bytes", "Memory that clients have taken, of requests and of records on their way.", gauge, func(m *billet.KafkaMemoryMetrics) float64 { return float64(m.Used) }},
		{"kafka_memory_max_bytes", "What there is of it.", gauge, func(m *billet.KafkaMemoryMetrics) float64 { return float64(m.Max) }},
		{"kafka_memory_waiting", "Requests and answers that wait for it.", gauge, func(m *billet.KafkaMemoryMetrics) float64 { return float64(m.Waiting) }},
		{"kafka_memory_waits_total", "Requests and answers that had to.", counter, func(m *billet.KafkaMemoryMetrics) float64 { return float64(m.Waits) }},
		{"kafka_memory_wait_seconds_total", "Time that they waited.", counter, func(m *billet.KafkaMemoryMetrics) float64 { return m.WaitTime.Seconds() }},
	}
}

func produceFigures() []figure[billet.KafkaMetrics] {
	const counter = prometheus.CounterValue
	return []figure[billet.KafkaMetrics]{
		{"kafka_produce_waits_total", "Batches that waited since their partition had too much in flight.", counter, func(m *billet.KafkaMetrics) float64 { return float64(m.ProduceWaits) }},
		{"kafka_produce_wait_seconds_total", "Time that they waited.", counter, func(m *billet.KafkaMetrics) float64 { return m.ProduceWaitTime.Seconds() }},
	}
}

// closedBy are the causes of closed connections.
func closedBy(m *billet.KafkaCloseMetrics) map[string]uint64 {
	return map[string]uint64{
		"client": m.Client, "idle": m.Idle, "slow": m.Slow, "protocol": m.Protocol, "denied": m.Denied, "memory": m.Memory, "failed": m.Failed, "server": m.Server,
	}
}

func newKafkaCollector() *kafkaCollector {
	c := &kafkaCollector{
		closed:   prometheus.NewDesc("billet_kafka_connections_closed_total", "Connections that are over, by what ended them.", []string{"listener", "cause"}, nil),
		requests: prometheus.NewDesc("billet_kafka_request_seconds", "Time from when a request was read until its answer was there.", []string{"api"}, nil),
		errors:   prometheus.NewDesc("billet_kafka_errors_total", "Error codes in answers, each partition's by itself.", []string{"api", "code"}, nil),
		each:     map[string]*prometheus.Desc{},
	}
	for _, f := range listenerFigures() {
		c.each[f.name] = prometheus.NewDesc("billet_"+f.name, f.help, []string{"listener"}, nil)
	}
	for _, f := range memoryFigures() {
		c.each[f.name] = prometheus.NewDesc("billet_"+f.name, f.help, []string{"of"}, nil)
	}
	for _, f := range produceFigures() {
		c.each[f.name] = prometheus.NewDesc("billet_"+f.name, f.help, nil, nil)
	}
	return c
}

func (c *kafkaCollector) describe(out chan<- *prometheus.Desc) {
	out <- c.closed
	out <- c.requests
	out <- c.errors
	for _, d := range c.each {
		out <- d
	}
}

// give gives figures of one thing.
func give[T any](out chan<- prometheus.Metric, of map[string]*prometheus.Desc, figures []figure[T], m *T, labels ...string) {
	for _, f := range figures {
		out <- prometheus.MustNewConstMetric(of[f.name], f.kind, f.value(m), labels...)
	}
}

func (c *kafkaCollector) collect(out chan<- prometheus.Metric, m *billet.KafkaMetrics) {
	if len(m.Listeners) == 0 {
		return
	}
	for i := range m.Listeners {
		l := &m.Listeners[i]
		give(out, c.each, listenerFigures(), l, l.Name)
		for cause, n := range closedBy(&l.Closed) {
			out <- prometheus.MustNewConstMetric(c.closed, prometheus.CounterValue, float64(n), l.Name, cause)
		}
	}
	give(out, c.each, memoryFigures(), &m.RequestMemory, "requests")
	give(out, c.each, memoryFigures(), &m.FetchMemory, "fetches")
	give(out, c.each, produceFigures(), m)
	for i := range m.Requests {
		c.collectRequests(out, m, &m.Requests[i])
	}
}

// collectRequests gives a histogram, whose buckets count all that took no longer.
func (c *kafkaCollector) collectRequests(out chan<- prometheus.Metric, m *billet.KafkaMetrics, r *billet.KafkaRequestMetrics) {
	buckets, sum := map[float64]uint64{}, uint64(0)
	for i, n := range r.Times {
		if sum += n; i < len(m.RequestTimes) {
			buckets[m.RequestTimes[i].Seconds()] = sum
		}
	}
	out <- prometheus.MustNewConstHistogram(c.requests, sum, r.Time.Seconds(), buckets, r.Name)
	for code, n := range r.Errors {
		out <- prometheus.MustNewConstMetric(c.errors, prometheus.CounterValue, float64(n), r.Name, strconv.Itoa(int(code)))
	}
}
