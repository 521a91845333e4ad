package kafka

import (
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/internal/kerr"
)

// settled waits until metrics are as a test wants them: what ends a connection is counted
// when it is over.
func settled(t *testing.T, s *Server, want func(m *Metrics) bool) {
	t.Helper()
	deadline := time.After(askTimeout)
	for {
		m := s.Metrics()
		if want(&m) {
			return
		}
		select {
		case <-time.After(time.Millisecond):
		case <-deadline:
			t.Fatalf("it stays at %+v", m)
		}
	}
}

func requestsOf(m *Metrics, key kmsg.Key) (r RequestMetrics) {
	for _, one := range m.Requests {
		if one.Key == key.Int16() {
			r = one
		}
	}
	return r
}

func TestMetricsOfRequests(t *testing.T) {
	good, bad, late := newDataPartition(), newDataPartition(), newDataPartition()
	bad.checked = kerr.Errorf(kerr.MESSAGE_TOO_LARGE, "too large")
	late.busy = 1
	s := serveAdmin(t, oneTopic(good, bad, late))
	b := dataBatch(t, 0, 3, 100)
	for range 2 {
		askAdmin[*kmsg.ProduceResponse](t, s, produceRequest(-1, b, b), 9)
	}
	none := produceRequest(-1, b, b, b)
	none.Topics[0].Partitions[0].Partition = 99
	askAdmin[*kmsg.ProduceResponse](t, s, none, 9)
	q := fetchRequest(1)
	q.Topics[0].Partitions[0].FetchOffset = 1 << 40
	askAdmin[*kmsg.FetchResponse](t, s, q, 12)
	settled(t, s, func(m *Metrics) bool { return m.Listeners[0].Closed.Client == 4 })
	m := s.Metrics()
	p, f := requestsOf(&m, kmsg.Produce), requestsOf(&m, kmsg.Fetch)
	if p.Count != 3 || p.Name != "Produce" || len(p.Errors) != 2 || p.Errors[kerr.MESSAGE_TOO_LARGE] != 3 || p.Errors[kerr.UNKNOWN_TOPIC_OR_PARTITION] != 1 {
		t.Errorf("produce: %+v", p)
	}
	if f.Count != 1 || f.Errors[kerr.OFFSET_OUT_OF_RANGE] != 1 || len(m.Requests) != 2 {
		t.Errorf("fetch: %+v of %d kinds", f, len(m.Requests))
	}
	var counted uint64
	for _, n := range p.Times {
		counted += n
	}
	if counted != p.Count || len(p.Times) != len(RequestTimes())+1 || p.Time <= 0 {
		t.Errorf("times %v, %v in all", p.Times, p.Time)
	}
	if m.ProduceWaits != 1 || m.ProduceWaitTime <= 0 {
		t.Errorf("%d batches waited for %v", m.ProduceWaits, m.ProduceWaitTime)
	}
	l := m.Listeners[0]
	if l.Name != "CLIENT" || l.Accepted != 4 || l.Open != 0 || l.BytesReceived < uint64(7*len(b)) || l.BytesSent < 100 {
		t.Errorf("%+v", l)
	}
	if m.RequestMemory.Used != 0 || m.RequestMemory.Max < s.opts.RequestMemoryMax || m.FetchMemory.Used != 0 || m.FetchMemory.Max != s.opts.FetchMemoryMax {
		t.Errorf("memory of requests %+v, of fetches %+v", m.RequestMemory, m.FetchMemory)
	}
}

// Each end of a connection counts under what brought it about.
func TestMetricsOfConnections(t *testing.T) {
	count := func(t *testing.T, change func(*Options), begin func(r *connRig), want func(m *ListenerMetrics) bool) {
		t.Helper()
		r := newConnRig(t, change)
		r.shedAfter = time.Second / 2
		r.answerTo(kmsg.CreateTopics, func(_ *call, _ kmsg.Request, a *answer) { a.giveEncoded(net.Buffers{make([]byte, 64<<20)}, true, nil) })
		r.answerTo(kmsg.DeleteTopics, func(*call, kmsg.Request, *answer) { panic("a fault") })
		r.Serve()
		begin(r)
		settled(t, r.Server, func(m *Metrics) bool { return want(&m.Listeners[0]) })
	}
	all := func(*Options) {}
	for name, c := range map[string]struct {
		change func(*Options)
		begin  func(r *connRig)
		want   func(m *ListenerMetrics) bool
	}{
		"open":     {all, func(r *connRig) { r.dial() }, func(m *ListenerMetrics) bool { return m.Open == 1 && m.Accepted == 1 }},
		"client":   {all, func(r *connRig) { _ = r.dial().Close() }, func(m *ListenerMetrics) bool { return m.Closed.Client == 1 && m.Open == 0 }},
		"protocol": {all, func(r *connRig) { r.dial().write([]byte("GET / HTTP/1.1\r\n")) }, func(m *ListenerMetrics) bool { return m.Closed.Protocol == 1 }},
		"idle":     {func(o *Options) { o.IdleTimeout = time.Millisecond }, func(r *connRig) { r.dial() }, func(m *ListenerMetrics) bool { return m.Closed.Idle == 1 }},
		"slow": {func(o *Options) { o.WriteTimeout = time.Millisecond }, func(r *connRig) { r.dial().write(frameOf(kmsg.NewPtrCreateTopicsRequest(), 5, 1)) },
			func(m *ListenerMetrics) bool { return m.Closed.Slow == 1 }},
		"failed":  {all, func(r *connRig) { r.dial().write(frameOf(kmsg.NewPtrDeleteTopicsRequest(), 5, 1)) }, func(m *ListenerMetrics) bool { return m.Closed.Failed == 1 }},
		"refused": {func(o *Options) { o.ConnectionsMax = 1 }, func(r *connRig) { r.dial(); _, _ = r.tryDial() }, func(m *ListenerMetrics) bool { return m.Refused == 1 && m.Open == 1 }},
		"server":  {all, func(r *connRig) { r.alive(); _ = r.Close() }, func(m *ListenerMetrics) bool { return m.Closed.Server == 1 }},
		"denied": {func(o *Options) { o.Listeners[0].SASL = []string{"PLAIN"} }, func(r *connRig) {
			c := r.dial()
			h := kmsg.NewPtrSASLHandshakeRequest()
			h.Mechanism = "PLAIN"
			ask[*kmsg.SASLHandshakeResponse](c, h, 1)
			q := kmsg.NewPtrSASLAuthenticateRequest()
			q.SASLAuthBytes = []byte("\x00nobody\x00wrong")
			c.write(frameOf(q, 1, 2))
		}, func(m *ListenerMetrics) bool { return m.Closed.Denied == 1 }},
		"memory": {func(o *Options) { o.ReadTimeout, o.RequestBytesMax, o.RequestMemoryMax = time.Hour, 1<<20, 1<<20 }, func(r *connRig) {
			for range 2 {
				r.dial().write(bigEndian(1<<20, int16(kmsg.CreateTopics), int16(5), "and no more"))
			}
			settled(r.t, r.Server, func(m *Metrics) bool {
				return m.RequestMemory.Waits == 1 && m.RequestMemory.Waiting == 1 && m.RequestMemory.Used == 1<<20
			})
		}, func(m *ListenerMetrics) bool { return m.Closed.Memory == 2 }},
	} {
		t.Run(name, func(t *testing.T) { count(t, c.change, c.begin, c.want) })
	}
}
