package transport

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"
)

// pullSliceMax is what a pull sends between two looks at throttle and deadline, in bytes.
const pullSliceMax = 1 << 20

// servePull answers the one pull of a connection. Nothing else runs on it: what ends it is the Node, or a write that fails.
func (n *Node) servePull(s *stream) {
	stop := closeWith(s.ctx, func() { s.close(context.Cause(s.ctx)) })
	defer stop()
	defer s.close(ErrClosed)
	h, err := s.in.next()
	if err != nil {
		s.ended(err)
		return
	}
	payload, err := s.in.payload(h, nil)
	var request PullRequest
	if err == nil {
		request, err = decodePullRequest(payload)
	}
	if err != nil {
		s.ended(err)
		return
	}
	source, err := n.openPull(s, request)
	if err != nil {
		code, text := answerOf(err)
		_ = s.writePatiently(appendFrame(nil, s.out.seed, header{kind: frameError, id: h.id, arg: uint32(code)}, text))
		return
	}
	defer n.release(&n.mu.pulls)
	defer source.close()
	n.sendPull(s, h.id, request, source)
}

// openPull asks the caller for the source, within bounds.
func (n *Node) openPull(s *stream, request PullRequest) (Source, error) {
	n.mu.Lock()
	full := n.mu.pulls >= n.opts.PullsMax
	if !full {
		n.mu.pulls++
	}
	n.mu.Unlock()
	if full {
		return Source{}, fmt.Errorf("%w: %d pulls are served", ErrBusy, n.opts.PullsMax)
	}
	limit, cancel := context.WithTimeout(s.ctx, n.opts.PullStallTimeout)
	defer cancel()
	source, err := n.opts.OnPull(limit, s.peer, request)
	if err == nil && (source.Length < 0 || source.Length > 0 && source.Reader == nil) {
		source.close()
		err = errors.New("the source has no reader, or a negative length")
	}
	if err == nil && request.Length > 0 && source.Length > request.Length {
		source.close()
		err = fmt.Errorf("the source has %d bytes, %d were asked for", source.Length, request.Length)
	}
	if err != nil {
		n.release(&n.mu.pulls)
		return Source{}, err
	}
	n.stats.pullsServed.Add(1)
	return source, nil
}

// sendPull sends length and bytes.
func (n *Node) sendPull(s *stream, id uint64, request PullRequest, source Source) {
	var length [pullBodySize]byte
	binary.BigEndian.PutUint64(length[:], uint64(source.Length))
	if s.writePatiently(appendFrame(nil, s.out.seed, header{kind: framePullBody, id: id}, length[:])) != nil {
		return
	}
	rate := request.BytesPerSecond
	if rate > 0 {
		rate = max(rate, pullRateMin)
	}
	own := newThrottle(rate)
	for left := source.Length; left > 0; {
		slice := min(left, pullSlice(n.pullRate.rate()), pullSlice(rate))
		if own.wait(s.ctx, slice) != nil || n.pullRate.wait(s.ctx, slice) != nil {
			return
		}
		sent, err := s.sendSlice(source.Reader, slice)
		n.stats.bytesSent.Add(uint64(sent))
		n.stats.pullBytesSent.Add(uint64(sent))
		left -= sent
		if err != nil {
			return
		}
	}
}

// pullSlice is about a tenth of a second's bytes, so that pauses are short.
func pullSlice(rate int64) int64 {
	if rate <= 0 {
		return pullSliceMax
	}
	return max(min(rate/10, pullSliceMax), 4<<10)
}

// sendSlice copies n bytes of the source. io.CopyN hands the connection an *io.LimitedReader, with which a *net.TCPConn and a file use
// sendfile.
func (s *stream) sendSlice(from io.Reader, n int64) (int64, error) {
	if err := s.conn.SetWriteDeadline(time.Now().Add(s.node.opts.PullStallTimeout)); err != nil {
		return 0, err
	}
	return io.CopyN(s.conn, from, n)
}

// writePatiently writes within PullStallTimeout.
func (s *stream) writePatiently(b []byte) error {
	if err := s.conn.SetWriteDeadline(time.Now().Add(s.node.opts.PullStallTimeout)); err != nil {
		return err
	}
	_, err := s.conn.Write(b)
	return err
}
