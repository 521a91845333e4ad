package replication

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"
)

// standing is where a partition stands, as its leader says.
type standing struct {
	start, hw, end int64
	size           int64
	unsynced       time.Duration
	epoch          int32
}

const standingLen = 5*8 + 4

func (s *standing) append(b []byte) []byte {
	for _, v := range [...]int64{s.start, s.hw, s.end, s.size, int64(s.unsynced)} {
		b = binary.BigEndian.AppendUint64(b, uint64(v))
	}
	return binary.BigEndian.AppendUint32(b, uint32(s.epoch))
}

func (r *wireReader) standing() standing {
	s := standing{start: r.int64(), hw: r.int64(), end: r.int64(), size: r.int64(), unsynced: time.Duration(r.int64()), epoch: r.int32()}
	if s.start < 0 || s.hw < s.start || s.end < s.hw || s.epoch < 0 {
		r.bad = true
	}
	return s
}

// moved says whether somebody who knows s has to be told of now.
func (s *standing) moved(now *standing) bool {
	return s.hw != now.hw || s.start != now.start || s.epoch != now.epoch
}

// fetchRequest is a request of kind requestFetch.
//
//	topic id 16 | partition 4 | offset 8 | bytes 4 | wait in ms 4 | high watermark known 8
type fetchRequest struct {
	wirePartition
	offset   int64
	maxBytes int32
	wait     time.Duration
	hw       int64
}

func (f *fetchRequest) encode() []byte {
	b := make([]byte, 0, 44)
	b = f.wirePartition.append(b)
	b = binary.BigEndian.AppendUint64(b, uint64(f.offset))
	b = binary.BigEndian.AppendUint32(b, uint32(f.maxBytes))
	b = binary.BigEndian.AppendUint32(b, uint32(f.wait.Milliseconds()))
	return binary.BigEndian.AppendUint64(b, uint64(f.hw))
}

func (r *wireReader) wait() time.Duration {
	return min(time.Duration(r.uint32())*time.Millisecond, waitMax)
}

func decodeFetch(b []byte) (fetchRequest, error) {
	r := wireReader{b: b}
	f := fetchRequest{wirePartition: r.partition(), offset: r.int64(), maxBytes: r.int32(), wait: r.wait(), hw: r.int64()}
	if err := r.end("fetch"); err != nil {
		return f, err
	}
	if f.offset < 0 || f.maxBytes < 0 {
		return f, fmt.Errorf("%w: fetch of %d bytes at %d", errWire, f.maxBytes, f.offset)
	}
	return f, nil
}

// fetchAnswer has whole batches.
//
//	code 2 | leader 16 | where the partition stands 44 | bytes of the words 2 | words | batches
type fetchAnswer struct {
	wireResult
	standing
	data []byte
}

// appendTo encodes all but the data, which the caller appends.
func (a *fetchAnswer) appendTo(b []byte) []byte {
	b = binary.BigEndian.AppendUint16(b, a.code)
	b = a.leader.append(b)
	b = a.standing.append(b)
	b = binary.BigEndian.AppendUint16(b, uint16(len(a.text)))
	return append(b, a.text...)
}

func (r *wireReader) text() string {
	n := int(r.uint16())
	if n > wireTextMax {
		r.bad = true
		return ""
	}
	if n == 0 || r.bad {
		return ""
	}
	if n > len(r.b) {
		r.bad = true
		return ""
	}
	return string(r.take(n))
}

func decodeFetchAnswer(b []byte) (fetchAnswer, error) {
	r := wireReader{b: b}
	a := fetchAnswer{}
	a.code, a.leader, a.standing, a.text = r.uint16(), r.leader(), r.standing(), r.text()
	if r.bad {
		return a, fmt.Errorf("%w: answer to a fetch", errWire)
	}
	a.data = r.b
	return a, nil
}

// offsetsRequest is a request of kind requestOffsets.
//
//	topic id 16 | partition 4 | whether a time is asked for 1 | time in ms 8
type offsetsRequest struct {
	wirePartition
	timed bool
	time  int64
}

func (o *offsetsRequest) encode() []byte {
	b := o.wirePartition.append(make([]byte, 0, 29))
	b = append(b, boolByte(o.timed))
	return binary.BigEndian.AppendUint64(b, uint64(o.time))
}

func decodeOffsets(b []byte) (offsetsRequest, error) {
	r := wireReader{b: b}
	o := offsetsRequest{wirePartition: r.partition(), timed: r.byte() != 0, time: r.int64()}
	return o, r.end("question for offsets")
}

