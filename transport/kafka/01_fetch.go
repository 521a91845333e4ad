package kafka

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/internal/batch"
	"github.com/billetlog/billet/internal/kerr"
)

// The versions of Fetch.
const (
	fetchMin      = 4
	fetchMax      = 17
	fetchZstd     = 10 // the first version whose clients know zstd
	fetchFollower = 11 // the first version whose clients read from followers
	fetchLeader   = 12 // the first version that tells who leads
	fetchByID     = 13 // topics are given by id
	fetchNodes    = 16 // the first version that tells how to reach who leads
)

// readCommitted is the isolation level of who wants no records of open transactions.
const readCommitted = 1

// Fetch, versions 4 to 17, from this node's replica, whether it leads or follows: a
// follower serves up to its own high watermark (KIP-392). An answer waits until it has
// MinBytes, MaxWait is over or a partition has an error. The first partition with
// records gives at least one whole batch (KIP-74), later ones only what fits. Batches go
// out as they are stored.
//
// Sessions (KIP-227) are declined, as brokers may: clients go on without. There are no
// transactions, so that no records are ever aborted or held back.
func (c *call) fetch(q *kmsg.FetchRequest) kmsg.Response {
	r := q.ResponseKind().(*kmsg.FetchResponse)
	if q.SessionID != 0 && q.SessionEpoch > 0 {
		r.ErrorCode = kerr.FETCH_SESSION_ID_NOT_FOUND
		return r
	}
	f := &fetch{call: c, q: q, limit: min(int(q.MaxBytes), c.conn.server.opts.FetchBytesMax)}
	f.resolve()
	f.collect()
	f.answer(r)
	return r
}

// fetch is a request under way.
type fetch struct {
	*call
	q     *kmsg.FetchRequest
	parts []fetchPart // in the order of the request
	limit int         // bytes that the answer may have, but for its first batch
	bytes int         // that it has
}

// fetchPart is one partition of a fetch.
type fetchPart struct {
	q         *kmsg.FetchRequestTopicPartition
	topic     string
	partition Partition // nil: there is none, and code says why
	cursor    Cursor
	code      int16
	at        Offsets
	next      int64 // offset of the next batch to read
	records   []byte
}

// resolve finds the partitions.
func (f *fetch) resolve() {
	for i := range f.q.Topics {
		t := &f.q.Topics[i]
		code := f.name(t)
		for j := range t.Partitions {
			part := fetchPart{q: &t.Partitions[j], topic: t.Topic, code: code, next: t.Partitions[j].FetchOffset}
			if code == kerr.NONE {
				var err error
				part.partition, err = f.broker().Partition(t.Topic, part.q.Partition)
				part.code, _ = f.code(err)
			}
			f.parts = append(f.parts, part)
		}
	}
}

// name finds the topic's name if it was given by id, and whether it may be read.
func (f *fetch) name(t *kmsg.FetchRequestTopic) int16 {
	if f.version >= fetchByID {
		name, ok := f.broker().TopicName(t.TopicID)
		if !ok {
			return kerr.UNKNOWN_TOPIC_ID
		}
		t.Topic = name
	}
	if !f.allowed(kmsg.ACLOperationRead, kmsg.ACLResourceTypeTopic, t.Topic) {
		return kerr.TOPIC_AUTHORIZATION_FAILED
	}
	return kerr.NONE
}

// collect reads until there is enough to answer with.
func (f *fetch) collect() {
	defer f.closeCursors()
	if f.read() {
		return
	}
	wake := make(chan struct{}, 1)
	for i := range f.parts {
		if p := &f.parts[i]; p.partition != nil {
			defer p.partition.Notify(wake)()
		}
	}
	timer := time.NewTimer(time.Duration(f.q.MaxWaitMillis) * time.Millisecond)
	defer timer.Stop()
	for !f.read() {
		select {
		case <-wake:
		case <-timer.C:
			return
		case <-f.ctx.Done():
			return
		}
	}
}

func (f *fetch) closeCursors() {
	for i := range f.parts {
		if c := f.parts[i].cursor; c != nil {
			c.Close()
		}
	}
}

