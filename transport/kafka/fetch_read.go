package kafka

import (
	"context"

	"github.com/billetlog/billet/internal/batch"
	"github.com/billetlog/billet/internal/kerr"
)

// read reads on in all partitions. enough says that the answer need not wait.
func (f *fetch) read() (enough bool) {
	found := false
	for i := range f.parts {
		p := &f.parts[i]
		if p.partition == nil {
			continue
		}
		found = true
		p.code, _ = f.call.code(f.readPart(p))
		if p.code != kerr.NONE {
			p.records, p.bytes = nil, 0
		}
		if p.code != kerr.NONE || p.preferred >= 0 || p.diverging.ok {
			enough = true
		}
	}
	return enough || !found || f.q.MaxWaitMillis <= 0 || f.bytes >= min(int(f.q.MinBytes), f.limit)
}

// readPart reads on in one partition as far as it is wanted and fits.
func (f *fetch) readPart(p *fetchPart) error {
	p.at = p.partition.Offsets()
	if err := p.at.fenced(p.epoch); err != nil {
		return err
	}
	switch {
	case !p.at.Leading && f.version < fetchFollower:
		return kerr.Errorf(kerr.NOT_LEADER_OR_FOLLOWER, "this node does not lead the partition")
	case p.last >= 0 && p.at.Leading && f.diverges(p):
		return nil
	case p.next < p.at.Start, p.next > p.at.End, p.last > p.at.Epoch && p.at.Leading:
		return kerr.Errorf(kerr.OFFSET_OUT_OF_RANGE, "offset %d: there are %d to %d", p.next, p.at.Start, p.at.End)
	case f.q.Rack != "" && p.at.Leading && p.bytes == 0:
		if p.preferred = p.partition.PreferredReplica(f.q.Rack); p.preferred >= 0 {
			return nil
		}
	}
	for p.next < p.at.HighWatermark {
		more, err := f.readChunk(p)
		if err != nil || !more {
			return err
		}
	}
	return nil
}

// The buffers that records are read into.
const (
	fetchChunkMin  = 16 << 10
	fetchBatchRoom = 128 << 10 // more than a batch of most producers
	fetchChunkMax  = 1 << 20
)

// readChunk reads one buffer. more is false when no more fits.
func (f *fetch) readChunk(p *fetchPart) (more bool, err error) {
	all := min(p.maxBytes-p.bytes, f.limit-f.bytes)
	if f.bytes > 0 && (all < batch.HeaderSize || f.full) {
		return false, nil
	}
	chunk := p.chunk()
	room := min(max(all, batch.HeaderSize), chunk)
	buf, ok, err := f.memory.get(f.ctx, max(room, min(chunk, fetchBatchRoom)))
	if err != nil || !ok {
		return false, err
	}
	if p.cursor == nil {
		p.cursor = f.conn.cursors.take(p.cursorKey(), p.partition)
	}
	records, err := p.cursor.Read(buf[:0], p.next, room)
	if len(records) == 0 {
		records = nil
	}
	fits := len(records) <= all || f.bytes == 0
	if err != nil || records == nil || !fits || !f.memory.keep(records, f.bytes == 0) {
		f.memory.putBack()
		f.full = f.full || !fits && f.limit-f.bytes < p.maxBytes
		return false, err
	}
	p.records = append(p.records, records)
	p.bytes += len(records)
	f.bytes += len(records)
	return room < all, p.advance(records)
}

// diverges says whether the last record that the client has is not that of the log.
func (f *fetch) diverges(p *fetchPart) bool {
	epoch, end := epochEnd(p.partition, &p.at, p.last)
	p.diverging = divergence{ok: epoch >= 0 && (epoch < p.last || end < p.offset), epoch: epoch, end: end}
	return p.diverging.ok
}

// chunk is how much to read at a time: what there is, as far as the size of all records
// tells.
func (p *fetchPart) chunk() int {
	count := max(p.at.End-p.at.Start, 1)
	each := p.partition.Size()/count + 1
	left := p.at.HighWatermark - p.next
	if left > fetchChunkMax/each {
		return fetchChunkMax
	}
	return min(max(int(left*each*2), fetchChunkMin), fetchChunkMax)
}

// advance goes behind the batches that were read.
func (p *fetchPart) advance(records []byte) error {
	for len(records) > 0 {
		b, rest, err := batch.Split(records, 0)
		if err != nil {
			return kerr.Errorf(kerr.CORRUPT_MESSAGE, "%v", err)
		}
		p.next, records = b.NextOffset(), rest
	}
	return nil
}

// fetchMemory is the buffers of an answer, and what they are charged.
type fetchMemory struct {
	server  *Server
	charged int64
	buffers [][]byte
	open    int64 // charged for the buffer that get returned
}

// get returns a buffer. The first one of an answer is waited for; a further one only is
// there, or ok is false: who has some and waits for more could wait for others that do
// the same.
func (m *fetchMemory) get(ctx context.Context, size int) (buf []byte, ok bool, err error) {
	class := classOf(size)
	m.open = min(int64(minFrame)<<class, m.server.opts.FetchMemoryMax)
	if len(m.buffers) > 0 {
		if !m.server.fetchMemory.TryAcquire(m.open) {
			m.open = 0
			return nil, false, nil
		}
	} else if err := m.server.fetchMemory.Acquire(ctx, m.open); err != nil {
		m.open = 0
		return nil, false, kerr.Errorf(kerr.NOT_LEADER_OR_FOLLOWER, "the node is closing")
	}
	buf = m.server.fetchBuffers.get(class)
	m.buffers = append(m.buffers, buf)
	return buf, true, nil
}

// keep keeps what was read into the buffer. Where a large batch took more memory that is
// charged too, unless there is none and the batch must be sent nevertheless.
func (m *fetchMemory) keep(records []byte, must bool) bool {
	if more := min(int64(cap(records)), m.server.opts.FetchMemoryMax) - m.open; more > 0 {
		if m.server.fetchMemory.TryAcquire(more) {
			m.open += more
		} else if !must {
			return false
		}
	}
	m.buffers[len(m.buffers)-1] = records
	m.charged += m.open
	m.open = 0
	return true
}

// putBack gives the newest buffer back.
func (m *fetchMemory) putBack() {
	last := len(m.buffers) - 1
	m.server.fetchBuffers.recycle(m.buffers[last])
	m.buffers = m.buffers[:last]
	m.server.fetchMemory.Release(m.open)
	m.open = 0
}

// release gives everything back, once the answer was written.
func (m *fetchMemory) release() {
	for _, b := range m.buffers {
		m.server.fetchBuffers.recycle(b)
	}
	m.buffers = nil
	m.server.fetchMemory.Release(m.charged)
	m.charged = 0
}
