package transport

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// readBufferSize is that of a connection's read buffer, in bytes. Where little comes in small pieces it is littleBufferSize.
const (
	readBufferSize   = 16 << 10
	littleBufferSize = 1 << 10
)

// stream is a connection that passed the handshake. Its reader and its writer are goroutines of the Node.
type stream struct {
	node    *Node
	conn    net.Conn
	peer    Peer
	kind    Kind
	dialled string // the address that was dialled; empty for an inbound connection
	out     *outbox
	in      frameReader
	charge  budget // inbound payloads

	// ctx ends with the stream; its cause is why.
	ctx    context.Context
	cancel context.CancelCauseFunc
	once   sync.Once
}

// newStream makes a stream of a connection whose handshake was done. The stream ends with ctx.
func (n *Node) newStream(ctx context.Context, conn net.Conn, peer Peer, kind Kind, dialled string, readSeed, writeSeed uint64) *stream {
	s := &stream{node: n, conn: conn, peer: peer, kind: kind, dialled: dialled}
	s.out = newOutbox(n.opts.SendQueueBytes, writeSeed)
	size := readBufferSize
	if kind == KindPull || kind == KindUrgent || kind == KindBatches && dialled != "" {
		size = littleBufferSize
	}
	s.in = frameReader{
		r:      bufio.NewReaderSize(&patientReader{conn, n.opts.DeadPeerTimeout}, size),
		seed:   readSeed,
		limits: n.limits(kind, dialled == ""),
	}
	s.charge.max, s.charge.parent = n.opts.ConnBytesMax, &n.inbound
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	return s
}

// limits tells which frames may come in on a stream.
func (n *Node) limits(kind Kind, accepted bool) frameLimits {
	switch {
	case (kind == KindBatches || kind == KindUrgent) && accepted:
		return frameLimits{framePing: 0, frameBatch: n.opts.BatchBytesMax}
	case kind == KindRequests && accepted:
		return frameLimits{framePing: 0, frameRequest: n.opts.RequestBytesMax, frameCancel: 0}
	case kind == KindRequests:
		return frameLimits{framePing: 0, frameResponse: n.opts.ResponseBytesMax, frameError: answerTextMax}
	case kind == KindPull && accepted:
		return frameLimits{framePull: n.opts.PullRequestBytesMax + pullHeadSize}
	case kind == KindPull:
		return frameLimits{framePullBody: pullBodySize, frameError: answerTextMax}
	}
	return frameLimits{framePing: 0}
}

// patientReader gives every read the time in which something must come.
type patientReader struct {
	conn    net.Conn
	timeout time.Duration
}

func (r *patientReader) Read(p []byte) (int, error) {
	if err := r.conn.SetReadDeadline(time.Now().Add(r.timeout)); err != nil {
		return 0, err
	}
	return r.conn.Read(p)
}

// close ends the stream, for the first reason given. It does not wait.
func (s *stream) close(err error) {
	s.once.Do(func() {
		s.cancel(err)
		s.out.close(err)
		s.node.untrack(s.conn)
		_ = s.conn.Close()
	})
}

// cause is why the stream ended, nil while it stands.
func (s *stream) cause() error { return context.Cause(s.ctx) }

// start runs the writer, and closes the stream when its ctx ends. False if the node is closed.
func (s *stream) start() bool {
	return s.node.spawn(s.write)
}

// write sends what is in the outbox, and a ping when there was nothing for a while.
func (s *stream) write() {
	stop := closeWith(s.ctx, func() { s.close(context.Cause(s.ctx)) })
	defer stop()
	interval := s.node.opts.PingInterval
	timer := time.NewTimer(interval)
	defer timer.Stop()
	for {
		select {
		case <-s.out.wake:
		case <-timer.C:
			s.out.rest()
			if err := s.out.add(header{kind: framePing}, nil); err != nil {
				return
			}
		case <-s.ctx.Done():
			return
		}
		if !s.flush() {
			return
		}
		timer.Reset(interval)
	}
}

// flush writes all that waits. False if the stream has ended.
func (s *stream) flush() bool {
	for chunk := s.out.take(); chunk != nil; chunk = s.out.take() {
		n, err := s.conn.Write(chunk)
		s.node.stats.bytesSent.Add(uint64(n))
		if err != nil {
			s.close(fmt.Errorf("%w: %w", ErrConnLost, err))
			return false
		}
		s.out.give(chunk)
	}
	return s.ctx.Err() == nil
}

// read takes frames until the stream ends and returns why. handle gets every frame but pings and must read or discard the payload.
func (s *stream) read(handle func(header) error) error {
	for {
		h, err := s.in.next()
		if err == nil {
			s.node.stats.framesReceived.Add(1)
			s.node.stats.bytesReceived.Add(headerSize + uint64(h.length))
			if h.kind == framePing {
				_, err = s.in.payload(h, nil)
			} else {
				err = handle(h)
			}
		}
		if err != nil {
			s.ended(err)
			return s.cause()
		}
	}
}

// ended closes the stream for an error of the reader, and reports what the peer is to blame for.
func (s *stream) ended(err error) {
	if s.ctx.Err() != nil {
		s.close(context.Cause(s.ctx))
		return
	}
	switch {
	case errors.Is(err, ErrBadFrame) && !errors.Is(err, io.ErrUnexpectedEOF):
		s.node.stats.badFrames.Add(1)
		s.node.event(EventBadFrame, s.peer, err)
	case errors.Is(err, ErrBadFrame): // cut: what a crash leaves
		s.node.stats.cutFrames.Add(1)
	case isTimeout(err):
		err = fmt.Errorf("%w for %v: %w", ErrDeadPeer, s.node.opts.DeadPeerTimeout, err)
		if s.dialled == "" {
			s.node.event(EventDeadPeer, s.peer, err)
		}
	}
	s.close(fmt.Errorf("%w: %w", ErrConnLost, err))
}
