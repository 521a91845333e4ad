package kafka

import (
	"math"
	"math/rand/v2"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/internal/kerr"
)

// The epochs of a request that are not those of a session that goes on (KIP-227).
const (
	sessionNone = -1 // without a session from now on
	sessionNew  = 0
)

// sessionPartsMax bounds the partitions that all sessions of a server remember. Where it
// is reached sessions are declined: clients go on without.
const sessionPartsMax = 200_000

// fetchSession is what a connection's client reads: it tells only what is new, and so
// does the answer. A session ends with its connection; who comes back begins a new one.
type fetchSession struct {
	server *Server
	id     int32
	epoch  int32 // of the next request
	byID   bool  // its topics are given by id
	order  []*sessionPart
	index  map[fetchKey]*sessionPart
}

// fetchKey is a partition of a fetch: by id, or by name.
type fetchKey struct {
	topic  string
	id     TopicID
	number int32
}

// sessionPart is what a session remembers of a partition.
type sessionPart struct {
	fetchWant
	topic                string // its name, once that was known
	highWatermark, start int64  // as the client was told
}

// forgotten is the offset that no client was told.
const forgotten = -1

// openSession remembers the partitions of a full fetch. It returns nil when there is no
// room.
func openSession(s *Server, byID bool, parts []fetchPart) *fetchSession {
	if s.sessionParts.Add(int64(len(parts))) > sessionPartsMax {
		s.sessionParts.Add(-int64(len(parts)))
		return nil
	}
	f := &fetchSession{server: s, id: rand.Int32N(math.MaxInt32) + 1, epoch: 1, byID: byID, index: make(map[fetchKey]*sessionPart, len(parts))}
	for i := range parts {
		p := &sessionPart{fetchWant: parts[i].fetchWant}
		p.tell(&parts[i])
		if f.index[p.key] == nil {
			f.order = append(f.order, p)
		}
		f.index[p.key] = p
	}
	s.sessionParts.Add(int64(len(f.order) - len(parts)))
	return f
}

// close forgets it. A nil session is none.
func (f *fetchSession) close() {
	if f != nil {
		f.server.sessionParts.Add(-int64(len(f.order)))
		f.order, f.index = nil, nil
	}
}

// goOn takes what a request of the session changes.
func (f *fetchSession) goOn(q *kmsg.FetchRequest) (code int16) {
	switch {
	case f == nil || f.id != q.SessionID:
		return kerr.FETCH_SESSION_ID_NOT_FOUND
	case f.epoch != q.SessionEpoch:
		return kerr.INVALID_FETCH_SESSION_EPOCH
	case f.byID != (q.Version >= fetchByID):
		return kerr.FETCH_SESSION_TOPIC_ID_ERROR
	}
	if f.epoch++; f.epoch < 0 {
		f.epoch = 1
	}
	before := len(f.order)
	for _, w := range wantsOf(q) {
		p := f.index[w.key]
		if p == nil {
			p = &sessionPart{highWatermark: forgotten, start: forgotten}
			f.index[w.key] = p
			f.order = append(f.order, p)
		}
		p.fetchWant = w
	}
	f.forget(q)
	f.server.sessionParts.Add(int64(len(f.order) - before))
	return kerr.NONE
}

// forget drops what the client does not read any more.
func (f *fetchSession) forget(q *kmsg.FetchRequest) {
	before := len(f.index)
	for i := range q.ForgottenTopics {
		t := &q.ForgottenTopics[i]
		for _, n := range t.Partitions {
			delete(f.index, keyOf(q.Version, t.Topic, t.TopicID, n))
		}
	}
	if len(f.index) == before {
		return
	}
	kept := f.order[:0]
	for _, p := range f.order {
		if f.index[p.key] == p {
			kept = append(kept, p)
		}
	}
	clear(f.order[len(kept):])
	f.order = kept
}

// tell says whether an answer has to have the partition, and remembers what it says.
// After an error the client is told again, whatever comes.
func (p *sessionPart) tell(r *fetchPart) (needed bool) {
	p.topic = r.topic
	if r.code != kerr.NONE {
		p.highWatermark, p.start = forgotten, forgotten
		return true
	}
	needed = r.bytes > 0 || r.preferred >= 0 || r.diverging.ok || p.highWatermark != r.at.HighWatermark || p.start != r.at.Start
	p.highWatermark, p.start = r.at.HighWatermark, r.at.Start
	return needed
}

// answered leaves out what the client knows. Partitions that had records come last the
// next time, so that none starves.
func (f *fetchSession) answered(parts []fetchPart) {
	rest, served := make([]*sessionPart, 0, len(f.order)), []*sessionPart(nil)
	for i, p := range f.order {
		parts[i].omitted = !p.tell(&parts[i])
		if parts[i].bytes > 0 {
			served = append(served, p)
		} else {
			rest = append(rest, p)
		}
	}
	f.order = append(rest, served...)
}

// wantsOf lists the partitions that a request names.
func wantsOf(q *kmsg.FetchRequest) []fetchWant {
	n := 0
	for i := range q.Topics {
		n += len(q.Topics[i].Partitions)
	}
	out := make([]fetchWant, 0, n)
	for i := range q.Topics {
		t := &q.Topics[i]
		for j := range t.Partitions {
			p := &t.Partitions[j]
			out = append(out, fetchWant{
				key: keyOf(q.Version, t.Topic, t.TopicID, p.Partition), offset: p.FetchOffset, epoch: p.CurrentLeaderEpoch, last: p.LastFetchedEpoch, maxBytes: int(p.PartitionMaxBytes),
			})
		}
	}
	return out
}

// keyOf is a partition as a version names it.
func keyOf(version int16, topic string, id TopicID, number int32) fetchKey {
	if version >= fetchByID {
		return fetchKey{id: id, number: number}
	}
	return fetchKey{topic: topic, number: number}
}
