package kafka

import (
	"encoding/binary"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// answer is a response in the making: what the client gets when its turn has come. The
// first of give, giveEncoded and end counts.
type answer struct {
	ready chan struct{} // closed when what follows is set
	// response is encoded by the connection; encoded, when it is set, is the whole
	// response after its header and goes out as it is. Neither: the client gets none.
	response kmsg.Response
	encoded  net.Buffers
	// flexible says that the header of encoded has tags.
	flexible bool
	// release is called when encoded was written, or never will be.
	release func()
	// close ends the connection after the answer, or in its place.
	close error

	correlation int32
	// bare says that encoded has no header, as the tokens of SaslHandshake version 0.
	bare  bool
	claim sync.Once
	done  func() // told when it is ready; nil: nobody waits so

	began time.Time // when the request was read
	stats *apiStats // nil: it counts nowhere
}

func (a *answer) isReady() bool {
	select {
	case <-a.ready:
		return true
	default:
		return false
	}
}

// give answers with a response, or with nothing if that is nil.
func (a *answer) give(response kmsg.Response) {
	a.finish(func() { a.response = response })
}

// giveEncoded answers with bytes.
func (a *answer) giveEncoded(b net.Buffers, flexible bool, release func()) {
	given := false
	a.finish(func() { a.encoded, a.flexible, a.release, given = b, flexible, release, true })
	if !given && release != nil {
		release()
	}
}

// end closes the connection in the place of an answer.
func (a *answer) end(why error) {
	a.finish(func() { a.close = why })
}

func (a *answer) finish(set func()) {
	a.claim.Do(func() {
		set()
		if a.stats != nil && a.close == nil {
			a.stats.answered(time.Since(a.began), a.response)
		}
		close(a.ready)
		if a.done != nil {
			a.done()
		}
	})
}

// answerQueue has the answers of a connection that are not written yet. Whoever finds
// the first of them ready and nobody writing writes; so a connection that waits costs no
// goroutine to write.
type answerQueue struct {
	mu struct {
		sync.Mutex
		changed sync.Cond // something was written, or the connection is over
		queue   []*answer // in the order of the requests
		writing int       // answers that were taken off and are not written yet
		busy    bool      // somebody writes
		over    bool      // nothing more is written
		err     error     // why, if a write failed or an answer said so
	}
	writers sync.WaitGroup
}

// push puts an answer in line, when there is room. It returns false when the connection
// is over.
func (c *conn) push(a *answer) bool {
	q := &c.answers
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.mu.queue)+q.mu.writing >= c.server.opts.PipelineMax && !q.mu.over {
		q.mu.changed.Wait()
	}
	if q.mu.over {
		return false
	}
	q.mu.queue = append(q.mu.queue, a)
	return true
}

// pending says whether the client waits for an answer.
func (c *conn) pending() bool {
	q := &c.answers
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.mu.queue)+q.mu.writing > 0
}

// drain waits until all answers are written, or never will be, and says why.
func (c *conn) drain() error {
	q := &c.answers
	q.mu.Lock()
	for len(q.mu.queue)+q.mu.writing > 0 && !q.mu.over {
		q.mu.changed.Wait()
	}
	err := q.mu.err
	q.mu.Unlock()
	return err
}

// whyOver is what ended the connection first.
func (c *conn) whyOver() error {
	q := &c.answers
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.mu.err
}

// stop ends the queue. Answers that are ready or become so later are released.
func (c *conn) stop(why error) {
	q := &c.answers
	q.mu.Lock()
	if !q.mu.over {
		q.mu.over, q.mu.err = true, why
	}
	q.mu.changed.Broadcast()
	q.mu.Unlock()
}

// write writes the answers that are ready, on this goroutine, unless another one does.
func (c *conn) write() {
	q := &c.answers
	q.mu.Lock()
	start := q.startLocked()
	q.mu.Unlock()
	if start {
		c.writeReady()
	}
}

// writeElsewhere does so on a goroutine of its own: the caller must not wait.
func (c *conn) writeElsewhere() {
	q := &c.answers
	q.mu.Lock()
	start, over := q.startLocked(), q.mu.over
	if start && !over {
		q.writers.Go(c.writeReady)
	}
	q.mu.Unlock()
	if start && over {
		c.writeReady() // which does not write, but releases
	}
}

func (q *answerQueue) startLocked() bool {
	if q.mu.busy || len(q.mu.queue) == 0 || !q.mu.queue[0].isReady() {
		return false
	}
	q.mu.busy = true
	return true
}

// takeReady takes those answers off the queue that can be written, after those that it
// took before were.
func (c *conn) takeReady(before []*answer, err error) (ready []*answer, over bool) {
	q := &c.answers
	q.mu.Lock()
	defer q.mu.Unlock()
	if err != nil && !q.mu.over {
		q.mu.over, q.mu.err = true, err
	}
	q.mu.writing -= len(before)
	n := 0
	for n < len(q.mu.queue) && q.mu.queue[n].isReady() {
		n++
	}
	ready = append(before[:0], q.mu.queue[:n]...)
	clear(q.mu.queue[:n])
	q.mu.queue = append(q.mu.queue[:0], q.mu.queue[n:]...)
	q.mu.writing += n
	q.mu.busy = n > 0
	q.mu.changed.Broadcast()
	return ready, q.mu.over
}

