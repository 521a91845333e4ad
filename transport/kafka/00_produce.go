package kafka

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/internal/batch"
	"github.com/billetlog/billet/internal/kerr"
)

// The versions of Produce. Versions 0 to 2, of older message formats, are advertised and
// not served, as Kafka does: librdkafka before 2.11 takes them for a sign that a broker
// knows compression.
const (
	produceMin    = 3
	produceMax    = 13
	produceByID   = 13 // topics are given by id
	produceZstd   = 7  // the first version whose clients know zstd
	produceLeader = 10 // the first version that tells who leads
)

// busyTimeout bounds how long an append waits for room where the request does not.
const busyTimeout = 30 * time.Second

// ackTimeoutMin is how long replicas are waited for at least: a client that gives no time
// expects what is there at once in Kafka, which does not wait for a disk.
const ackTimeoutMin = time.Second

// What a producer wants to wait for.
const (
	acksAll  = -1
	acksNone = 0
	acksOne  = 1
)

// Produce, versions 3 to 13. Partitions are appended to in their order and answered when
// all are done; a request that waits for all replicas is answered after its timeout. A
// partition that has too much in flight is waited for, and the client's connection with
// it. Batches of transactions are refused, since there are none.
func (c *call) produce(request kmsg.Request, a *answer) {
	q := request.(*kmsg.ProduceRequest)
	p := &produce{call: c, answer: a, q: q, r: q.ResponseKind().(*kmsg.ProduceResponse)}
	p.slots()
	if err := p.refused(); err != nil {
		p.all(err)
		return
	}
	p.settled(p.append())
}

// produce is a request under way.
type produce struct {
	*call
	answer *answer
	q      *kmsg.ProduceRequest
	r      *kmsg.ProduceResponse

	mu struct {
		sync.Mutex
		open     int  // partitions without a result
		moved    bool // some partition is led elsewhere
		answered bool
		faults   int // records that the answer names
		timer    *time.Timer
	}
}

// produceFaultsMax bounds the records that one answer names: what it says of each is
// longer than a record can be.
const produceFaultsMax = 1000

// faultsLocked are the records that are at fault (KIP-467).
func (p *produce) faultsLocked(err error) (named []kmsg.ProduceResponseTopicPartitionErrorRecord) {
	var told *kerr.Error
	if !errors.As(err, &told) {
		return nil
	}
	records := told.Records[:min(len(told.Records), produceFaultsMax-p.mu.faults)]
	p.mu.faults += len(records)
	for i := range records {
		named = append(named, kmsg.ProduceResponseTopicPartitionErrorRecord{RelativeOffset: records[i].Index, ErrorMessage: &records[i].Message})
	}
	return named
}

// slots makes room for the results, which then stay where they are.
func (p *produce) slots() {
	p.r.Topics = make([]kmsg.ProduceResponseTopic, len(p.q.Topics))
	for i := range p.q.Topics {
		q, r := &p.q.Topics[i], &p.r.Topics[i]
		r.Topic, r.TopicID = q.Topic, q.TopicID
		r.Partitions = make([]kmsg.ProduceResponseTopicPartition, len(q.Partitions))
		for j := range q.Partitions {
			s := &r.Partitions[j]
			s.Default()
			s.Partition, s.BaseOffset, s.LogStartOffset = q.Partitions[j].Partition, -1, -1
			s.ErrorCode = kerr.REQUEST_TIMED_OUT // unless there is another result in time
		}
		p.mu.open += len(q.Partitions)
	}
	p.mu.open++ // until all are appended
}

// refused is why nothing of the request is looked at.
func (p *produce) refused() error {
	if id := p.q.TransactionID; p.transactional() && (id == nil || !p.allowed(kmsg.ACLOperationWrite, kmsg.ACLResourceTypeTransactionalId, *id)) {
		return kerr.Errorf(kerr.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "no access to the transactional id")
	}
	if p.q.Acks < acksAll || p.q.Acks > acksOne {
		return kerr.Errorf(kerr.INVALID_REQUIRED_ACKS, "acks is %d: -1, 0 and 1 are possible", p.q.Acks)
	}
	return nil
}

// all gives every partition the same error.
func (p *produce) all(err error) {
	for i := range p.r.Topics {
		for j := range p.r.Topics[i].Partitions {
			p.settle(i, j, -1, Appended{Err: err})
		}
	}
	p.settled(time.Time{})
}

// append gives all partitions their batches. It returns until when they are waited for.
func (p *produce) append() (deadline time.Time) {
	deadline = time.Now().Add(busyTimeout)
	if p.q.Acks == acksAll {
		deadline = time.Now().Add(max(time.Duration(p.q.TimeoutMillis)*time.Millisecond, ackTimeoutMin))
	}
	for i := range p.q.Topics {
		t := &p.q.Topics[i]
		err := p.name(t, &p.r.Topics[i])
		for j := range t.Partitions {
			if err != nil {
				p.settle(i, j, -1, Appended{Err: err})
				continue
			}
			p.appendOne(i, j, deadline)
		}
	}
	return deadline
}

// name finds the topic's name if it was given by id, and whether it may be written.
func (p *produce) name(t *kmsg.ProduceRequestTopic, r *kmsg.ProduceResponseTopic) error {
	if p.version >= produceByID {
		name, ok := p.broker().TopicName(t.TopicID)
		if !ok {
			return kerr.Errorf(kerr.UNKNOWN_TOPIC_ID, "there is no topic with id %x", t.TopicID)
		}
		t.Topic, r.Topic = name, name
	}
	if !p.allowed(kmsg.ACLOperationWrite, kmsg.ACLResourceTypeTopic, t.Topic) {
		return kerr.Errorf(kerr.TOPIC_AUTHORIZATION_FAILED, "no access to topic %q", t.Topic)
	}
	return nil
}