// offsetsAnswer answers it.
//
//	code 2 | leader 16 | where the partition stands 44 | whether there is a record 1 | its offset 8 | its time 8 | bytes of the words 2 | words
type offsetsAnswer struct {
	wireResult
	standing
	found        bool
	offset, time int64
}

func (a *offsetsAnswer) encode() []byte {
	b := binary.BigEndian.AppendUint16(make([]byte, 0, 81+len(a.text)), a.code)
	b = a.leader.append(b)
	b = a.standing.append(b)
	b = append(b, boolByte(a.found))
	b = binary.BigEndian.AppendUint64(b, uint64(a.offset))
	b = binary.BigEndian.AppendUint64(b, uint64(a.time))
	b = binary.BigEndian.AppendUint16(b, uint16(len(a.text)))
	return append(b, a.text...)
}

func decodeOffsetsAnswer(b []byte) (offsetsAnswer, error) {
	r := wireReader{b: b}
	a := offsetsAnswer{}
	a.code, a.leader, a.standing = r.uint16(), r.leader(), r.standing()
	a.found, a.offset, a.time, a.text = r.byte() != 0, r.int64(), r.int64(), r.text()
	return a, r.end("answer to a question for offsets")
}

// watchRequest is a request of kind requestWatch: what is known of partitions that the asked node leads.
//
//	wait in ms 4 | partitions 4 | each: topic id 16, partition 4, start 8, high watermark 8, epoch 4
type watchRequest struct {
	wait    time.Duration
	entries []watchEntry
}

type watchEntry struct {
	wirePartition
	known standing // start, high watermark and epoch
}

func (w *watchRequest) encode() []byte {
	b := make([]byte, 0, 8+len(w.entries)*40)
	b = binary.BigEndian.AppendUint32(b, uint32(w.wait.Milliseconds()))
	b = binary.BigEndian.AppendUint32(b, uint32(len(w.entries)))
	for i := range w.entries {
		e := &w.entries[i]
		b = e.wirePartition.append(b)
		b = binary.BigEndian.AppendUint64(b, uint64(e.known.start))
		b = binary.BigEndian.AppendUint64(b, uint64(e.known.hw))
		b = binary.BigEndian.AppendUint32(b, uint32(e.known.epoch))
	}
	return b
}

func decodeWatch(b []byte) (watchRequest, error) {
	r := wireReader{b: b}
	w := watchRequest{wait: r.wait()}
	n := r.uint32()
	if n > watchMax {
		return w, fmt.Errorf("%w: watch of %d partitions", errWire, n)
	}
	for i := uint32(0); i < n && !r.bad; i++ {
		e := watchEntry{wirePartition: r.partition()}
		e.known.start, e.known.hw, e.known.epoch = r.int64(), r.int64(), r.int32()
		w.entries = append(w.entries, e)
	}
	return w, r.end("watch")
}

// watchAnswer has the partitions that stand elsewhere than was known, by their place in the request.
//
//	partitions 4 | each: place 4, code 2, leader 16, where it stands 44
type watchAnswer struct{ entries []watchNews }

type watchNews struct {
	place  int32
	code   uint16
	leader wireLeader
	standing
}

func (w *watchAnswer) encode() []byte {
	b := make([]byte, 0, 4+len(w.entries)*(22+standingLen))
	b = binary.BigEndian.AppendUint32(b, uint32(len(w.entries)))
	for i := range w.entries {
		e := &w.entries[i]
		b = binary.BigEndian.AppendUint32(b, uint32(e.place))
		b = binary.BigEndian.AppendUint16(b, e.code)
		b = e.leader.append(b)
		b = e.standing.append(b)
	}
	return b
}

// decodeWatchAnswer takes an answer to a watch of so many partitions.
func decodeWatchAnswer(b []byte, partitions int) (watchAnswer, error) {
	r := wireReader{b: b}
	w := watchAnswer{}
	n := r.uint32()
	if n > uint32(min(partitions, math.MaxInt32)) {
		return w, fmt.Errorf("%w: news of %d partitions", errWire, n)
	}
	for i := uint32(0); i < n && !r.bad; i++ {
		e := watchNews{place: r.int32(), code: r.uint16(), leader: r.leader(), standing: r.standing()}
		if e.place < 0 || int(e.place) >= partitions {
			r.bad = true
		}
		w.entries = append(w.entries, e)
	}
	return w, r.end("answer to a watch")
}
