package differ

import (
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func fetchScenarios() []scenario {
	return []scenario{
		{"fetch", playFetch},
		{"fetch-sizes", playFetchSizes},
		{"fetch-wait", playFetchWait},
		{"fetch-epochs", playFetchEpochs},
		{"fetch-ids", playFetchIDs},
	}
}

// fetchOf reads a partition from an offset on, by name, without a session.
func fetchOf(topic string, partition int32, offset int64) *kmsg.FetchRequest {
	q := kmsg.NewPtrFetchRequest()
	q.MaxWaitMillis, q.MinBytes, q.MaxBytes = 100, 1, 50<<20
	q.SessionID, q.SessionEpoch = 0, -1
	t := kmsg.NewFetchRequestTopic()
	t.Topic = topic
	part := kmsg.NewFetchRequestTopicPartition()
	part.Partition, part.FetchOffset, part.PartitionMaxBytes, part.LogStartOffset = partition, offset, 10<<20, -1
	t.Partitions = append(t.Partitions, part)
	q.Topics = append(q.Topics, t)
	return q
}

// fetchVersion asks and leaves out what has no meaning for clients.
func (p *play) fetchVersion(label string, q *kmsg.FetchRequest, version int16) *kmsg.FetchResponse {
	r := p.askVersion(label, q, version)
	if r == nil {
		return nil
	}
	return r.(*kmsg.FetchResponse)
}

func playFetch(p *play) {
	p.topic(p.name(), 2)
	p.put(p.name(), 0, hello(3), hello(5), hello(2))
	for _, v := range p.versions(kmsg.Fetch) {
		if v > 12 {
			break // by id
		}
		for _, offset := range []int64{0, 1, 2, 3, 9, 10, 11, 1 << 40, -1, -2} {
			p.fetchVersion(fmt.Sprint("offset ", offset), fetchOf(p.name(), 0, offset), v)
		}
		p.fetchVersion("empty partition", fetchOf(p.name(), 1, 0), v)
		p.fetchVersion("missing partition", fetchOf(p.name(), 5, 0), v)
		p.fetchVersion("missing topic", fetchOf(p.name("missing"), 0, 0), v)
		p.fetchVersion("bad topic", fetchOf("a/b", 0, 0), v)
		q := fetchOf(p.name(), 0, 3)
		q.IsolationLevel = 1
		p.fetchVersion("committed", q, v)
		q = fetchOf(p.name(), 0, 3)
		q.Topics[0].Partitions = append(q.Topics[0].Partitions, fetchOf("", 1, 0).Topics[0].Partitions[0], fetchOf("", 7, 0).Topics[0].Partitions[0])
		p.fetchVersion("three partitions", q, v)
		q = fetchOf(p.name(), 0, 3)
		q.Topics = nil
		p.fetchVersion("nothing", q, v)
	}
}

// playFetchSizes wants whole batches, and one whatever its size.
func playFetchSizes(p *play) {
	p.topic(p.name(), 2)
	large := batch{values: []string{strings.Repeat("x", 5000)}}
	for partition := range int32(2) {
		p.put(p.name(), partition, large, large, large, large)
	}
	v := p.newest(kmsg.Fetch, 12)
	for _, limits := range [][2]int32{{1, 1}, {1, 50 << 20}, {50 << 20, 1}, {6000, 50 << 20}, {11000, 50 << 20}, {50 << 20, 11000}, {11000, 11000}, {0, 0}} {
		q := fetchOf(p.name(), 0, 0)
		q.Topics[0].Partitions = append(q.Topics[0].Partitions, fetchOf("", 1, 0).Topics[0].Partitions[0])
		q.MaxBytes = limits[0]
		for i := range q.Topics[0].Partitions {
			q.Topics[0].Partitions[i].PartitionMaxBytes = limits[1]
		}
		r, err := p.quietly(q, v)
		label := fmt.Sprintf("at most %d, and %d of a partition", limits[0], limits[1])
		if err != nil {
			p.note(label, lost(err))
			continue
		}
		// A batch that does not fit is cut in Kafka: clients leave it out. Whole
		// batches are what counts.
		var lines []string
		for _, part := range r.(*kmsg.FetchResponse).Topics[0].Partitions {
			whole := 0
			for _, line := range p.names.batchLines("", part.RecordBatches) {
				if strings.Contains(line, "crc right true") {
					whole++
				}
			}
			lines = append(lines, fmt.Sprintf("partition %d: %d batches, %s", part.Partition, whole, codeName(part.ErrorCode)))
		}
		p.note(label, lines...)
	}
}

// playFetchWait looks at how long is waited, roughly.
func playFetchWait(p *play) {
	p.topic(p.name(), 1)
	p.put(p.name(), 0, hello(1))
	v := p.newest(kmsg.Fetch, 12)
	for _, c := range []struct {
		what     string
		offset   int64
		wait     int32
		minBytes int32
	}{
		{"at the end", 1, 1500, 1}, {"at once", 0, 5000, 1}, {"too little", 0, 1500, 100000}, {"nothing wanted", 1, 5000, 0}, {"out of range", 9, 5000, 1},
	} {
		q := fetchOf(p.name(), 0, c.offset)
		q.MaxWaitMillis, q.MinBytes = c.wait, c.minBytes
		began := time.Now()
		p.fetchVersion(c.what, q, v)
		p.note(c.what+": time", fmt.Sprint("waited ", time.Since(began) > 1200*time.Millisecond))
	}
	// Records that come end the wait.
	q := fetchOf(p.name(), 0, 1)
	q.MaxWaitMillis = 10000
	began := time.Now()
	if err := p.conn.sendRequest(q, v); err != nil {
		p.note("waiting", lost(err))
		return
	}
	o := p.other()
	o.do(func(o *play) { o.put(p.name(), 0, hello(2)) })
	r, err := p.conn.receive(q)
	if err != nil {
		p.note("waiting", lost(err))
		return
	}
	p.note("waiting", append(p.names.lines(r), fmt.Sprint("soon ", time.Since(began) < 8*time.Second))...)
}

// playFetchEpochs is about leader epochs, of which there is one.
func playFetchEpochs(p *play) {
	p.topic(p.name(), 1)
	p.put(p.name(), 0, hello(2))
	current := p.names.leader
	for _, v := range p.versions(kmsg.Fetch) {
		if v < 9 || v > 12 {
			continue
		}
		for _, c := range []struct {
			what  string
			epoch int32
		}{{"no", -1}, {"current", current}, {"next", current + 1}, {"far", 1000}, {"negative", -5}} {
			what, epoch := c.what, c.epoch
			q := fetchOf(p.name(), 0, 0)
			q.Topics[0].Partitions[0].CurrentLeaderEpoch = epoch
			p.fetchVersion(what+" epoch", q, v)
			if v >= 12 {
				q.Topics[0].Partitions[0].CurrentLeaderEpoch, q.Topics[0].Partitions[0].LastFetchedEpoch = -1, epoch
				q.Topics[0].Partitions[0].FetchOffset = 2
				p.fetchVersion(what+" last epoch", q, v)
			}
		}
	}
}

// fetchIDOf reads by id.
func fetchIDOf(id [16]byte, partition int32, offset int64) *kmsg.FetchRequest {
	q := fetchOf("", partition, offset)
	q.Topics[0].TopicID = id
	return q
}

func playFetchIDs(p *play) {
	p.topic(p.name(), 1)
	p.put(p.name(), 0, hello(3))
	for _, v := range p.versions(kmsg.Fetch) {
		if v < 13 {
			continue
		}
		p.fetchVersion("id", fetchIDOf(p.id(p.name()), 0, 0), v)
		p.fetchVersion("out of range", fetchIDOf(p.id(p.name()), 0, 99), v)
		p.fetchVersion("missing partition", fetchIDOf(p.id(p.name()), 4, 0), v)
		p.fetchVersion("unknown id", fetchIDOf([16]byte{5, 4, 3}, 0, 0), v)
		p.fetchVersion("zero id", fetchIDOf([16]byte{}, 0, 0), v)
		q := fetchIDOf(p.id(p.name()), 0, 0)
		q.Topics = append(q.Topics, fetchIDOf([16]byte{5, 4, 3}, 0, 0).Topics[0])
		p.fetchVersion("known and unknown", q, v)
	}
}
