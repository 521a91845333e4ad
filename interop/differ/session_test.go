package differ

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func sessionScenarios() []scenario {
	return []scenario{
		{"session", playSession},
		{"session-bad", playSessionBad},
		{"session-epochs", playSessionEpochs},
		{"session-errors", playSessionErrors},
		{"session-change", playSessionChange},
		{"session-versions", playSessionVersions},
		{"session-gone", playSessionGone},
	}
}

// inSession makes a request one of a session.
func inSession(q *kmsg.FetchRequest, id, epoch int32) *kmsg.FetchRequest {
	q.SessionID, q.SessionEpoch = id, epoch
	return q
}

// sessionFetch reads partitions of a topic from an offset on, by what the version takes.
func (p *play) sessionFetch(v int16, topic string, offset int64, partitions ...int32) *kmsg.FetchRequest {
	q := fetchOf(topic, 0, 0)
	q.Topics[0].Partitions = nil
	for _, n := range partitions {
		q.Topics[0].Partitions = append(q.Topics[0].Partitions, fetchOf("", n, offset).Topics[0].Partitions[0])
	}
	if len(partitions) == 0 {
		q.Topics = nil
	} else if v >= 13 {
		q.Topics[0].TopicID = p.id(topic)
	}
	return q
}

// sessionForget adds partitions that are not read any more.
func (p *play) sessionForget(q *kmsg.FetchRequest, v int16, topic string, partitions ...int32) *kmsg.FetchRequest {
	f := kmsg.NewFetchRequestForgottenTopic()
	f.Topic, f.Partitions = topic, partitions
	if v >= 13 {
		f.TopicID = p.id(topic)
	}
	q.ForgottenTopics = append(q.ForgottenTopics, f)
	return q
}

// session asks and gives the session's id a name.
func (p *play) session(label string, q *kmsg.FetchRequest, v int16) *kmsg.FetchResponse {
	q.MaxWaitMillis = 300
	label = fmt.Sprintf("%s v%d", label, v)
	r, err := p.quietly(q, v)
	if err != nil {
		p.note(label, lost(err))
		p.dial()
		return nil
	}
	f := r.(*kmsg.FetchResponse)
	id := f.SessionID
	if id != 0 {
		f.SessionID = 1
	}
	p.note(label, p.names.lines(f)...)
	f.SessionID = id
	return f
}

// begin begins a session, without which the play cannot go on.
func (p *play) begin(label string, q *kmsg.FetchRequest, v int16) int32 {
	r := p.session(label, inSession(q, 0, 0), v)
	if r == nil || r.SessionID == 0 {
		panic(endOfPlay{})
	}
	return r.SessionID
}

// sessionVersions are those of Fetch around which sessions change: the first that has them,
// the last by name, the first by id, and the newest.
func (p *play) sessionVersions() []int16 {
	all := []int16{7, p.newest(kmsg.Fetch, 12)}
	if p.has(kmsg.Fetch, 14) {
		all = append(all, 13, p.newest(kmsg.Fetch, -1))
	}
	return all
}

// playSession goes through a session: what is new, what moves on, what is forgotten.
func playSession(p *play) {
	for _, v := range p.sessionVersions() {
		name := p.name(v)
		p.topic(name, 2)
		p.put(name, 0, hello(2))
		id := p.begin("full", p.sessionFetch(v, name, 0, 0, 1), v)
		nothing := func() *kmsg.FetchRequest { return p.sessionFetch(v, name, 0) }
		p.session("nothing new", inSession(nothing(), id, 1), v)
		p.put(name, 1, hello(1))
		p.session("one is new", inSession(nothing(), id, 2), v)
		p.session("moved on", inSession(p.sessionFetch(v, name, 1, 1), id, 3), v)
		p.session("all known", inSession(p.sessionFetch(v, name, 2, 0), id, 4), v)
		p.session("forget", inSession(p.sessionForget(nothing(), v, name, 0), id, 5), v)
		p.put(name, 0, hello(1))
		p.session("forgotten", inSession(nothing(), id, 6), v)
		p.session("taken up again", inSession(p.sessionFetch(v, name, 0, 0), id, 7), v)
		p.session("wrong epoch", inSession(nothing(), id, 9), v)
		p.session("the right one", inSession(nothing(), id, 8), v)
		p.session("end", inSession(nothing(), id, -1), v)
		p.session("after the end", inSession(nothing(), id, 9), v)
	}
}

