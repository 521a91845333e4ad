package transport

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// requests is the answering end of a connection for requests.
type requests struct {
	node *Node
	s    *stream

	mu struct {
		sync.Mutex
		running map[uint64]context.CancelFunc
	}
}

// serveRequests answers what a peer asks until the connection ends.
func (n *Node) serveRequests(s *stream) {
	r := &requests{node: n, s: s}
	r.mu.running = map[uint64]context.CancelFunc{}
	_ = s.read(r.receive)
}

func (r *requests) receive(h header) error {
	if h.kind == frameCancel {
		r.cancel(h.id)
		_, err := r.s.in.payload(h, nil)
		return err
	}
	if r.runs(h.id) {
		return fmt.Errorf("%w: request %d runs already", ErrBadFrame, h.id)
	}
	size := int64(h.length)
	if r.node.opts.OnRequest == nil {
		return r.refuse(h, answerNotServed, "requests are not served here")
	}
	if !r.s.charge.take(size) {
		return r.refuse(h, answerBusy, "no memory for the request")
	}
	ctx, ok := r.begin(h)
	if !ok {
		r.s.charge.give(size)
		return r.refuse(h, answerBusy, "too many requests")
	}
	payload, err := r.s.in.payload(h, nil)
	started := err == nil && r.node.spawn(func() {
		defer r.s.charge.give(size)
		defer r.end(h.id)
		r.handle(ctx, h.id, payload)
	})
	if !started {
		r.s.charge.give(size)
		r.end(h.id)
	}
	return err
}

// refuse skips a request and says why. If the peer does not read, so that there is no room for that, nothing more is read from it.
func (r *requests) refuse(h header, code answerCode, why string) error {
	r.node.stats.requestsRefused.Add(1)
	if err := r.s.in.discard(h); err != nil {
		return err
	}
	return r.s.out.addWait(r.s.ctx, header{kind: frameError, id: h.id, arg: uint32(code)}, []byte(why))
}

// begin makes the handler's context, unless too many run.
func (r *requests) begin(h header) (context.Context, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.mu.running) >= r.node.opts.RequestsMax {
		return nil, false
	}
	var ctx context.Context
	var cancel context.CancelFunc
	if h.arg > 0 {
		ctx, cancel = context.WithTimeout(r.s.ctx, time.Duration(h.arg)*time.Millisecond)
	} else {
		ctx, cancel = context.WithCancel(r.s.ctx)
	}
	r.mu.running[h.id] = cancel
	return ctx, true
}

func (r *requests) runs(id uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.running[id] != nil
}

func (r *requests) end(id uint64) {
	r.mu.Lock()
	cancel := r.mu.running[id]
	delete(r.mu.running, id)
	r.mu.Unlock()
	if cancel != nil {
		cancel()
	}
}

// cancel ends a handler's context. An id that does not run was answered already.
func (r *requests) cancel(id uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if cancel := r.mu.running[id]; cancel != nil {
		cancel()
	}
}

// handle runs the handler and sends its answer, waiting for room: the request holds its place in RequestsMax until then.
func (r *requests) handle(ctx context.Context, id uint64, payload []byte) {
	r.node.stats.requestsServed.Add(1)
	response, err := r.node.opts.OnRequest(ctx, r.s.peer, payload)
	if err == nil && len(response) > r.node.opts.ResponseBytesMax {
		err = fmt.Errorf("%w: a response of %d bytes, at most %d are allowed", ErrTooLarge, len(response), r.node.opts.ResponseBytesMax)
	}
	if err != nil {
		code, text := answerOf(err)
		_ = r.s.out.addWait(r.s.ctx, header{kind: frameError, id: id, arg: uint32(code)}, text)
		return
	}
	_ = r.s.out.addWait(r.s.ctx, header{kind: frameResponse, id: id}, response)
}

// answerOf makes an error frame's code and words of a handler's error.
func answerOf(err error) (answerCode, []byte) {
	code := answerFailed
	switch {
	case errors.Is(err, ErrBusy):
		code = answerBusy
	case errors.Is(err, ErrTooLarge):
		code = answerTooLarge
	case errors.Is(err, ErrTimeout), errors.Is(err, context.DeadlineExceeded):
		code = answerTimeout
	}
	return code, []byte(printable(err.Error(), answerTextMax))
}
