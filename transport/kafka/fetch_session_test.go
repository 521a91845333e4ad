package kafka

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/internal/kerr"
)

// sessionClient fetches on one connection.
type sessionClient struct {
	*dataConn
	version int16
}

func (c *sessionClient) fetch(id, epoch int32, change func(q *kmsg.FetchRequest)) *kmsg.FetchResponse {
	c.t.Helper()
	q := fetchRequest(0)
	q.SessionID, q.SessionEpoch = id, epoch
	if change != nil {
		change(q)
	}
	if len(q.Topics[0].Partitions) == 0 {
		q.Topics = nil
	}
	c.send(q, c.version)
	r := kmsg.NewPtrFetchResponse()
	r.SetVersion(c.version)
	if err := c.receive(r); err != nil {
		c.t.Fatal(err)
	}
	return r
}

// numbers are the partitions that an answer has.
func numbers(r *kmsg.FetchResponse) (out []int32) {
	for _, t := range r.Topics {
		for _, p := range t.Partitions {
			out = append(out, p.Partition)
		}
	}
	return out
}

func wants(partitions ...int32) func(q *kmsg.FetchRequest) {
	return func(q *kmsg.FetchRequest) {
		for _, n := range partitions {
			p := kmsg.NewFetchRequestTopicPartition()
			p.Partition, p.PartitionMaxBytes = n, 1<<20
			q.Topics[0].Partitions = append(q.Topics[0].Partitions, p)
		}
	}
}

func expect(t *testing.T, what string, r *kmsg.FetchResponse, id int32, want ...int32) {
	t.Helper()
	got := numbers(r)
	same := len(got) == len(want)
	for i := range got {
		same = same && got[i] == want[i]
	}
	if !same || r.ErrorCode != 0 || r.SessionID != id {
		t.Errorf("%s: partitions %v, want %v; code %d, session %d", what, got, want, r.ErrorCode, r.SessionID)
	}
}

// A session tells what is new, and no more.
func TestFetchSession(t *testing.T) {
	for _, version := range []int16{7, 12, 13, 17} {
		parts := []*dataPartition{newDataPartition(), newDataPartition(), newDataPartition()}
		s := serveAdmin(t, oneTopic(parts...))
		c := &sessionClient{dialData(t, s), version}
		r := c.fetch(0, sessionNew, wants(0, 1))
		id := r.SessionID
		if id == 0 {
			t.Fatal("no session")
		}
		expect(t, "full", r, id, 0, 1)
		expect(t, "nothing new", c.fetch(id, 1, nil), id)
		parts[1].add(dataBatch(t, 0, 1, 10))
		parts[0].add(dataBatch(t, 0, 1, 10))
		expect(t, "records", c.fetch(id, 2, nil), id, 0, 1)
		parts[0].add(dataBatch(t, 1, 1, 10))
		advance := func(q *kmsg.FetchRequest) {
			wants(1)(q)
			q.Topics[0].Partitions[0].FetchOffset = 1
		}
		expect(t, "an offset that moved", c.fetch(id, 3, advance), id, 0)
		expect(t, "one more", c.fetch(id, 4, wants(2)), id, 0, 2)
		expect(t, "what had records", c.fetch(id, 5, wants(2)), id, 0)
		parts[2].add(dataBatch(t, 0, 1, 10))
		expect(t, "comes last", c.fetch(id, 6, nil), id, 2, 0)
		forget := func(q *kmsg.FetchRequest) {
			q.ForgottenTopics = []kmsg.FetchRequestForgottenTopic{{Topic: "t", TopicID: TopicID{1}, Partitions: []int32{0, 7}}}
		}
		expect(t, "one less", c.fetch(id, 7, forget), id, 2)
		parts[1].set(func() { parts[1].at.HighWatermark, parts[1].at.End = 3, 3 })
		parts[1].set(func() { parts[1].batches = nil })
		expect(t, "a mark that moved", c.fetch(id, 8, nil), id, 1, 2)
		missing := c.fetch(id, 9, wants(9))
		expect(t, "an error", missing, id, 2, 9)
		expect(t, "the error again", c.fetch(id, 10, nil), id, 9, 2)
		if n := s.sessionParts.Load(); n != 3 {
			t.Errorf("%d partitions are remembered", n)
		}
		expect(t, "closed", c.fetch(id, sessionNone, wants(0)), 0, 0)
		if n := s.sessionParts.Load(); n != 0 {
			t.Errorf("%d partitions are remembered of nobody", n)
		}
		if r := c.fetch(id, 11, nil); r.ErrorCode != kerr.FETCH_SESSION_ID_NOT_FOUND || r.SessionID != 0 {
			t.Errorf("a session that was closed: code %d", r.ErrorCode)
		}
	}
}