func playSessionBad(p *play) {
	p.topic(p.name(), 1)
	for _, v := range []int16{p.newest(kmsg.Fetch, 12), p.newest(kmsg.Fetch, -1)} {
		one := func() *kmsg.FetchRequest { return p.sessionFetch(v, p.name(), 0, 0) }
		p.session("stranger", inSession(one(), 12345, 3), v)
		p.session("end of a stranger", inSession(one(), 12345, -1), v)
		p.session("full of a stranger", inSession(one(), 12345, 0), v)
		p.session("no id with an epoch", inSession(one(), 0, 7), v)
		p.session("epoch below all", inSession(one(), 0, -2), v)
		p.session("negative id", inSession(one(), -1, 0), v)
		p.session("new and empty", inSession(p.sessionFetch(v, p.name(), 0), 0, 0), v)
		p.session("no session, empty", inSession(p.sessionFetch(v, p.name(), 0), 0, -1), v)
		p.session("only forgets", inSession(p.sessionForget(p.sessionFetch(v, p.name(), 0), v, p.name(), 0), 0, 0), v)
	}
	v := p.newest(kmsg.Fetch, 12)
	p.session("missing topic", inSession(fetchOf(p.name("missing"), 0, 0), 0, 0), v)
}

// playSessionEpochs sends epochs that are not the next, and begins anew.
func playSessionEpochs(p *play) {
	for _, v := range []int16{p.newest(kmsg.Fetch, 12), p.newest(kmsg.Fetch, -1)} {
		name := p.name(v)
		p.topic(name, 1)
		p.put(name, 0, hello(2))
		nothing := func() *kmsg.FetchRequest { return p.sessionFetch(v, name, 0) }
		id := p.begin("full", p.sessionFetch(v, name, 0, 0), v)
		p.session("two ahead", inSession(nothing(), id, 2), v)
		p.session("next", inSession(nothing(), id, 1), v)
		p.session("once more", inSession(nothing(), id, 1), v)
		p.session("below all", inSession(nothing(), id, -5), v)
		p.session("next", inSession(nothing(), id, 2), v)
		r := p.session("anew", inSession(p.sessionFetch(v, name, 0, 0), id, 0), v)
		if r == nil || r.SessionID == 0 {
			panic(endOfPlay{})
		}
		p.session("of the old one", inSession(nothing(), id, 3), v)
		p.session("of the new one", inSession(nothing(), r.SessionID, 1), v)
		p.session("end with a fetch", inSession(p.sessionFetch(v, name, 0, 0), r.SessionID, -1), v)
		p.session("after the end", inSession(nothing(), r.SessionID, 2), v)
	}
}

// playSessionErrors has partitions in a session that cannot be read.
func playSessionErrors(p *play) {
	for _, v := range []int16{p.newest(kmsg.Fetch, 12), p.newest(kmsg.Fetch, -1)} {
		name := p.name(v)
		p.topic(name, 2)
		p.put(name, 0, hello(2))
		nothing := func() *kmsg.FetchRequest { return p.sessionFetch(v, name, 0) }
		id := p.begin("a partition that is not there", p.sessionFetch(v, name, 0, 0, 7), v)
		p.session("told again", inSession(nothing(), id, 1), v)
		p.session("out of range", inSession(p.sessionFetch(v, name, 100, 0), id, 2), v)
		p.session("still", inSession(nothing(), id, 3), v)
		p.session("in range", inSession(p.sessionFetch(v, name, 2, 0), id, 4), v)
		p.session("only the other", inSession(nothing(), id, 5), v)
		p.session("forget the other", inSession(p.sessionForget(nothing(), v, name, 7), id, 6), v)
		p.session("nothing new", inSession(nothing(), id, 7), v)
		q := p.sessionFetch(v, name, 2, 0)
		q.Topics[0].Partitions[0].CurrentLeaderEpoch = 1 << 20
		p.session("an epoch to come", inSession(q, id, 8), v)
	}
}