// read reads on in all partitions. enough says that the answer need not wait.
func (f *fetch) read() (enough bool) {
	waits := false
	for i := range f.parts {
		p := &f.parts[i]
		if p.partition == nil {
			continue
		}
		p.code, _ = f.code(f.readPart(p))
		if p.code != kerr.NONE {
			enough = true
		}
		waits = true
	}
	return enough || !waits || f.bytes >= min(int(f.q.MinBytes), f.limit)
}

func (f *fetch) readPart(p *fetchPart) error {
	p.at = p.partition.Offsets()
	if err := p.at.fenced(p.q.CurrentLeaderEpoch); err != nil {
		return err
	}
	end := p.at.HighWatermark
	switch {
	case !p.at.Leading && f.version < fetchFollower:
		return kerr.Errorf(kerr.NOT_LEADER_OR_FOLLOWER, "this node does not lead the partition")
	case p.next < p.at.Start, p.next > p.at.End:
		return kerr.Errorf(kerr.OFFSET_OUT_OF_RANGE, "offset %d: there are %d to %d", p.next, p.at.Start, p.at.End)
	case p.next >= end:
		return nil
	}
	room := min(int(p.q.PartitionMaxBytes)-len(p.records), f.limit-f.bytes)
	if room <= 0 && f.bytes > 0 {
		return nil
	}
	if p.cursor == nil {
		p.cursor = p.partition.NewCursor()
	}
	had := len(p.records)
	records, err := p.cursor.Read(p.records, p.next, max(room, 1))
	if err != nil {
		return err
	}
	if len(records)-had > room && f.bytes > 0 {
		return nil // its first batch does not fit, and there is something else
	}
	p.records = records
	f.bytes += len(records) - had
	return p.advance(had, f.version)
}

// advance goes behind the batches that were read.
func (p *fetchPart) advance(had int, version int16) error {
	for rest := p.records[had:]; len(rest) > 0; {
		b, after, err := batch.Split(rest, 0)
		if err != nil {
			return kerr.Errorf(kerr.CORRUPT_MESSAGE, "%v", err)
		}
		if version < fetchZstd && b.Codec() == batch.Zstd {
			p.records = p.records[:0]
			return kerr.Errorf(kerr.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs version %d of the request", fetchZstd)
		}
		p.next, rest = b.NextOffset(), after
	}
	return nil
}

func (f *fetch) answer(r *kmsg.FetchResponse) {
	h := f.newHints()
	next := 0
	for i := range f.q.Topics {
		q := &f.q.Topics[i]
		t := kmsg.NewFetchResponseTopic()
		t.Topic, t.TopicID = q.Topic, q.TopicID
		t.Partitions = make([]kmsg.FetchResponseTopicPartition, len(q.Partitions))
		for j := range q.Partitions {
			f.answerPart(&t.Partitions[j], &f.parts[next], h)
			next++
		}
		r.Topics = append(r.Topics, t)
	}
	if f.version >= fetchNodes {
		for _, n := range h.nodes {
			b := kmsg.NewFetchResponseBroker()
			b.NodeID, b.Host, b.Port, b.Rack = n.ID, n.Host, n.Port, n.rack()
			r.Brokers = append(r.Brokers, b)
		}
	}
}

func (f *fetch) answerPart(r *kmsg.FetchResponseTopicPartition, p *fetchPart, h *hints) {
	r.Default()
	r.Partition, r.ErrorCode, r.HighWatermark, r.RecordBatches = p.q.Partition, p.code, -1, p.records
	if r.RecordBatches == nil {
		r.RecordBatches = []byte{} // clients do not take null
	}
	if f.q.IsolationLevel == readCommitted {
		r.AbortedTransactions = []kmsg.FetchResponseTopicPartitionAbortedTransaction{}
	}
	switch p.code {
	case kerr.NONE, kerr.OFFSET_OUT_OF_RANGE:
		r.HighWatermark, r.LastStableOffset, r.LogStartOffset = p.at.HighWatermark, p.at.LastStable, p.at.Start
	case kerr.NOT_LEADER_OR_FOLLOWER, kerr.FENCED_LEADER_EPOCH:
		if f.version >= fetchLeader {
			r.CurrentLeader.LeaderID, r.CurrentLeader.LeaderEpoch = h.leader(p.topic, p.q.Partition)
		}
	}
}
