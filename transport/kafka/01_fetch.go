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
	fetchSessions = 7  // the first version with sessions
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
// Sessions (KIP-227) belong to their connection. Where too much would have to be
// remembered they are declined, and clients go on without. There are no transactions, so
// that no records are ever aborted or held back.
func (c *call) fetch(request kmsg.Request, a *answer) {
	q := request.(*kmsg.FetchRequest)
	f := &fetch{call: c, q: q, limit: max(min(int(q.MaxBytes), c.conn.server.opts.FetchBytesMax), 0)}
	f.memory.server = c.conn.server
	f.begin()
	f.resolve()
	f.collect()
	f.end()
	f.countErrors(a.stats)
	a.giveEncoded(f.encode(), q.Version >= fetchFlexible, f.memory.release)
}

// fetch is a request under way.
type fetch struct {
	*call
	q       *kmsg.FetchRequest
	code    int16         // of the whole request
	session *fetchSession // that goes on
	parts   []fetchPart   // in the order of the request, or of the session
	limit   int           // bytes that the answer may have, but for its first batch
	bytes   int           // that it has
	full    bool          // some batch did not fit
	memory  fetchMemory
}

// fetchWant is what a client wants of a partition.
type fetchWant struct {
	key      fetchKey
	offset   int64
	epoch    int32 // that it knows, or -1
	last     int32 // epoch of the last record that it has, or -1
	maxBytes int
}

// fetchPart is one partition of a fetch.
type fetchPart struct {
	fetchWant
	topic     string    // its name, if that is known
	partition Partition // nil: there is none, and code says why
	cursor    Cursor
	code      int16
	preferred int32 // the node to read from instead, or -1
	at        Offsets
	next      int64 // offset of the next batch to read
	records   [][]byte
	bytes     int  // of records
	omitted   bool // the client knows all of it
	diverging divergence
}

// divergence tells a client whose last record is not in the log where the log goes on
// with it, if ok.
type divergence struct {
	ok    bool
	epoch int32
	end   int64
}

// begin finds out what is to be read: what the request names, or what the session does.
func (f *fetch) begin() {
	if epoch := f.q.SessionEpoch; f.version < fetchSessions || epoch == sessionNone || epoch == sessionNew {
		f.conn.fetches.close() // a client has one at a time
		f.conn.fetches = nil
		for _, w := range wantsOf(f.q) {
			f.want(w)
		}
		return
	}
	if f.code = f.conn.fetches.goOn(f.q); f.code != kerr.NONE {
		return
	}
	f.session = f.conn.fetches
	f.parts = make([]fetchPart, 0, len(f.session.order))
	for _, p := range f.session.order {
		f.want(p.fetchWant)
		f.parts[len(f.parts)-1].topic = p.topic
	}
	if len(f.parts) == 0 { // the last partition was taken out of it
		f.session.close()
		f.session, f.conn.fetches = nil, nil
	}
}

func (f *fetch) want(w fetchWant) {
	f.parts = append(f.parts, fetchPart{fetchWant: w, next: w.offset, preferred: -1})
}

// end keeps the session, or begins one.
func (f *fetch) end() {
	switch {
	case f.session != nil:
		f.session.answered(f.parts)
	case f.code == kerr.NONE && f.version >= fetchSessions && f.q.SessionEpoch == sessionNew:
		f.conn.fetches = openSession(f.conn.server, f.version >= fetchByID, f.parts)
		f.session = f.conn.fetches
	}
}

// resolve finds the partitions.
func (f *fetch) resolve() {
	var before fetchKey // its topic's name and code are known
	var name string
	var code int16
	for i := range f.parts {
		p := &f.parts[i]
		if i == 0 || p.key.topic != before.topic || p.key.id != before.id {
			name, code = f.name(p.key)
			before = p.key
		}
		if code == kerr.UNKNOWN_TOPIC_ID && p.topic != "" {
			p.code = f.gone(p)
			continue
		}
		if p.topic, p.code = name, code; code == kerr.NONE {
			var err error
			p.partition, err = f.broker().Partition(name, p.key.number)
			p.code, _ = f.call.code(err)
		}
	}
}

// gone is what a session says of a topic whose id was known and is not any more: whether
// there is another one of that name.
func (f *fetch) gone(p *fetchPart) int16 {
	if !f.allowed(kmsg.ACLOperationRead, kmsg.ACLResourceTypeTopic, p.topic) {
		return kerr.TOPIC_AUTHORIZATION_FAILED
	}
	_, err := f.broker().Partition(p.topic, p.key.number)
	code, _ := f.call.code(err)
	if code == kerr.NONE {
		return kerr.INCONSISTENT_TOPIC_ID
	}
	return code
}

// name finds the topic's name if it was given by id, and whether it may be read.
func (f *fetch) name(key fetchKey) (name string, code int16) {
	name = key.topic
	if f.version >= fetchByID {
		var ok bool
		if name, ok = f.broker().TopicName(key.id); !ok {
			return "", kerr.UNKNOWN_TOPIC_ID
		}
	}
	if !f.allowed(kmsg.ACLOperationRead, kmsg.ACLResourceTypeTopic, name) {
		return name, kerr.TOPIC_AUTHORIZATION_FAILED
	}
	return name, kerr.NONE
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

// countErrors counts what the answer says of errors.
func (f *fetch) countErrors(s *apiStats) {
	s.failed(f.code)
	for i := range f.parts {
		if p := &f.parts[i]; !p.omitted {
			s.failed(p.code)
		}
	}
}

// keepCursors leaves the cursors to the connection's next fetch.
func (f *fetch) keepCursors() {
	for i := range f.parts {
		if p := &f.parts[i]; p.cursor != nil {
			f.conn.cursors.put(p.cursorKey(), p.partition, p.cursor)
		}
	}
}

func (p *fetchPart) cursorKey() cursorKey { return cursorKey{p.topic, p.key.number} }