// writeReady writes until the next answer is not ready.
func (c *conn) writeReady() {
	var batch []*answer
	var err error
	for {
		var over bool
		batch, over = c.takeReady(batch, err)
		if len(batch) == 0 {
			return
		}
		if !over {
			if err = c.writeBatch(batch); err != nil {
				c.abort(err)
			}
		}
		for _, a := range batch {
			if a.release != nil {
				a.release()
			}
		}
	}
}

// The buffers in which answers are encoded.
const (
	writeKeepMax  = 64 << 10  // a larger one is not kept
	writeChunkMax = 256 << 10 // is written within WriteTimeout
)

// writeBuffers are kept for all connections.
var writeBuffers = sync.Pool{New: func() any { return new([]byte) }}

// writeBatch writes answers. Small ones gather in a buffer.
func (c *conn) writeBatch(batch []*answer) (err error) {
	kept := writeBuffers.Get().(*[]byte)
	buf := (*kept)[:0]
	defer func() {
		if cap(buf) <= writeKeepMax {
			*kept = buf[:0]
		} else {
			*kept = nil
		}
		writeBuffers.Put(kept)
	}()
	for i, a := range batch {
		if c.isFirst(a) {
			c.endInOrder()
		}
		buf = appendAnswer(buf, a)
		if a.encoded != nil || a.close != nil || len(buf) >= writeKeepMax || i == len(batch)-1 {
			if err := c.writeAll(buf, a.encoded); err != nil {
				return err
			}
			buf = buf[:0]
		}
		if a.close != nil {
			return a.close
		}
	}
	return nil
}

// writeAll writes buffers, a chunk at a time: a client that takes little by little what
// is large has time, and one that takes nothing has not.
func (c *conn) writeAll(first []byte, rest net.Buffers) error {
	if len(first) == 0 && len(rest) == 0 {
		return nil
	}
	all := append(net.Buffers{first}, rest...)
	var chunk net.Buffers
	for len(all) > 0 {
		room := writeChunkMax
		chunk = chunk[:0]
		for len(all) > 0 && room > 0 {
			n := min(len(all[0]), room)
			if n > 0 {
				chunk = append(chunk, all[0][:n])
			}
			room -= n
			if all[0] = all[0][n:]; len(all[0]) == 0 {
				all = all[1:]
			}
		}
		now := time.Now()
		if err := c.net.SetWriteDeadline(now.Add(c.server.opts.WriteTimeout)); err != nil {
			return err
		}
		c.writingSince.Store(now.UnixNano())
		err := c.writeChunk(chunk)
		c.writingSince.Store(0)
		if err != nil {
			return err
		}
		c.listener.stats.sent.Add(uint64(writeChunkMax - room))
	}
	return nil
}

// tlsJoinMax is what of small buffers goes into one record of TLS.
const tlsJoinMax = 16 << 10

// writeChunk writes buffers together. TLS would make a record of each, so small ones are
// copied into one.
func (c *conn) writeChunk(chunk net.Buffers) (err error) {
	if c.listener.opts.TLS == nil || len(chunk) == 1 {
		_, err := chunk.WriteTo(c.net)
		return err
	}
	kept := writeBuffers.Get().(*[]byte)
	joined := (*kept)[:0]
	for _, b := range chunk {
		if len(joined)+len(b) > tlsJoinMax && len(joined) > 0 && err == nil {
			_, err = c.net.Write(joined)
			joined = joined[:0]
		}
		if len(b) >= tlsJoinMax && err == nil {
			_, err = c.net.Write(b)
		} else {
			joined = append(joined, b...)
		}
	}
	if len(joined) > 0 && err == nil {
		_, err = c.net.Write(joined)
	}
	*kept = joined[:0]
	writeBuffers.Put(kept)
	return err
}

// appendAnswer encodes an answer but for what is encoded already.
func appendAnswer(buf []byte, a *answer) []byte {
	start := len(buf)
	switch {
	case a.response != nil:
		buf = appendHeader(buf, a.correlation, a.response.IsFlexible() && a.response.Key() != kmsg.ApiVersions.Int16())
		buf = a.response.AppendTo(buf)
	case a.encoded != nil && a.bare:
		buf = append(buf, 0, 0, 0, 0)
	case a.encoded != nil:
		buf = appendHeader(buf, a.correlation, a.flexible)
	default:
		return buf
	}
	size := len(buf) - start - frameSizeLen
	for _, b := range a.encoded {
		size += len(b)
	}
	binary.BigEndian.PutUint32(buf[start:], uint32(size))
	return buf
}

// appendHeader begins a response: room for its size, the correlation id and, in
// flexible versions, no tags.
func appendHeader(b []byte, correlation int32, flexible bool) []byte {
	b = append(b, 0, 0, 0, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(correlation))
	if flexible {
		b = append(b, 0)
	}
	return b
}
