package kafka

import (
	"encoding/binary"
	"net"

	"github.com/billetlog/billet/internal/kerr"
)

// The tags of a partition and of the whole answer.
const (
	tagDiverging     = 0
	tagCurrentLeader = 1
	tagNodes         = 0
)

// encoder appends what versions of Fetch have in common, before and after they got tags.
type encoder struct {
	b        []byte
	flexible bool
}

func (e *encoder) int16(v int16) { e.b = binary.BigEndian.AppendUint16(e.b, uint16(v)) }
func (e *encoder) int32(v int32) { e.b = binary.BigEndian.AppendUint32(e.b, uint32(v)) }
func (e *encoder) int64(v int64) { e.b = binary.BigEndian.AppendUint64(e.b, uint64(v)) }

// uvarint is what compact lengths and tags are made of.
func (e *encoder) uvarint(v int) { e.b = binary.AppendUvarint(e.b, uint64(v)) }

// count begins an array or bytes; -1 is null.
func (e *encoder) count(n int) {
	if e.flexible {
		e.uvarint(n + 1)
		return
	}
	e.int32(int32(n))
}

func (e *encoder) string(s string) {
	if e.flexible {
		e.uvarint(len(s) + 1)
	} else {
		e.int16(int16(len(s)))
	}
	e.b = append(e.b, s...)
}

func (e *encoder) nullableString(s *string) {
	switch {
	case s != nil:
		e.string(*s)
	case e.flexible:
		e.uvarint(0)
	default:
		e.int16(-1)
	}
}

// noTags ends a structure.
func (e *encoder) noTags() {
	if e.flexible {
		e.uvarint(0)
	}
}

// The room that is made for what is around the records.
const (
	fetchHeadRoom = 64
	fetchPartRoom = 64
)

// encode makes the answer, after its header. Records stay where they were read to.
func (f *fetch) encode() net.Buffers {
	e := &encoder{b: make([]byte, 0, fetchHeadRoom+len(f.parts)*fetchPartRoom), flexible: f.version >= fetchFlexible}
	var out net.Buffers
	var h *hints
	e.int32(0) // no throttling
	if f.version >= fetchSessions {
		e.int16(f.code)
		id := int32(0)
		if f.session != nil {
			id = f.session.id
		}
		e.int32(id)
	}
	told := f.told()
	e.count(len(told))
	from := 0
	for _, topic := range told {
		if f.version >= fetchByID {
			e.b = append(e.b, topic[0].key.id[:]...)
		} else {
			e.string(topic[0].key.topic)
		}
		e.count(len(topic))
		for _, p := range topic {
			f.encodePart(e, p)
			if p.bytes > 0 {
				out = append(append(out, e.b[from:]), p.records...)
				from = len(e.b)
			}
			f.encodeTags(e, p, &h)
		}
		e.noTags()
	}
	f.encodeNodes(e, h)
	return append(out, e.b[from:])
}

// told groups the partitions that the answer has by their topics.
func (f *fetch) told() (topics [][]*fetchPart) {
	all := make([]*fetchPart, 0, len(f.parts))
	begin := 0
	for i := range f.parts {
		p := &f.parts[i]
		if p.omitted || f.code != kerr.NONE {
			continue
		}
		if n := len(all); n > begin && (all[n-1].key.topic != p.key.topic || all[n-1].key.id != p.key.id) {
			topics = append(topics, all[begin:n:n])
			begin = n
		}
		all = append(all, p)
	}
	if len(all) > begin {
		topics = append(topics, all[begin:])
	}
	return topics
}

// encodePart encodes a partition up to its records.
func (f *fetch) encodePart(e *encoder, p *fetchPart) {
	at := p.at
	if p.code != kerr.NONE {
		at = Offsets{Start: -1, HighWatermark: -1, LastStable: -1}
	}
	e.int32(p.key.number)
	e.int16(p.code)
	e.int64(at.HighWatermark)
	e.int64(at.LastStable)
	if f.version >= 5 {
		e.int64(at.Start)
	}
	if f.q.IsolationLevel == readCommitted || p.partition == nil {
		e.count(0) // aborted transactions
	} else {
		e.count(-1)
	}
	if f.version >= fetchFollower {
		e.int32(p.preferred)
	}
	e.count(p.bytes) // null is what clients do not take
}

// encodeTags tells where a client's log diverges, or who leads a partition that is not
// led here as it thinks.
func (f *fetch) encodeTags(e *encoder, p *fetchPart, h **hints) {
	if p.diverging.ok && e.flexible {
		e.uvarint(1)
		e.uvarint(tagDiverging)
		e.uvarint(4 + 8 + 1)
		e.int32(p.diverging.epoch)
		e.int64(p.diverging.end)
		e.noTags()
		return
	}
	if p.code != kerr.NOT_LEADER_OR_FOLLOWER && p.code != kerr.FENCED_LEADER_EPOCH || !e.flexible {
		e.noTags()
		return
	}
	if *h == nil {
		*h = f.newHints()
	}
	node, epoch := (*h).leader(p.topic, p.key.number)
	if node < 0 {
		e.noTags()
		return
	}
	e.uvarint(1)
	e.uvarint(tagCurrentLeader)
	e.uvarint(4 + 4 + 1)
	e.int32(node)
	e.int32(epoch)
	e.noTags()
}

// encodeNodes ends the answer with how to reach the nodes that were named.
func (f *fetch) encodeNodes(e *encoder, h *hints) {
	if h == nil || len(h.nodes) == 0 || f.version < fetchNodes {
		e.noTags()
		return
	}
	inner := &encoder{flexible: true}
	inner.count(len(h.nodes))
	for i := range h.nodes {
		n := &h.nodes[i]
		inner.int32(n.ID)
		inner.string(n.Host)
		inner.int32(n.Port)
		inner.nullableString(n.rack())
		inner.noTags()
	}
	e.uvarint(1)
	e.uvarint(tagNodes)
	e.uvarint(len(inner.b))
	e.b = append(e.b, inner.b...)
}