// What does not fit the session is refused, and the session goes on.
func TestFetchSessionErrors(t *testing.T) {
	s := serveAdmin(t, oneTopic(newDataPartition()))
	c := &sessionClient{dialData(t, s), 12}
	id := c.fetch(0, sessionNew, wants(0)).SessionID
	if code := c.fetch(0, 1, wants(0)).ErrorCode; code != kerr.FETCH_SESSION_ID_NOT_FOUND {
		t.Errorf("no id: code %d", code)
	}
	if code := c.fetch(id, 2, nil).ErrorCode; code != kerr.INVALID_FETCH_SESSION_EPOCH {
		t.Errorf("a wrong epoch: code %d", code)
	}
	c.version = 13
	if code := c.fetch(id, 1, nil).ErrorCode; code != kerr.FETCH_SESSION_TOPIC_ID_ERROR {
		t.Errorf("by id, which was by name: code %d", code)
	}
	c.version = 12
	expect(t, "the session goes on", c.fetch(id, 1, nil), id)
	other := &sessionClient{dialData(t, s), 12}
	if code := other.fetch(id, 2, nil).ErrorCode; code != kerr.FETCH_SESSION_ID_NOT_FOUND {
		t.Errorf("another connection: code %d", code)
	}
	again := c.fetch(id, sessionNew, wants(0))
	if again.SessionID == 0 {
		t.Error("a session does not begin anew")
	}
	s.sessionParts.Add(sessionPartsMax)
	expect(t, "no room", c.fetch(0, sessionNew, wants(0)), 0, 0)
	s.sessionParts.Add(-sessionPartsMax)
	if n := s.sessionParts.Load(); n != 0 {
		t.Errorf("%d partitions are remembered of nobody", n)
	}
}

// The session of a connection that ends is forgotten.
func TestFetchSessionEnds(t *testing.T) {
	s := serveAdmin(t, oneTopic(newDataPartition()))
	c := &sessionClient{dialData(t, s), 12}
	c.fetch(0, sessionNew, wants(0))
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), askTimeout)
	defer cancel()
	for s.sessionParts.Load() != 0 {
		if ctx.Err() != nil {
			t.Fatal("it is remembered")
		}
	}
}

// renewedBroker has a topic that is deleted, and another one of its name.
type renewedBroker struct {
	*dataBroker
	gone, again atomic.Bool
}

func (b *renewedBroker) TopicName(id TopicID) (string, bool) {
	if b.gone.Load() {
		return "", false
	}
	return b.dataBroker.TopicName(id)
}

func (b *renewedBroker) Partition(topic string, number int32) (Partition, error) {
	if b.gone.Load() && !b.again.Load() {
		return nil, kerr.Errorf(kerr.UNKNOWN_TOPIC_OR_PARTITION, "gone")
	}
	return b.dataBroker.Partition(topic, number)
}

// A session tells whether a topic that it knew is gone, or another one.
func TestFetchSessionTopicGone(t *testing.T) {
	b := &renewedBroker{dataBroker: oneTopic(newDataPartition())}
	c := &sessionClient{dialData(t, serveAdmin(t, b)), fetchByID}
	id := c.fetch(0, sessionNew, wants(0)).SessionID
	tells := func(epoch int32, want int16) {
		t.Helper()
		r := c.fetch(id, epoch, wants())
		if len(r.Topics) != 1 || len(r.Topics[0].Partitions) != 1 || r.Topics[0].Partitions[0].ErrorCode != want {
			t.Errorf("epoch %d: %+v, want code %d", epoch, r.Topics, want)
		}
	}
	b.gone.Store(true)
	tells(1, kerr.UNKNOWN_TOPIC_OR_PARTITION)
	b.again.Store(true)
	tells(2, kerr.INCONSISTENT_TOPIC_ID)
	tells(3, kerr.INCONSISTENT_TOPIC_ID)
	b.gone.Store(false)
	r := c.fetch(id, 4, wants())
	expect(t, "it was there all the time", r, id, 0)
	b.gone.Store(true)
	if r := c.fetch(0, sessionNone, wants(0)); r.Topics[0].Partitions[0].ErrorCode != kerr.UNKNOWN_TOPIC_ID {
		t.Errorf("without a session: code %d", r.Topics[0].Partitions[0].ErrorCode)
	}
}

// A session may begin without partitions.
func TestFetchSessionEmpty(t *testing.T) {
	c := &sessionClient{dialData(t, serveAdmin(t, oneTopic(newDataPartition()))), 12}
	id := c.fetch(0, sessionNew, wants()).SessionID
	if id == 0 {
		t.Fatal("no session")
	}
	expect(t, "with a partition", c.fetch(id, 1, wants(0)), id, 0)
}
