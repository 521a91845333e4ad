package group

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// The kinds of records, which are the versions of their keys. They are Kafka's and
// frozen.
const (
	kindOffsetOld     = 0 // as kindOffset
	kindOffset        = 1
	kindGroup         = 2
	kindGroupEpoch    = 3
	kindTopicsOld     = 4 // written by old coordinators of Kafka; needless
	kindMember        = 5
	kindTargetEpoch   = 6
	kindTarget        = 7
	kindCurrent       = 8
	groupEpochVersion = 0 // of the values of kinds 3 to 8
)

// nameBytesMax bounds ids and names, which have a length of 16 bits in records; ids
// made from others must fit, too.
const nameBytesMax = 16 << 10

// areNames tells whether all fit.
func areNames(names ...*string) bool {
	for _, s := range names {
		if s != nil && len(*s) > nameBytesMax {
			return false
		}
	}
	return true
}

// The versions of values that are written.
const (
	groupMetadataVersion = 3
	offsetVersion        = 3
	offsetTopicVersion   = 4 // the first one that says of which topic it is
	offsetExpiryVersion  = 1 // the only one that says when an offset expires
)

func offsetKey(group, topic string, partition int32) []byte {
	k := kmsg.OffsetCommitKey{Version: kindOffset, Group: group, Topic: topic, Partition: partition}
	return k.AppendTo(nil)
}

func commitRecord(group, topic string, partition int32, one commit) Record {
	v := kmsg.NewOffsetCommitValue()
	v.Version = offsetVersion
	v.Offset, v.LeaderEpoch, v.Metadata, v.CommitTimestamp = one.offset, one.leaderEpoch, one.metadata, one.at.UnixMilli()
	if one.topic != (TopicID{}) {
		v.Version, v.TopicID = offsetTopicVersion, one.topic
	}
	if !one.expires.IsZero() {
		v.Version, v.ExpireTimestamp = offsetExpiryVersion, one.expires.UnixMilli()
	}
	return Record{offsetKey(group, topic, partition), v.AppendTo(nil)}
}

func groupMetadataKey(group string) []byte {
	k := kmsg.GroupMetadataKey{Version: kindGroup, Group: group}
	return k.AppendTo(nil)
}

// A key of the consumer protocol is its kind, the group, and the member if it is of one:
//
//	[ kind int16 | length int16 | group ][ length int16 | member ]
func consumerKey(kind int16, names ...string) []byte {
	k := binary.BigEndian.AppendUint16(nil, uint16(kind))
	for _, s := range names {
		k = binary.BigEndian.AppendUint16(k, uint16(len(s)))
		k = append(k, s...)
	}
	return k
}

func groupEpochKey(group string) []byte  { return consumerKey(kindGroupEpoch, group) }
func targetEpochKey(group string) []byte { return consumerKey(kindTargetEpoch, group) }

// memberTombstones deletes all that the log holds of a member.
func memberTombstones(group, member string) []Record {
	return []Record{
		{Key: consumerKey(kindCurrent, group, member)},
		{Key: consumerKey(kindTarget, group, member)},
		{Key: consumerKey(kindMember, group, member)},
	}
}

// groupEpochRecord: [ version | epoch int32 | tags: 0 = hash int64 ].
func groupEpochRecord(group string, epoch int32, hash uint64) Record {
	w := newWriter()
	w.int32(epoch)
	if hash == 0 {
		w.noTags()
	} else {
		w.tag(0, binary.BigEndian.AppendUint64(nil, hash))
	}
	return Record{groupEpochKey(group), w.b}
}

// targetEpochRecord: [ version | epoch int32 | tags ].
func targetEpochRecord(group string, epoch int32) Record {
	w := newWriter()
	w.int32(epoch)
	w.noTags()
	return Record{targetEpochKey(group), w.b}
}

// targetRecord: [ version | partitions by topic | tags ].
func targetRecord(group, member string, target owned) Record {
	w := newWriter()
	w.topics(target, false)
	w.noTags()
	return Record{consumerKey(kindTarget, group, member), w.b}
}

// memberRecord: [ version | instance? | rack? | client | host | topics | regex? |
// rebalance timeout int32 | assignor? | tags ].
func memberRecord(group string, m *consumerMember) Record {
	w := newWriter()
	w.nullable(m.instance)
	w.nullable(m.rack)
	w.string(m.clientID)
	w.string(m.clientHost)
	w.count(len(m.topics))
	for _, name := range m.topics {
		w.string(name)
	}
	w.nullable(m.regex)
	w.int32(int32(m.rebalance / time.Millisecond))
	w.nullable(m.assignor)
	w.noTags()
	return Record{consumerKey(kindMember, group, m.id), w.b}
}

// currentRecord: [ version | epoch int32 | previous epoch int32 | state int8 |
// assigned by topic | pending revocation by topic | tags ].
func currentRecord(group string, m *consumerMember) Record {
	w := newWriter()
	w.int32(m.epoch)
	w.int32(m.previousEpoch)
	w.b = append(w.b, byte(m.state))
	w.topics(m.assigned, true)
	w.topics(m.revoking, true)
	w.noTags()
	return Record{consumerKey(kindCurrent, group, m.id), w.b}
}