// playSessionChange adds partitions and topics to a session and takes them out of it.
func playSessionChange(p *play) {
	for _, v := range []int16{p.newest(kmsg.Fetch, 12), p.newest(kmsg.Fetch, -1)} {
		first, second := p.name("first", v), p.name("second", v)
		for _, name := range []string{first, second} {
			p.topic(name, 3)
			p.put(name, 0, hello(1))
			p.put(name, 2, hello(2))
		}
		nothing := func() *kmsg.FetchRequest { return p.sessionFetch(v, first, 0) }
		id := p.begin("one", p.sessionFetch(v, first, 1, 0), v)
		p.session("another topic", inSession(p.sessionFetch(v, second, 0, 0, 1), id, 1), v)
		p.session("it goes on", inSession(nothing(), id, 2), v)
		p.session("more of the first", inSession(p.sessionFetch(v, first, 0, 1, 2), id, 3), v)
		both := p.sessionForget(p.sessionFetch(v, second, 0, 2), v, first, 0, 1)
		p.session("one comes, two go", inSession(both, id, 4), v)
		same := p.sessionForget(p.sessionFetch(v, second, 0, 1), v, second, 1)
		p.session("one comes and goes", inSession(same, id, 5), v)
		p.session("what stays", inSession(nothing(), id, 6), v)
		p.session("forget what never was", inSession(p.sessionForget(nothing(), v, first, 0, 9), id, 7), v)
		all := p.sessionForget(p.sessionForget(nothing(), v, first, 0, 1, 2), v, second, 0, 1, 2)
		p.session("forget all", inSession(all, id, 8), v)
		p.session("after all", inSession(nothing(), id, 9), v)
	}
}

// playSessionVersions goes from versions by name to those by id and back.
func playSessionVersions(p *play) {
	byName, byID := p.newest(kmsg.Fetch, 12), p.newest(kmsg.Fetch, -1)
	p.topic(p.name(), 1)
	p.put(p.name(), 0, hello(1))
	for _, v := range [][2]int16{{7, byName}, {byName, 7}, {byName, byID}, {byID, byName}, {13, byID}} {
		id := p.begin(fmt.Sprint("before ", v[1]), p.sessionFetch(v[0], p.name(), 0, 0), v[0])
		p.session(fmt.Sprint("after ", v[0]), inSession(p.sessionFetch(v[1], p.name(), 0), id, 1), v[1])
		p.session(fmt.Sprint("with a partition after ", v[0]), inSession(p.sessionFetch(v[1], p.name(), 0, 0), id, 2), v[1])
		p.session("as before", inSession(p.sessionFetch(v[0], p.name(), 0), id, 1), v[0])
		p.session("as before again", inSession(p.sessionFetch(v[0], p.name(), 0), id, 3), v[0])
	}
}

// playSessionGone has topics in a session that are made, deleted and made again.
func playSessionGone(p *play) {
	for _, v := range []int16{p.newest(kmsg.Fetch, 12), p.newest(kmsg.Fetch, -1)} {
		name := p.name(v)
		p.topic(name, 1)
		p.put(name, 0, hello(1))
		nothing := func() *kmsg.FetchRequest { return p.sessionFetch(v, name, 0) }
		id := p.begin("there", p.sessionFetch(v, name, 1, 0), v)
		must[*kmsg.DeleteTopicsResponse](p, deleteOf(p.newest(kmsg.DeleteTopics, -1), name))
		until(p, "the end of "+name, func() kmsg.Request { return metadataOf(name) },
			func(r *kmsg.MetadataResponse) bool { return r.Topics[0].ErrorCode == 3 })
		p.session("gone", inSession(nothing(), id, 1), v)
		p.session("still gone", inSession(nothing(), id, 2), v)
		p.topic(name, 1)
		p.put(name, 0, hello(3))
		p.session("there again", inSession(nothing(), id, 3), v)
		p.session("goes on", inSession(nothing(), id, 4), v)
		if v >= 13 {
			p.session("its new id", inSession(p.sessionFetch(v, name, 0, 0), id, 5), v)
		}
		q := fetchIDOf([16]byte{9, 9, 9}, 0, 0)
		if v < 13 {
			q = fetchOf(p.name("missing"), 0, 0)
		}
		id = p.begin("never there", q, v)
		p.session("as before", inSession(nothing(), id, 1), v)
	}
}
