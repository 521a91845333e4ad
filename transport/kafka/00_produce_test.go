package kafka

import (
	"encoding/binary"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/internal/batch"
	"github.com/billetlog/billet/internal/kerr"
)

// produceRequest writes records into partitions of topic "t", which has the id 1.
func produceRequest(acks int16, records ...[]byte) *kmsg.ProduceRequest {
	q := kmsg.NewPtrProduceRequest()
	q.Acks, q.TimeoutMillis = acks, int32(askTimeout/time.Millisecond)
	t := kmsg.ProduceRequestTopic{Topic: "t", TopicID: TopicID{1}}
	for i, r := range records {
		t.Partitions = append(t.Partitions, kmsg.ProduceRequestTopicPartition{Partition: int32(i), Records: r})
	}
	q.Topics = append(q.Topics, t)
	return q
}

func oneTopic(partitions ...*dataPartition) *dataBroker {
	return &dataBroker{topics: map[string][]*dataPartition{"t": partitions}, ids: map[TopicID]string{{1}: "t"}}
}

// Every version stores the batch and tells where.
func TestProduce(t *testing.T) {
	b := oneTopic(newDataPartition(), newDataPartition())
	b.topics["t"][0].at.Start, b.topics["t"][0].at.End = 3, 40
	s := serveAdmin(t, b)
	versionsOf(t, kmsg.Produce, func(t *testing.T, version int16) {
		before := b.topics["t"][0].Offsets().End
		r := askAdmin[*kmsg.ProduceResponse](t, s, produceRequest(-1, dataBatch(t, 0, 2, 10), dataBatch(t, 0, 1, 10)), version)
		if len(r.Topics) != 1 || len(r.Topics[0].Partitions) != 2 {
			t.Fatalf("%+v", r)
		}
		first := r.Topics[0].Partitions[0]
		if first.ErrorCode != 0 || first.BaseOffset != before || first.LogAppendTime != -1 || first.ErrorMessage != nil {
			t.Errorf("%+v", first)
		}
		if version >= 5 && first.LogStartOffset != 3 {
			t.Errorf("log start %d", first.LogStartOffset)
		}
		if name := r.Topics[0].Topic; version < 13 && name != "t" || version >= 13 && r.Topics[0].TopicID != (TopicID{1}) {
			t.Errorf("topic %q %x", name, r.Topics[0].TopicID)
		}
		if end := b.topics["t"][0].Offsets().End; end != before+2 {
			t.Errorf("end %d, was %d", end, before)
		}
	})
}

// What clients must not send is refused with Kafka's codes, partition by partition.
func TestProduceRefusals(t *testing.T) {
	good := func() []byte { return dataBatch(t, 0, 1, 10) }
	with := func(change func(b batch.Batch)) []byte {
		b := append(batch.Batch{}, good()...)
		change(b)
		return b
	}
	attribute := func(bits byte) []byte { return with(func(b batch.Batch) { b[batch.AttributesOffset+1] |= bits }) }
	for name, c := range map[string]struct {
		records []byte
		version int16
		want    int16
	}{
		"good":            {good(), 9, kerr.NONE},
		"nothing":         {nil, 9, kerr.INVALID_RECORD},
		"cut off":         {good()[:70], 9, kerr.INVALID_RECORD},
		"two batches":     {append(good(), good()...), 9, kerr.INVALID_RECORD},
		"old format":      {with(func(b batch.Batch) { b[batch.MagicOffset] = 1 }), 9, kerr.INVALID_RECORD},
		"length":          {with(func(b batch.Batch) { binary.BigEndian.PutUint32(b[batch.LengthOffset:], 3) }), 9, kerr.CORRUPT_MESSAGE},
		"one and a half":  {append(good(), good()[:70]...), 9, kerr.NONE},
		"format to come":  {with(func(b batch.Batch) { b[batch.MagicOffset] = 3 }), 9, kerr.CORRUPT_MESSAGE},
		"base offset":     {with(func(b batch.Batch) { b.SetBaseOffset(1) }), 9, kerr.INVALID_RECORD},
		"count":           {with(func(b batch.Batch) { b[batch.CountOffset+3]++; b.SetMaxTimestamp(1000) }), 9, kerr.INVALID_RECORD},
		"control":         {attribute(1 << 5), 9, kerr.INVALID_RECORD},
		"append time":     {attribute(1 << 3), 9, kerr.INVALID_TIMESTAMP},
		"zstd, too early": {attribute(4), 6, kerr.UNSUPPORTED_COMPRESSION_TYPE},
		"zstd":            {attribute(4), 7, kerr.NONE},
	} {
		t.Run(name, func(t *testing.T) {
			b := oneTopic(newDataPartition(), newDataPartition())
			s := serveAdmin(t, b)
			r := askAdmin[*kmsg.ProduceResponse](t, s, produceRequest(-1, c.records, good()), c.version)
			got := r.Topics[0].Partitions
			if got[0].ErrorCode != c.want || got[1].ErrorCode != kerr.NONE {
				t.Errorf("codes %d and %d, want %d and 0", got[0].ErrorCode, got[1].ErrorCode, c.want)
			}
			if c.want != kerr.NONE && (got[0].BaseOffset != -1 || c.version >= 8 && (got[0].ErrorMessage != nil) != (c.want == kerr.INVALID_TIMESTAMP)) {
				t.Errorf("%+v", got[0])
			}
		})
	}
}