// writer appends in Kafka's flexible encoding.
type writer struct{ b []byte }

func newWriter() *writer { return &writer{[]byte{0, groupEpochVersion}} }

func (w *writer) int32(n int32)   { w.b = binary.BigEndian.AppendUint32(w.b, uint32(n)) }
func (w *writer) count(n int)     { w.b = binary.AppendUvarint(w.b, uint64(n)+1) }
func (w *writer) string(s string) { w.count(len(s)); w.b = append(w.b, s...) }
func (w *writer) noTags()         { w.b = append(w.b, 0) }

func (w *writer) nullable(s *string) {
	if s == nil {
		w.b = append(w.b, 0)
		return
	}
	w.string(*s)
}

// tag writes the only tag of a structure.
func (w *writer) tag(number uint64, value []byte) {
	w.b = append(w.b, 1)
	w.b = binary.AppendUvarint(w.b, number)
	w.b = binary.AppendUvarint(w.b, uint64(len(value)))
	w.b = append(w.b, value...)
}

// topics writes partitions by topic, each with tags: 0 = the epochs since when the
// partitions are the member's.
func (w *writer) topics(has owned, epochs bool) {
	byTopic := has.byTopic()
	w.count(len(byTopic))
	for _, t := range byTopic {
		w.b = append(w.b, t.id[:]...)
		w.count(len(t.partitions))
		for _, p := range t.partitions {
			w.int32(p)
		}
		if !epochs {
			w.noTags()
			continue
		}
		var since writer
		since.count(len(t.partitions))
		for _, p := range t.partitions {
			since.int32(has[topicPartition{t.id, p}])
		}
		w.tag(0, since.b)
	}
}

// errShort is a record that ends before it should, or goes on after.
var errShort = errors.New("its length is not what it says")

// reader reads Kafka's flexible encoding; after the first error all is zero. What it
// allocates follows the bytes that are there, not the counts that they claim.
type reader struct {
	b   []byte
	err error
}

// newReader reads the version, of which only 0 is known.
func newReader(value []byte) *reader {
	r := &reader{b: value}
	if version := r.bytes(2); r.err == nil && (version[0] != 0 || version[1] != groupEpochVersion) {
		r.err = fmt.Errorf("its version is %d; 0 is known", binary.BigEndian.Uint16(version))
	}
	return r
}

func (r *reader) bytes(n uint64) []byte {
	if r.err == nil && n > uint64(len(r.b)) {
		r.err = errShort
	}
	if r.err != nil {
		return nil
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

func (r *reader) int32() int32 {
	if b := r.bytes(4); b != nil {
		return int32(binary.BigEndian.Uint32(b))
	}
	return 0
}

func (r *reader) uvarint() uint64 {
	n, size := binary.Uvarint(r.b)
	if size <= 0 && r.err == nil {
		r.err = errShort
	}
	if r.err != nil {
		return 0
	}
	r.b = r.b[size:]
	return n
}

// count returns how many elements follow, or -1 for null.
func (r *reader) count() int {
	n := r.uvarint()
	if n > uint64(len(r.b))+1 && r.err == nil {
		r.err = errShort
	}
	if r.err != nil {
		return 0
	}
	return int(n) - 1
}

func (r *reader) nullable() *string {
	n := r.count()
	if n < 0 || r.err != nil {
		return nil
	}
	s := string(r.bytes(uint64(n)))
	return &s
}

func (r *reader) string() string {
	if s := r.nullable(); s != nil {
		return *s
	}
	return ""
}

// tags calls for each tag; unknown ones are skipped, since later versions may add some.
func (r *reader) tags(known func(number uint64, value *reader)) {
	for n := r.uvarint(); n > 0 && r.err == nil; n-- {
		number := r.uvarint()
		value := &reader{b: r.bytes(r.uvarint()), err: r.err}
		if known != nil && r.err == nil {
			if known(number, value); value.err != nil {
				r.err = value.err
			}
		}
	}
}

func (r *reader) topics() owned {
	has := owned{}
	for n := r.count(); n > 0 && r.err == nil; n-- {
		var id TopicID
		copy(id[:], r.bytes(uint64(len(id))))
		var partitions []int32
		for n := r.count(); n > 0 && r.err == nil; n-- {
			partitions = append(partitions, r.int32())
		}
		for _, p := range partitions {
			has[topicPartition{id, p}] = 0
		}
		r.tags(func(number uint64, value *reader) {
			if number != 0 || value.count() != len(partitions) {
				return
			}
			for _, p := range partitions {
				has[topicPartition{id, p}] = value.int32()
			}
		})
	}
	return has
}

// done tells what is wrong with the record.
func (r *reader) done() error {
	if r.err == nil && len(r.b) > 0 {
		r.err = errShort
	}
	return r.err
}
