package transport

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"
)

// PullRequest says what is wanted. What Payload names, and what an offset in it means, is between the two callers; the offset travels
// beside it so that a pull that broke is asked again with Offset moved by what came.
type PullRequest struct {
	// Payload names the thing. At most Options.PullRequestBytesMax.
	Payload []byte
	// Offset is the first byte wanted, in bytes, at least 0.
	Offset int64
	// Length is the most bytes wanted; 0: up to the end.
	Length int64
	// BytesPerSecond asks the sender for a rate; 0: none. Below 64 KiB/s is taken as 64 KiB/s.
	BytesPerSecond int64
}

// The fixed parts of pull frames: offset, length and rate before the payload; the length of the body.
const (
	pullHeadSize = 24
	pullBodySize = 8
)

func (r PullRequest) encode() []byte {
	b := make([]byte, pullHeadSize, pullHeadSize+len(r.Payload))
	binary.BigEndian.PutUint64(b[0:], uint64(r.Offset))
	binary.BigEndian.PutUint64(b[8:], uint64(r.Length))
	binary.BigEndian.PutUint64(b[16:], uint64(r.BytesPerSecond))
	return append(b, r.Payload...)
}

func decodePullRequest(b []byte) (PullRequest, error) {
	if len(b) < pullHeadSize {
		return PullRequest{}, fmt.Errorf("%w: a pull request of %d bytes", ErrBadFrame, len(b))
	}
	r := PullRequest{
		Offset:         int64(binary.BigEndian.Uint64(b[0:])),
		Length:         int64(binary.BigEndian.Uint64(b[8:])),
		BytesPerSecond: int64(binary.BigEndian.Uint64(b[16:])),
		Payload:        b[pullHeadSize:],
	}
	if r.Offset < 0 || r.Length < 0 || r.BytesPerSecond < 0 {
		return PullRequest{}, fmt.Errorf("%w: a pull of %d bytes from %d at %d bytes/s", ErrBadFrame, r.Length, r.Offset, r.BytesPerSecond)
	}
	return r, nil
}

// Pull is a stream of bytes from a peer. Read is for one goroutine, Close for any.
type Pull struct {
	s         *stream
	length    int64
	remaining int64
	stop      func() bool
}

// Pull asks a node for bytes, over a connection of its own that ends with ctx. It returns when the peer has opened what is wanted and
// its length is known. The caller must Close what it gets. Errors: as for Call, and ErrStalled.
func (n *Node) Pull(ctx context.Context, id int32, request PullRequest) (*Pull, error) {
	if request.Offset < 0 || request.Length < 0 || request.BytesPerSecond < 0 {
		return nil, fmt.Errorf("transport: a pull of %d bytes from %d at %d bytes/s", request.Length, request.Offset, request.BytesPerSecond)
	}
	if len(request.Payload) > n.opts.PullRequestBytesMax {
		return nil, fmt.Errorf("%w: a pull request of %d bytes, at most %d are allowed", ErrTooLarge, len(request.Payload), n.opts.PullRequestBytesMax)
	}
	s, err := n.dial(ctx, id, KindPull)
	if err != nil {
		return nil, err
	}
	p := &Pull{s: s}
	p.stop = closeWith(s.ctx, func() { s.close(context.Cause(s.ctx)) })
	if err := p.ask(request); err != nil {
		_ = p.Close()
		return nil, err
	}
	return p, nil
}

// ask sends the request and reads what the peer makes of it.
func (p *Pull) ask(request PullRequest) error {
	s := p.s
	s.in.r.Reset(&patientReader{s.conn, s.node.opts.PullStallTimeout})
	frame := appendFrame(nil, s.out.seed, header{kind: framePull, id: 1}, request.encode())
	_ = s.conn.SetWriteDeadline(time.Now().Add(s.node.opts.PullStallTimeout))
	if _, err := s.conn.Write(frame); err != nil {
		return p.broken(err)
	}
	h, err := s.in.next()
	if err != nil {
		return p.broken(err)
	}
	payload, err := s.in.payload(h, nil)
	switch {
	case err != nil:
		return p.broken(err)
	case h.kind == frameError:
		return answerError(s.peer.ID, answerCode(h.arg), payload)
	case len(payload) != pullBodySize:
		return p.broken(fmt.Errorf("%w: the length of a pull in %d bytes", ErrBadFrame, len(payload)))
	}
	p.length = int64(binary.BigEndian.Uint64(payload))
	if p.length < 0 || request.Length > 0 && p.length > request.Length {
		return p.broken(fmt.Errorf("%w: %d bytes are offered, %d were asked for", ErrBadFrame, p.length, request.Length))
	}
	p.remaining = p.length
	return nil
}

// broken ends the pull and says why.
func (p *Pull) broken(err error) error {
	switch {
	case p.s.ctx.Err() != nil:
		err = p.s.cause()
	case isTimeout(err):
		err = fmt.Errorf("%w for %v", ErrStalled, p.s.node.opts.PullStallTimeout)
	case errors.Is(err, ErrBadFrame):
		p.s.node.stats.badFrames.Add(1)
		p.s.node.event(EventBadFrame, p.s.peer, err)
	case errors.Is(err, io.EOF):
		err = io.ErrUnexpectedEOF
	}
	err = fmt.Errorf("%w: pull from node %d: %w", ErrConnLost, p.s.peer.ID, err)
	p.s.close(err)
	return err
}

// Length is the number of bytes of the whole pull, from the offset that was asked for on.
func (p *Pull) Length() int64 { return p.length }

// Remaining is the number of bytes that have not been read.
func (p *Pull) Remaining() int64 { return p.remaining }

// Read reads the next bytes; io.EOF after Length of them. Errors: ErrConnLost with the cause, which may be ErrStalled or ctx's error;
// what was read before is good, and the rest may be pulled again from there.
func (p *Pull) Read(b []byte) (int, error) {
	if p.remaining == 0 {
		return 0, io.EOF
	}
	if len(b) == 0 {
		return 0, nil
	}
	if int64(len(b)) > p.remaining {
		b = b[:p.remaining]
	}
	n, err := p.s.in.r.Read(b)
	p.remaining -= int64(n)
	p.s.node.stats.bytesReceived.Add(uint64(n))
	if err != nil && p.remaining > 0 {
		return n, p.broken(err)
	}
	return n, nil
}

// Close ends the pull, read to the end or not.
func (p *Pull) Close() error {
	p.s.close(ErrClosed)
	p.stop()
	p.s.node.leave(p.s)
	return nil
}