// Records at fault are named (KIP-467), so many in one answer.
func TestProduceNamesRecords(t *testing.T) {
	few, many := newDataPartition(), newDataPartition()
	few.checked = &kerr.Error{Code: kerr.INVALID_TIMESTAMP, Message: "old", Records: []kerr.RecordError{{Index: 3, Message: "very old"}}}
	many.checked = &kerr.Error{Code: kerr.INVALID_TIMESTAMP, Message: "old", Records: make([]kerr.RecordError, produceFaultsMax)}
	s := serveAdmin(t, oneTopic(few, many))
	got := askAdmin[*kmsg.ProduceResponse](t, s, produceRequest(-1, dataBatch(t, 0, 1, 10), dataBatch(t, 0, 1, 10)), 9).Topics[0].Partitions
	if named := got[0].ErrorRecords; len(named) != 1 || named[0].RelativeOffset != 3 || named[0].ErrorMessage == nil || *named[0].ErrorMessage != "very old" {
		t.Errorf("%+v", named)
	}
	if len(got[1].ErrorRecords) != produceFaultsMax-1 {
		t.Errorf("%d records are named after another one", len(got[1].ErrorRecords))
	}
}

// Errors that are not about the batch.
func TestProduceErrors(t *testing.T) {
	internal, checked, failing := newDataPartition(), newDataPartition(), newDataPartition()
	internal.internal = true
	checked.checked = kerr.Errorf(kerr.MESSAGE_TOO_LARGE, "too large")
	failing.failing = errors.New("secret")
	b := oneTopic(internal, checked, failing)
	s := serveAdmin(t, b)
	one := dataBatch(t, 0, 1, 1)
	r := askAdmin[*kmsg.ProduceResponse](t, s, produceRequest(1, one, one, one, one), 9)
	want := []int16{kerr.INVALID_TOPIC_EXCEPTION, kerr.MESSAGE_TOO_LARGE, kerr.UNKNOWN_SERVER_ERROR, kerr.UNKNOWN_TOPIC_OR_PARTITION}
	for i, p := range r.Topics[0].Partitions {
		if p.ErrorCode != want[i] {
			t.Errorf("partition %d: code %d, want %d", i, p.ErrorCode, want[i])
		}
	}
	r = askAdmin[*kmsg.ProduceResponse](t, s, produceRequest(2, one), 9)
	if code := r.Topics[0].Partitions[0].ErrorCode; code != kerr.INVALID_REQUIRED_ACKS {
		t.Errorf("acks=2: code %d", code)
	}
	q := produceRequest(-1, one)
	q.Topics[0].TopicID = TopicID{9}
	if code := askAdmin[*kmsg.ProduceResponse](t, s, q, 13).Topics[0].Partitions[0].ErrorCode; code != kerr.UNKNOWN_TOPIC_ID {
		t.Errorf("unknown id: code %d", code)
	}
}

