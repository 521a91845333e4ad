package kafka

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// The buffers of a connection.
const (
	readBuffer    = 4 << 10
	writeKeepMax  = 64 << 10 // a larger buffer is not kept
	frameSizeLen  = 4
	requestHeader = 8 // key, version, correlation
	tagsMax       = 64
)

// errBad marks what a client must not do. Its connection is closed.
var errBad = errors.New("the client broke the protocol")

// conn is a client's connection. One goroutine reads and carries out requests, another
// one writes the answers in the same order.
type conn struct {
	server   *Server
	listener *listener
	net      net.Conn
	read     *bufio.Reader
	answers  chan *answer   // in the order of the requests
	produces sync.WaitGroup // that are not answered yet
	host     string

	ctx    context.Context
	cancel context.CancelFunc
}

func newConn(s *Server, l *listener, nc net.Conn) *conn {
	c := &conn{server: s, listener: l, net: nc, read: bufio.NewReaderSize(nc, readBuffer), answers: make(chan *answer, s.opts.PipelineMax)}
	c.host, _, _ = net.SplitHostPort(nc.RemoteAddr().String())
	c.ctx, c.cancel = context.WithCancel(s.ctx)
	return c
}

// abort makes the connection end.
func (c *conn) abort() {
	c.cancel()
	_ = c.net.Close()
}

// run serves the client until it goes or has to.
func (c *conn) run() {
	written := make(chan error, 1)
	go func() { written <- c.writeAnswers() }()
	err := c.readRequests()
	if c.expected(err) { // it may have sent requests and closed its side
		close(c.answers)
		err = <-written
	} else {
		c.abort()
		close(c.answers)
		<-written
	}
	c.abort()
	if err != nil && !c.expected(err) {
		c.server.logger.LogAttrs(context.Background(), slog.LevelWarn, "a client's connection was closed",
			slog.String("listener", c.listener.opts.Name), slog.String("host", c.host), slog.Any("err", err))
	}
}

// expected says that an error is how connections end.
func (c *conn) expected(err error) bool {
	return err == nil || c.server.ctx.Err() != nil || errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, errBad)
}

// readRequests takes requests until there is an error.
func (c *conn) readRequests() error {
	for {
		frame, release, err := c.readFrame()
		if err != nil {
			return err
		}
		err = c.request(frame)
		release()
		if err != nil {
			return err
		}
	}
}

// readFrame reads a request, once there is memory for it. release gives that back; it is
// called once.
func (c *conn) readFrame() (frame []byte, release func(), err error) {
	if err := c.net.SetReadDeadline(time.Now().Add(c.server.opts.IdleTimeout)); err != nil {
		return nil, nil, err
	}
	var head [frameSizeLen]byte
	if _, err := io.ReadFull(c.read, head[:]); err != nil {
		return nil, nil, err
	}
	size := int32(binary.BigEndian.Uint32(head[:]))
	if size < requestHeader || int64(size) > int64(c.server.opts.RequestBytesMax) {
		return nil, nil, fmt.Errorf("%w: a request of %d bytes: %d to %d are possible%s", errBad, size, requestHeader, c.server.opts.RequestBytesMax, guess(head[:]))
	}
	if err := c.server.requestMemory.Acquire(c.ctx, int64(size)); err != nil {
		return nil, nil, net.ErrClosed
	}
	release = func() { c.server.requestMemory.Release(int64(size)) }
	frame = make([]byte, size)
	err = c.net.SetReadDeadline(time.Now().Add(c.server.opts.ReadTimeout))
	if err == nil {
		_, err = io.ReadFull(c.read, frame)
	}
	if err != nil {
		release()
		return nil, nil, err
	}
	return frame, release, nil
}

// guess says what the first bytes of another protocol are.
func guess(head []byte) string {
	switch {
	case head[0] == 0x16 && head[1] == 3:
		return ": this looks like TLS, and the listener is plaintext"
	case string(head) == "GET " || string(head) == "POST" || string(head) == "HEAD":
		return ": this looks like HTTP"
	}
	return ""
}

// request carries out a request, which is whole in the frame. When it returns nothing
// of the frame is needed any more, and the answer is on its way to the client; only that
// to a produce request may take longer.
func (c *conn) request(frame []byte) error {
	call, request, entry, err := c.parse(frame)
	if err != nil {
		return err
	}
	a := &answer{ready: make(chan struct{}), correlation: int32(binary.BigEndian.Uint32(frame[4:]))}
	if _, ok := request.(*kmsg.ProduceRequest); ok {
		c.produces.Add(1)
		a.done = c.produces.Done
	} else {
		c.produces.Wait()
	}
	select {
	case c.answers <- a:
	case <-c.ctx.Done():
		a.end(net.ErrClosed)
		return net.ErrClosed
	}
	if entry == nil {
		a.give(unknownVersion(c.server))
		return nil
	}
	entry.handle(call, request, a)
	if a.done == nil {
		<-a.ready
	}
	return nil
}