// appendOne appends to one partition. Its result may come later.
func (p *produce) appendOne(i, j int, deadline time.Time) {
	q := &p.q.Topics[i].Partitions[j]
	partition, err := p.broker().Partition(p.q.Topics[i].Topic, q.Partition)
	if err == nil && partition.Internal() {
		err = kerr.Errorf(kerr.INVALID_TOPIC_EXCEPTION, "topic %q is internal: clients do not write to it", p.q.Topics[i].Topic)
	}
	var b batch.Batch
	if err == nil {
		b, err = p.batch(q.Records)
	}
	if err != nil {
		p.settle(i, j, -1, Appended{Err: err})
		return
	}
	start := partition.Offsets().Start
	if err = plausible(b); err == nil {
		err = partition.Check(b)
	}
	if err != nil {
		p.settle(i, j, start, Appended{Err: err})
		return
	}
	p.appendBatch(partition, b, deadline, func(r Appended) { p.settle(i, j, start, r) })
}

// appendBatch appends, and waits while the partition has too much in flight, until the
// deadline. What comes behind it on the connection waits too, so that the order stays.
func (p *produce) appendBatch(partition Partition, b batch.Batch, deadline time.Time, done func(Appended)) {
	var busy bool
	attempt := func() {
		busy = false
		partition.Append(b, p.q.Acks, func(r Appended) {
			if errors.Is(r.Err, ErrBusy) { // comes before Append returns
				busy = true
				return
			}
			done(r)
		})
	}
	if attempt(); !busy {
		return
	}
	begin := time.Now()
	defer func() {
		p.conn.server.produceWaits.Add(1)
		p.conn.server.produceWaited.Add(int64(time.Since(begin)))
	}()
	wake := make(chan struct{}, 1)
	defer partition.Notify(wake)()
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	for {
		if attempt(); !busy {
			return
		}
		select {
		case <-wake:
		case <-timer.C:
			done(Appended{Err: kerr.Errorf(kerr.REQUEST_TIMED_OUT, "the partition has too much in flight")})
			return
		case <-p.ctx.Done():
			done(Appended{Err: kerr.Errorf(kerr.NOT_LEADER_OR_FOLLOWER, "the node is closing")})
			return
		}
	}
}

// settle keeps the result of one partition. What comes after the answer is lost.
func (p *produce) settle(i, j int, start int64, result Appended) {
	code, message := p.code(result.Err)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.answered {
		return
	}
	s := &p.r.Topics[i].Partitions[j]
	s.ErrorCode = code
	if tellsStart(code) {
		s.LogStartOffset = start
	}
	switch code {
	case kerr.NONE:
		s.BaseOffset, s.LogAppendTime = result.Offset, result.Timestamp
	case kerr.INVALID_TIMESTAMP: // of all others Kafka says no more than the code
		s.ErrorMessage = message
		s.ErrorRecords = p.faultsLocked(result.Err)
	case kerr.NOT_LEADER_OR_FOLLOWER:
		p.mu.moved = true
	}
	if p.mu.open--; p.mu.open == 0 {
		p.answerLocked()
	}
}

// settled is called when every partition has its result or will have it, which is
// waited for until the deadline where that is the client's.
func (p *produce) settled(deadline time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.open--; p.mu.open == 0 {
		p.answerLocked()
		return
	}
	if p.q.Acks == acksAll {
		p.mu.timer = time.AfterFunc(time.Until(deadline), p.expire)
	}
}

// expire answers with what is there.
func (p *produce) expire() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.mu.answered {
		p.answerLocked()
	}
}

func (p *produce) answerLocked() {
	p.mu.answered = true
	if p.mu.timer != nil {
		p.mu.timer.Stop()
	}
	switch {
	case p.q.Acks == acksNone:
		if err := p.failure(); err != nil {
			p.answer.end(err)
			return
		}
		p.answer.give(nil)
	case p.mu.moved && p.version >= produceLeader:
		// Who leads must not be asked for by who answers for a partition. The answer is
		// waited for by the connection.
		go p.redirect()
	default:
		p.answer.give(p.r)
	}
}

// failure is why a request without acknowledgement failed: it closes the connection,
// which is all that its client can notice.
func (p *produce) failure() error {
	for i := range p.r.Topics {
		for j := range p.r.Topics[i].Partitions {
			if s := &p.r.Topics[i].Partitions[j]; s.ErrorCode != kerr.NONE {
				return fmt.Errorf("a produce request without acknowledgement failed: %s-%d: error code %d", p.r.Topics[i].Topic, s.Partition, s.ErrorCode)
			}
		}
	}
	return nil
}

// redirect answers with who leads the partitions that are not led here.
func (p *produce) redirect() {
	h := p.newHints()
	for i := range p.r.Topics {
		t := &p.r.Topics[i]
		for j := range t.Partitions {
			if s := &t.Partitions[j]; s.ErrorCode == kerr.NOT_LEADER_OR_FOLLOWER {
				s.CurrentLeader.LeaderID, s.CurrentLeader.LeaderEpoch = h.leader(t.Topic, s.Partition)
			}
		}
	}
	for _, n := range h.nodes {
		b := kmsg.NewProduceResponseBroker()
		b.NodeID, b.Host, b.Port, b.Rack = n.ID, n.Host, n.Port, n.rack()
		p.r.Brokers = append(p.r.Brokers, b)
	}
	p.answer.give(p.r)
}