// Who sends to the wrong node is told the right one.
func TestProduceRedirects(t *testing.T) {
	moved := newDataPartition()
	moved.failing, moved.leader = kerr.Errorf(kerr.NOT_LEADER_OR_FOLLOWER, "moved"), dataOther
	s := serveAdmin(t, oneTopic(moved))
	versionsOf(t, kmsg.Produce, func(t *testing.T, version int16) {
		r := askAdmin[*kmsg.ProduceResponse](t, s, produceRequest(-1, dataBatch(t, 0, 1, 1)), version)
		p := r.Topics[0].Partitions[0]
		if p.ErrorCode != kerr.NOT_LEADER_OR_FOLLOWER {
			t.Fatalf("%+v", p)
		}
		if version < 10 {
			return
		}
		if p.CurrentLeader.LeaderID != dataOther || p.CurrentLeader.LeaderEpoch != 5 || len(r.Brokers) != 1 || r.Brokers[0].Host != "eight" || *r.Brokers[0].Rack != "r" {
			t.Errorf("%+v %+v", p.CurrentLeader, r.Brokers)
		}
	})
}

// Requests without acknowledgement are not answered; one that fails ends the connection.
func TestProduceWithoutAcks(t *testing.T) {
	b := oneTopic(newDataPartition())
	c := dialData(t, serveAdmin(t, b))
	c.send(produceRequest(0, dataBatch(t, 0, 1, 1)), 9)
	c.send(produceRequest(1, dataBatch(t, 0, 1, 1)), 9)
	q := produceRequest(1)
	r := q.ResponseKind().(*kmsg.ProduceResponse)
	r.SetVersion(9)
	if err := c.receive(r); err != nil || r.Topics[0].Partitions[0].BaseOffset != 1 {
		t.Fatalf("%+v %v", r, err)
	}
	c.send(produceRequest(0, nil), 9)
	if err := c.receive(r); !errors.Is(err, io.EOF) {
		t.Errorf("the connection goes on: %v", err)
	}
}

// Requests of a connection do not wait for one another's answers, and those come in
// order.
func TestProducePipelined(t *testing.T) {
	p := newDataPartition()
	p.hold = true
	const requests = 5
	c := dialData(t, serveAdmin(t, oneTopic(p)))
	for range requests {
		c.send(produceRequest(-1, dataBatch(t, 0, 1, 1)), 9)
	}
	for range requests { // they do not wait for one another
		eventually(t, p.appends)
	}
	p.release()
	for i := range requests {
		r := kmsg.NewPtrProduceResponse()
		r.SetVersion(9)
		if err := c.receive(r); err != nil || r.Topics[0].Partitions[0].BaseOffset != int64(i) {
			t.Fatalf("answer %d: %+v %v", i, r.Topics, err)
		}
	}
}

// Replicas that take too long are not waited for beyond the request's timeout.
func TestProduceTimeout(t *testing.T) {
	slow, quick := newDataPartition(), newDataPartition()
	slow.hold = true
	s := serveAdmin(t, oneTopic(slow, quick))
	q := produceRequest(-1, dataBatch(t, 0, 1, 1), dataBatch(t, 0, 1, 1))
	q.TimeoutMillis = 50
	got := askAdmin[*kmsg.ProduceResponse](t, s, q, 9).Topics[0].Partitions
	if got[0].ErrorCode != kerr.REQUEST_TIMED_OUT || got[0].BaseOffset != -1 || got[1].ErrorCode != kerr.NONE {
		t.Errorf("%+v", got)
	}
	slow.release() // too late, and harmless
}

// A partition without room is waited for, until it has some or the time is over.
func TestProduceBusy(t *testing.T) {
	p := newDataPartition()
	p.busy = 2 // the first time, and once more when it is being listened to
	s := serveAdmin(t, oneTopic(p))
	c := dialData(t, s)
	c.send(produceRequest(-1, dataBatch(t, 0, 1, 1)), 9)
	eventually(t, p.waits)
	p.add(dataBatch(t, 0, 1, 1))
	r := kmsg.NewPtrProduceResponse()
	r.SetVersion(9)
	if err := c.receive(r); err != nil || r.Topics[0].Partitions[0].ErrorCode != kerr.NONE || r.Topics[0].Partitions[0].BaseOffset != 1 {
		t.Fatalf("%+v %v", r.Topics, err)
	}
	p.set(func() { p.busy = 1 << 30 })
	q := produceRequest(-1, dataBatch(t, 0, 1, 1))
	q.TimeoutMillis = 20
	if code := askAdmin[*kmsg.ProduceResponse](t, s, q, 9).Topics[0].Partitions[0].ErrorCode; code != kerr.REQUEST_TIMED_OUT {
		t.Errorf("code %d", code)
	}
}
