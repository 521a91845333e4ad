package replication

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// What nodes ask each other about partitions. A request's first byte is its kind, which the transport's side has taken off when the payload
// comes here. All integers are big-endian. The values and the layouts are frozen: nodes of different builds speak to each other.
const (
	requestLeaders requestKind = 2 // who leads what
	requestAppend  requestKind = 3 // one batch for the leader
	requestFetch   requestKind = 4 // batches from the leader
	requestOffsets requestKind = 5 // where a partition begins and ends, and the offset for a time
	requestWatch   requestKind = 6 // where many partitions stand, once one of them has moved
)

// The bounds of what is on the wire.
const (
	wireTextMax     = 512                         // bytes of an error's words
	wireISRMax      = 64                          // in-sync replicas of a partition
	leadersMax      = 2048                        // partitions in one announcement
	watchMax        = 4096                        // partitions in one watch
	wireBatchMax    = maxMessageBytesMax + 64<<10 // a message with one batch
	appendHeaderLen = 16 + 4 + 1 + 8 + 8 + 8
)

// errWire means that a peer's message is not of the form that it must have.
var errWire = errors.New("replication: malformed message of a peer")

// wireReader takes a message apart. After a read past the end it gives zeros and bad is true.
type wireReader struct {
	b   []byte
	bad bool
}

func (r *wireReader) take(n int) []byte {
	if r.bad || n > len(r.b) {
		r.bad = true
		return make([]byte, min(max(n, 0), 16))
	}
	out := r.b[:n]
	r.b = r.b[n:]
	return out
}

func (r *wireReader) byte() byte     { return r.take(1)[0] }
func (r *wireReader) uint16() uint16 { return binary.BigEndian.Uint16(r.take(2)) }
func (r *wireReader) uint32() uint32 { return binary.BigEndian.Uint32(r.take(4)) }
func (r *wireReader) uint64() uint64 { return binary.BigEndian.Uint64(r.take(8)) }
func (r *wireReader) int32() int32   { return int32(r.uint32()) }
func (r *wireReader) int64() int64   { return int64(r.uint64()) }
func (r *wireReader) id() (id [16]byte) {
	copy(id[:], r.take(16))
	return id
}

// end says whether the message was of the right form and nothing is left.
func (r *wireReader) end(what string) error {
	if r.bad || len(r.b) > 0 {
		return fmt.Errorf("%w: %s", errWire, what)
	}
	return nil
}

// wirePartition names a partition: a topic that was deleted and made again has another id.
type wirePartition struct {
	topic  [16]byte
	number int32
}

func (p wirePartition) append(b []byte) []byte {
	return binary.BigEndian.AppendUint32(append(b, p.topic[:]...), uint32(p.number))
}

func (r *wireReader) partition() wirePartition { return wirePartition{r.id(), r.int32()} }

// wireLeader says who leads: nobody when node is 0.
type wireLeader struct {
	node    int32
	epoch   int32
	replica uint64
}

func (l wireLeader) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(l.node))
	b = binary.BigEndian.AppendUint32(b, uint32(l.epoch))
	return binary.BigEndian.AppendUint64(b, l.replica)
}

// leader reads who leads. What contradicts itself counts as nobody.
func (r *wireReader) leader() wireLeader {
	l := wireLeader{r.int32(), r.int32(), r.uint64()}
	if l.node <= 0 || l.epoch <= 0 || nodeOf(l.replica) != l.node {
		return wireLeader{}
	}
	return l
}

// announced is one partition of an announcement.
type announced struct {
	wirePartition
	shard   uint64
	epoch   int32
	replica uint64
	serial  uint64 // of the announcing node: within an epoch the higher one counts
	leading bool   // false: the replica appends no more
	isr     []uint64
}

// announcement is a request of kind requestLeaders: asking whoever gets it for a full list, or not, and partitions.
//
//	asking 1 | partitions 4 | each: topic id 16, partition 4, shard 8, epoch 4, replica 8, serial 8, leading 1, in sync 1, each: replica 8
type announcement struct {
	asking  bool
	entries []announced
}