// parse decodes a request. Without an entry it is an ApiVersions request of a version
// that is not known.
func (c *conn) parse(frame []byte) (*call, kmsg.Request, *api, error) {
	key, version := int16(binary.BigEndian.Uint16(frame)), int16(binary.BigEndian.Uint16(frame[2:]))
	entry := c.server.apis[key]
	switch {
	case entry == nil:
		return nil, nil, nil, fmt.Errorf("%w: a request of kind %d, which is not served", errBad, key)
	case (version < entry.min || version > entry.max) && entry.key == kmsg.ApiVersions:
		return nil, nil, nil, nil
	case version < entry.min || version > entry.max:
		return nil, nil, nil, fmt.Errorf("%w: %s version %d: versions %d to %d are served", errBad, entry.key.Name(), version, entry.min, entry.max)
	}
	request := entry.key.Request()
	request.SetVersion(version)
	id, body, err := splitHeader(frame[requestHeader:], request.IsFlexible())
	if err == nil {
		err = request.ReadFrom(body)
	}
	if err != nil {
		return nil, nil, nil, fmt.Errorf("%w: %s version %d: %w", errBad, entry.key.Name(), version, err)
	}
	return &call{ctx: c.ctx, conn: c, version: version, client: Client{ID: id, Host: c.host}, principal: anonymous}, request, entry, nil
}

// anonymous is who a client is that has not proved to be somebody.
const anonymous = "User:ANONYMOUS"

// splitHeader takes the rest of a request's header off: what the client calls itself
// and, in flexible versions, tags.
func splitHeader(b []byte, flexible bool) (id string, body []byte, err error) {
	if len(b) < 2 {
		return "", nil, io.ErrUnexpectedEOF
	}
	if n := int(int16(binary.BigEndian.Uint16(b))); n >= 0 {
		if len(b) < 2+n {
			return "", nil, io.ErrUnexpectedEOF
		}
		id, b = string(b[2:2+n]), b[n:]
	}
	b = b[2:]
	if flexible {
		b, err = skipTags(b)
	}
	return id, b, err
}

// skipTags takes tags off, whatever they are.
func skipTags(b []byte) ([]byte, error) {
	count, n := binary.Uvarint(b)
	if n <= 0 || count > tagsMax {
		return nil, fmt.Errorf("%d tags in a header: %w", count, io.ErrUnexpectedEOF)
	}
	b = b[n:]
	for range count {
		_, n := binary.Uvarint(b)
		if n <= 0 {
			return nil, io.ErrUnexpectedEOF
		}
		size, m := binary.Uvarint(b[n:])
		if m <= 0 || size > uint64(len(b)-n-m) {
			return nil, io.ErrUnexpectedEOF
		}
		b = b[n+m+int(size):]
	}
	return b, nil
}

// writeAnswers writes answers, each when it is ready, until there are no more. Small ones
// gather in a buffer as long as the next one is ready. After an error it goes on to take
// them, and writes none.
func (c *conn) writeAnswers() (err error) {
	var buf []byte
	for a := range c.answers {
		if err == nil && len(buf) > 0 && !a.isReady() {
			buf, err = c.flush(buf, nil)
		}
		<-a.ready
		if err == nil {
			err = a.close
		}
		if err == nil {
			buf = appendAnswer(buf, a)
			if a.encoded != nil || len(buf) >= writeKeepMax || len(c.answers) == 0 {
				buf, err = c.flush(buf, a.encoded)
			}
		}
		if a.release != nil {
			a.release()
		}
		if err != nil {
			c.abort()
		}
	}
	return err
}

// appendAnswer encodes an answer but for what is encoded already.
func appendAnswer(buf []byte, a *answer) []byte {
	start := len(buf)
	switch {
	case a.response != nil:
		buf = appendHeader(buf, a.correlation, a.response.IsFlexible() && a.response.Key() != kmsg.ApiVersions.Int16())
		buf = a.response.AppendTo(buf)
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

// flush writes the buffer and what comes after it, and returns the buffer, empty.
func (c *conn) flush(buf []byte, after net.Buffers) ([]byte, error) {
	if len(buf) == 0 {
		return buf, nil
	}
	if err := c.net.SetWriteDeadline(time.Now().Add(c.server.opts.WriteTimeout)); err != nil {
		return nil, err
	}
	out := append(net.Buffers{buf}, after...)
	_, err := out.WriteTo(c.net)
	if cap(buf) > writeKeepMax {
		return nil, err
	}
	return buf[:0], err
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
