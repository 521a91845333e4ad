package kafka

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/internal/kerr"
)

// The versions of Fetch.
const (
	fetchMin      = 4
	fetchMax      = 17
	fetchSession  = 7  // the first version with sessions
	fetchZstd     = 10 // the first version whose clients know zstd
	fetchFollower = 11 // the first version whose clients read from followers
	fetchFlexible = 12 // the first version that has tags, and tells who leads
	fetchByID     = 13 // topics are given by id
	fetchNodes    = 16 // the first version that tells how to reach who leads
)

// readCommitted is the isolation level of who wants no records of open transactions.
const readCommitted = 1

// Fetch, versions 4 to 17, from this node's replica, whether it leads or follows: a
// follower serves up to its own high watermark, and a leader sends clients that name
// their rack to a follower there (KIP-392). An answer waits until it has MinBytes,
// MaxWait is over or a partition has an error. The first partition with records gives at
// least one whole batch (KIP-74), later ones only what fits. Batches go out as they are
// stored.
//
// Sessions (KIP-227) are declined, as brokers may: clients go on without. There are no
// transactions, so that no records are ever aborted or held back.
func (c *call) fetch(request kmsg.Request, a *answer) {
	q := request.(*kmsg.FetchRequest)
	f := &fetch{call: c, q: q, limit: max(min(int(q.MaxBytes), c.conn.server.opts.FetchBytesMax), 0)}
	f.memory.server = c.conn.server
	if q.SessionID != 0 && q.SessionEpoch > 0 {
		f.code = kerr.FETCH_SESSION_ID_NOT_FOUND
		f.q.Topics = nil
	}
	f.resolve()
	f.collect()
	a.giveEncoded(f.encode(), q.Version >= fetchFlexible, f.memory.release)
}

// fetch is a request under way.
type fetch struct {
	*call
	q      *kmsg.FetchRequest
	code   int16       // of the whole request
	parts  []fetchPart // in the order of the request
	limit  int         // bytes that the answer may have, but for its first batch
	bytes  int         // that it has
	full   bool        // some batch did not fit
	memory fetchMemory
}

// fetchPart is one partition of a fetch.
type fetchPart struct {
	q         *kmsg.FetchRequestTopicPartition
	topic     string
	partition Partition // nil: there is none, and code says why
	cursor    Cursor
	code      int16
	preferred int32 // the node to read from instead, or -1
	at        Offsets
	next      int64 // offset of the next batch to read
	records   [][]byte
	bytes     int // of records
}

// resolve finds the partitions.
func (f *fetch) resolve() {
	n := 0
	for i := range f.q.Topics {
		n += len(f.q.Topics[i].Partitions)
	}
	f.parts = make([]fetchPart, 0, n)
	for i := range f.q.Topics {
		t := &f.q.Topics[i]
		code := f.name(t)
		for j := range t.Partitions {
			part := fetchPart{q: &t.Partitions[j], topic: t.Topic, code: code, next: t.Partitions[j].FetchOffset, preferred: -1}
			if code == kerr.NONE {
				var err error
				part.partition, err = f.broker().Partition(t.Topic, part.q.Partition)
				part.code, _ = f.call.code(err)
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

// collect reads until there is enough to answer with. A partition that was not found does
// not make the answer come earlier, so that clients do not ask again at once.
func (f *fetch) collect() {
	defer f.keepCursors()
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

// keepCursors leaves the cursors to the connection's next fetch.
func (f *fetch) keepCursors() {
	for i := range f.parts {
		if p := &f.parts[i]; p.cursor != nil {
			f.conn.cursors.put(p.key(), p.partition, p.cursor)
		}
	}
}

func (p *fetchPart) key() cursorKey { return cursorKey{p.topic, p.q.Partition} }