func boolByte(b bool) byte {
	if b {
		return 1
	}
	return 0
}

func (a *announcement) encode() []byte {
	b := make([]byte, 0, 5+len(a.entries)*74)
	b = append(b, boolByte(a.asking))
	b = binary.BigEndian.AppendUint32(b, uint32(len(a.entries)))
	for i := range a.entries {
		e := &a.entries[i]
		b = e.wirePartition.append(b)
		b = binary.BigEndian.AppendUint64(b, e.shard)
		b = binary.BigEndian.AppendUint32(b, uint32(e.epoch))
		b = binary.BigEndian.AppendUint64(b, e.replica)
		b = binary.BigEndian.AppendUint64(b, e.serial)
		isr := e.isr[:min(len(e.isr), wireISRMax)]
		b = append(b, boolByte(e.leading), byte(len(isr)))
		for _, r := range isr {
			b = binary.BigEndian.AppendUint64(b, r)
		}
	}
	return b
}

func decodeAnnouncement(b []byte) (announcement, error) {
	r := wireReader{b: b}
	a := announcement{asking: r.byte() != 0}
	n := r.uint32()
	if n > leadersMax {
		return a, fmt.Errorf("%w: announcement of %d partitions", errWire, n)
	}
	for i := uint32(0); i < n && !r.bad; i++ {
		e := announced{
			wirePartition: r.partition(), shard: r.uint64(), epoch: r.int32(), replica: r.uint64(), serial: r.uint64(),
			leading: r.byte() != 0,
		}
		isr := int(r.byte())
		if isr > wireISRMax {
			return a, fmt.Errorf("%w: announcement with %d replicas in sync", errWire, isr)
		}
		for j := 0; j < isr && !r.bad; j++ {
			e.isr = append(e.isr, r.uint64())
		}
		a.entries = append(a.entries, e)
	}
	return a, r.end("announcement")
}

// appendRequest is a request of kind requestAppend.
//
//	topic id 16 | partition 4 | acks 1 | lane 8 | sequence 8 | lane that ended 8 | batch
type appendRequest struct {
	wirePartition
	acks     Acks
	lane     uint64
	sequence uint64 // within the lane, from 0
	ended    uint64 // lane of the same sender that goes no further; 0: none
	batch    []byte
}

func (a *appendRequest) encode(b []byte) []byte {
	b = a.wirePartition.append(b)
	b = append(b, byte(a.acks))
	b = binary.BigEndian.AppendUint64(b, a.lane)
	b = binary.BigEndian.AppendUint64(b, a.sequence)
	b = binary.BigEndian.AppendUint64(b, a.ended)
	return append(b, a.batch...)
}

func decodeAppend(b []byte) (appendRequest, error) {
	r := wireReader{b: b}
	a := appendRequest{wirePartition: r.partition(), acks: Acks(r.byte()), lane: r.uint64(), sequence: r.uint64(), ended: r.uint64()}
	if r.bad || a.acks < AcksAll || a.acks > AcksLeader {
		return a, fmt.Errorf("%w: append", errWire)
	}
	a.batch = r.b
	return a, nil
}

// appendAnswer is what became of a forwarded batch.
//
//	code 2 | offset 8 | timestamp 8 | leader 16 | words
type appendAnswer struct {
	wireResult
	offset, timestamp int64
}

func (a *appendAnswer) encode() []byte {
	b := make([]byte, 0, 34+len(a.text))
	b = binary.BigEndian.AppendUint16(b, a.code)
	b = binary.BigEndian.AppendUint64(b, uint64(a.offset))
	b = binary.BigEndian.AppendUint64(b, uint64(a.timestamp))
	b = a.leader.append(b)
	return append(b, a.text...)
}

func decodeAppendAnswer(b []byte) (appendAnswer, error) {
	r := wireReader{b: b}
	a := appendAnswer{}
	a.code, a.offset, a.timestamp, a.leader = r.uint16(), r.int64(), r.int64(), r.leader()
	if r.bad || len(r.b) > wireTextMax {
		return a, fmt.Errorf("%w: answer to an append", errWire)
	}
	a.text = string(r.b)
	return a, nil
}
