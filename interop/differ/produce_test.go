package differ

import (
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func produceScenarios() []scenario {
	return []scenario{
		{"produce", playProduce},
		{"produce-bad", playProduceBad},
		{"produce-timestamps", playTimestamps},
		{"produce-compacted", playProduceCompacted},
		{"produce-acks", playAcks},
		{"produce-codecs", playCodecs},
	}
}

func idempotenceScenarios() []scenario {
	return []scenario{
		{"producer-id", playProducerID},
		{"producer-sequences", playSequences},
		{"producer-epochs", playProducerEpochs},
		{"producer-window", playWindow},
		{"producer-wrap", playWrap},
	}
}

// produceOf makes a request with records for a partition. From version 13 on topics are
// named by id, which the request gets in any case.
func (p *play) produceOf(topic string, partition int32, records []byte) *kmsg.ProduceRequest {
	q := kmsg.NewPtrProduceRequest()
	q.Acks, q.TimeoutMillis = -1, 10000
	t := kmsg.NewProduceRequestTopic()
	t.Topic = topic
	for id, name := range p.names.ids {
		if name == "id of "+topic {
			t.TopicID = id
		}
	}
	part := kmsg.NewProduceRequestTopicPartition()
	part.Partition, part.Records = partition, records
	t.Partitions = append(t.Partitions, part)
	q.Topics = append(q.Topics, t)
	return q
}

// put produces what a scenario needs to be there.
func (p *play) put(topic string, partition int32, batches ...batch) {
	for _, b := range batches {
		r := must[*kmsg.ProduceResponse](p, p.produceOf(topic, partition, b.bytes()))
		if code := r.Topics[0].Partitions[0].ErrorCode; code != 0 {
			p.note("preparing records of "+topic, codeName(code))
			panic(endOfPlay{})
		}
	}
}

// hello is a batch of some records.
func hello(n int) batch {
	var b batch
	for i := range n {
		b.values = append(b.values, fmt.Sprint("value ", i))
	}
	return b
}

func playProduce(p *play) {
	p.topic(p.name(), 2)
	for _, v := range p.versions(kmsg.Produce) {
		if v < 3 {
			continue // Kafka names them but has them no more
		}
		p.askVersion("good", p.produceOf(p.name(), 0, hello(3).bytes()), v)
		p.askVersion("second", p.produceOf(p.name(), 0, hello(1).bytes()), v)
		p.askVersion("missing partition", p.produceOf(p.name(), 9, hello(1).bytes()), v)
		p.askVersion("negative partition", p.produceOf(p.name(), -1, hello(1).bytes()), v)
		p.askVersion("missing topic", p.produceOf(p.name("missing"), 0, hello(1).bytes()), v)
		p.askVersion("bad topic", p.produceOf("a/b", 0, hello(1).bytes()), v)
		both := p.produceOf(p.name(), 0, hello(2).bytes())
		part := kmsg.NewProduceRequestTopicPartition()
		part.Partition, part.Records = 1, hello(4).bytes()
		both.Topics[0].Partitions = append(both.Topics[0].Partitions, part)
		p.askVersion("two partitions", both, v)
		q := p.produceOf(p.name(), 0, nil)
		q.Topics = nil
		p.askVersion("nothing", q, v)
	}
}

func playProduceBad(p *play) {
	p.topic(p.name(), 1, "max.message.bytes", "20000")
	p.patience = 3 * time.Second // to some of it there is no answer
	p.dial()
	negative, huge := int32(-1), int32(1<<30)
	two := append(hello(1).bytes(), hello(1).bytes()...)
	for _, v := range []int16{p.newest(kmsg.Produce, 7), p.newest(kmsg.Produce, 9), p.newest(kmsg.Produce, -1)} {
		for _, c := range []struct {
			what    string
			records []byte
		}{
			{"crc", batch{values: []string{"a"}, badCRC: true}.bytes()},
			{"null", nil},
			{"empty", []byte{}},
			{"some bytes", []byte{1, 2, 3}},
			{"cut", batch{values: []string{"abcdef"}, cut: 3}.bytes()},
			{"two batches", two},
			{"one and a half", append(hello(1).bytes(), hello(1).bytes()[:40]...)},
			{"no records", batch{}.bytes()},
			{"too many counted", batch{values: []string{"a"}, count: ptr(int32(5))}.bytes()},
			{"too few counted", batch{values: []string{"a", "b"}, count: ptr(int32(1))}.bytes()},
			{"negative count", batch{values: []string{"a"}, count: &negative}.bytes()},
			{"huge count", batch{values: []string{"a"}, count: &huge}.bytes()},
			{"wrong last offset", batch{values: []string{"a", "b"}, lastDelta: ptr(int32(7))}.bytes()},
			{"negative last offset", batch{values: []string{"a"}, lastDelta: &negative}.bytes()},
			{"base offset", batch{values: []string{"a"}, baseOffset: 100}.bytes()},
			{"control batch", batch{values: []string{"a"}, attributes: 1 << 5}.bytes()},
			{"transactional without a transaction", batch{values: []string{"a"}, attributes: 1 << 4, epoch: ptr(int16(0)), producer: 123456}.bytes()},
			{"transactional without a producer", batch{values: []string{"a"}, attributes: 1 << 4}.bytes()},
			{"append time", batch{values: []string{"a"}, attributes: 1 << 3}.bytes()},
			{"unknown codec", batch{values: []string{"a"}, attributes: 6}.bytes()},
			{"not compressed", batch{values: []string{"a"}, attributes: 1}.bytes()},
			{"magic 1", batch{values: []string{"a"}, magic: 1}.bytes()},
			{"magic 3", batch{values: []string{"a"}, magic: 3}.bytes()},
			{"too large", batch{values: []string{strings.Repeat("x", 20000)}}.bytes()},
			{"fits", batch{values: []string{strings.Repeat("x", 19900)}}.bytes()},
			{"compressed fits", batch{values: []string{strings.Repeat("x", 100000)}, codec: 1}.bytes()},
			{"no key", batch{values: []string{"a"}, nullKeys: true}.bytes()},
			{"no sequence", batch{values: []string{"a"}, epoch: ptr(int16(0)), producer: 123, sequence: -1}.bytes()},
		} {
			p.askVersion(c.what, p.produceOf(p.name(), 0, c.records), v)
		}
	}
	p.look(p.name(), 0)
}

// look notes all of a partition's records.
func (p *play) look(topic string, partition int32) {
	p.fetchVersion("all of it", fetchOf(topic, partition, 0), p.newest(kmsg.Fetch, 12))
}

func playTimestamps(p *play) {
	v := p.newest(kmsg.Produce, -1)
	p.topic(p.name(), 1)
	p.topic(p.name("append"), 1, "message.timestamp.type", "LogAppendTime")
	now := time.Now().UnixMilli()
	for _, c := range []struct {
		what string
		b    batch
	}{
		{"now", batch{values: []string{"a", "b"}, time: now}},
		{"tomorrow", batch{values: []string{"a"}, time: now + 86400_000}},
		{"in half an hour", batch{values: []string{"a"}, time: now + 1800_000}},
		{"long ago", batch{values: []string{"a"}, time: 1000}},
		{"before time", batch{values: []string{"a"}, time: -1}},
		{"longer ago", batch{values: []string{"a"}, time: -1000}},
		{"wrong maximum", batch{values: []string{"a", "b"}, maxTime: ptr(int64(theTime + 5000))}},
		{"compressed wrong maximum", batch{values: []string{"a", "b"}, codec: 1, maxTime: ptr(int64(theTime + 5000))}},
	} {
		p.askVersion(c.what, p.produceOf(p.name(), 0, c.b.bytes()), v)
		p.askVersion(c.what+" append", p.produceOf(p.name("append"), 0, c.b.bytes()), v)
	}
	p.look(p.name(), 0)
	p.look(p.name("append"), 0)
}

func playProduceCompacted(p *play) {
	p.topic(p.name(), 1, "cleanup.policy", "compact")
	for _, v := range []int16{p.newest(kmsg.Produce, 7), p.newest(kmsg.Produce, -1)} {
		p.askVersion("key", p.produceOf(p.name(), 0, hello(2).bytes()), v)
		p.askVersion("no key", p.produceOf(p.name(), 0, batch{values: []string{"a", "b"}, nullKeys: true}.bytes()), v)
	}
}

func playAcks(p *play) {
	p.topic(p.name(), 1)
	v := p.newest(kmsg.Produce, -1)
	for _, acks := range []int16{1, -1, 2, -2, 100} {
		q := p.produceOf(p.name(), 0, hello(1).bytes())
		q.Acks = acks
		p.askVersion(fmt.Sprint("acks ", acks), q, v)
	}
	// Acks 0 gets no answer: the next answer is that of the next request.
	q := p.produceOf(p.name(), 0, hello(1).bytes())
	q.Acks = 0
	q.SetVersion(v)
	if err := p.dial().sendRequest(q, v); err != nil {
		p.note("acks 0", lost(err))
		return
	}
	p.ask("after acks 0", listOf(p.name(), 0, -1))
	// What goes wrong closes the connection.
	q = p.produceOf(p.name(), 7, hello(1).bytes())
	q.Acks = 0
	if err := p.dial().sendRequest(q, v); err != nil {
		p.note("acks 0 to a missing partition", lost(err))
		return
	}
	p.ask("after acks 0 to a missing partition", listOf(p.name(), 0, -1))
	p.note("dialled again")
	timeout := p.produceOf(p.name(), 0, hello(1).bytes())
	timeout.TimeoutMillis = 0
	p.askVersion("no time", timeout, v)
	timeout.TimeoutMillis = -5
	p.askVersion("negative time", timeout, v)
}

func playCodecs(p *play) {
	p.topic(p.name(), 1)
	for _, v := range []int16{3, 6, 7, p.newest(kmsg.Produce, -1)} {
		for codec := range 5 {
			b := hello(20)
			b.codec = codec
			p.askVersion(fmt.Sprint("codec ", codec), p.produceOf(p.name(), 0, b.bytes()), v)
		}
	}
	p.look(p.name(), 0)
	for _, v := range p.versions(kmsg.Fetch) {
		if v > 12 {
			break
		}
		// zstd may be read from version 10 on.
		p.fetchVersion("all", fetchOf(p.name(), 0, 0), v)
	}
}

// producerID takes one, which gets a name.
func (p *play) producerID(name string) int64 {
	q := kmsg.NewPtrInitProducerIDRequest()
	q.TransactionTimeoutMillis = 10000
	r := until(p, "a producer id", func() kmsg.Request { return q }, func(r *kmsg.InitProducerIDResponse) bool { return r.ErrorCode == 0 })
	p.names.producer(r.ProducerID, name)
	return r.ProducerID
}

func playProducerID(p *play) {
	p.producerID("first")
	for _, v := range p.versions(kmsg.InitProducerID) {
		ask := func(label string, change func(q *kmsg.InitProducerIDRequest)) {
			q := kmsg.NewPtrInitProducerIDRequest()
			q.TransactionTimeoutMillis = 10000
			change(q)
			r, err := p.quietly(q, v)
			label = fmt.Sprintf("%s v%d", label, v)
			if err != nil {
				p.note(label, lost(err))
				p.dial()
				return
			}
			got := r.(*kmsg.InitProducerIDResponse)
			if got.ProducerID > 0 {
				p.names.producer(got.ProducerID, "some producer")
			}
			p.note(label, p.names.lines(got)...)
		}
		ask("new", func(*kmsg.InitProducerIDRequest) {})
		ask("no timeout", func(q *kmsg.InitProducerIDRequest) { q.TransactionTimeoutMillis = 0 })
		ask("negative timeout", func(q *kmsg.InitProducerIDRequest) { q.TransactionTimeoutMillis = -1 })
		ask("empty transactional id", func(q *kmsg.InitProducerIDRequest) { q.TransactionalID = ptr("") })
		if v >= 3 {
			ask("epoch without id", func(q *kmsg.InitProducerIDRequest) { q.ProducerEpoch = 3 })
			ask("id without epoch", func(q *kmsg.InitProducerIDRequest) { q.ProducerID = 5 })
			ask("epoch of a stranger", func(q *kmsg.InitProducerIDRequest) { q.ProducerID, q.ProducerEpoch = 987654, 3 })
		}
	}
}

// sequenced sends a batch of n records of a producer and notes the answer.
func (p *play) sequenced(label, topic string, producer int64, epoch int16, sequence int32, n int) {
	b := hello(n)
	b.producer, b.epoch, b.sequence = producer, &epoch, sequence
	p.ask(label, p.produceOf(topic, 0, b.bytes()))
}

func playSequences(p *play) {
	p.topic(p.name(), 1)
	id := p.producerID("producer")
	p.sequenced("first", p.name(), id, 0, 0, 3)
	p.sequenced("duplicate", p.name(), id, 0, 0, 3)
	p.sequenced("next", p.name(), id, 0, 3, 2)
	p.sequenced("duplicate of the first", p.name(), id, 0, 0, 3)
	p.sequenced("part of a batch", p.name(), id, 0, 0, 2)
	p.sequenced("gap", p.name(), id, 0, 9, 1)
	p.sequenced("back", p.name(), id, 0, 4, 1)
	p.sequenced("next again", p.name(), id, 0, 5, 1)
	other := p.producerID("other")
	p.sequenced("other begins late", p.name(), other, 0, 7, 1)
	p.sequenced("other goes on", p.name(), other, 0, 8, 1)
	p.sequenced("never heard of", p.name(), 1<<40, 3, 0, 1)
	p.look(p.name(), 0)
}

func playProducerEpochs(p *play) {
	p.topic(p.name(), 1)
	id := p.producerID("producer")
	p.sequenced("first", p.name(), id, 0, 0, 3)
	p.sequenced("new epoch in the middle", p.name(), id, 1, 3, 1)
	p.sequenced("new epoch", p.name(), id, 1, 0, 1)
	p.sequenced("old epoch", p.name(), id, 0, 3, 1)
	p.sequenced("old duplicate", p.name(), id, 0, 0, 3)
	p.sequenced("epoch far on", p.name(), id, 9, 0, 1)
	p.sequenced("negative epoch", p.name(), id, -1, 0, 1)
}

// playWindow finds out how many batches are remembered.
func playWindow(p *play) {
	p.topic(p.name(), 1)
	id := p.producerID("producer")
	for i := range 8 {
		p.sequenced(fmt.Sprint("batch ", i), p.name(), id, 0, int32(i), 1)
	}
	for i := range 8 {
		p.sequenced(fmt.Sprint("again ", i), p.name(), id, 0, int32(i), 1)
	}
}

// playWrap goes over the largest sequence number.
func playWrap(p *play) {
	p.topic(p.name(), 1)
	id := p.producerID("producer")
	const last = 1<<31 - 1
	p.sequenced("near the end", p.name(), id, 0, last-2, 2)
	p.sequenced("over the end", p.name(), id, 0, last, 3)
	p.sequenced("goes on", p.name(), id, 0, 2, 1)
	p.sequenced("duplicate over the end", p.name(), id, 0, last, 3)
	p.sequenced("gap", p.name(), id, 0, last, 1)
}
