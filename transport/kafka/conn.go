package kafka

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// The sizes of a connection and of its frames.
const (
	readBuffer    = 1 << 10 // larger requests are read past it
	frameSizeLen  = 4
	requestHeader = 8 // key, version, correlation
	tagsMax       = 64
)

// errBad marks what a client must not do, errBug what is a fault of this package. Both
// close the connection.
var (
	errBad = errors.New("the client broke the protocol")
	errBug = errors.New("a request met a fault of the server")
)

// conn is a client's connection. One goroutine reads and carries out requests. It writes
// the answers, too, but for those that come later.
type conn struct {
	server   *Server
	listener *listener
	raw      net.Conn // below TLS
	net      net.Conn
	read     *bufio.Reader
	answers  answerQueue
	produces sync.WaitGroup // that are not answered yet
	host     string
	started  time.Time
	session  session
	ending   ending
	// busySince is when the request began that is carried out, in nanoseconds; 0: none is.
	busySince atomic.Int64
	// heldSince is when memory was taken for the request that is read or carried out, and
	// heldBytes how much; writingSince when writing began of what is written. 0: none is.
	heldSince, heldBytes, writingSince atomic.Int64

	ctx     context.Context
	cancel  context.CancelFunc
	cursors cursorCache   // of fetches
	fetches *fetchSession // nil: there is none
}

func newConn(s *Server, l *listener, nc net.Conn) *conn {
	c := &conn{server: s, listener: l, raw: nc, net: nc, host: hostOf(nc), started: time.Now()}
	c.answers.mu.changed.L = &c.answers.mu
	c.ctx, c.cancel = context.WithCancel(s.ctx)
	return c
}

// hostOf is the address of a client, without its port.
func hostOf(nc net.Conn) string {
	host, _, err := net.SplitHostPort(nc.RemoteAddr().String())
	if err != nil {
		return nc.RemoteAddr().String()
	}
	return host
}

// abort makes the connection end. TLS would wait to say goodbye.
func (c *conn) abort(why error) {
	if errors.Is(why, errBad) || errors.Is(why, errDenied) {
		c.endInOrder()
	}
	c.stop(why)
	c.cancel()
	_ = c.raw.Close()
}

// run serves the client until it goes or has to.
func (c *conn) run() {
	err := c.begin()
	if err == nil {
		c.read = bufio.NewReaderSize(c.net, readBuffer)
		err = c.readRequests()
	}
	if errors.Is(err, io.EOF) || errors.Is(err, errDenied) {
		// It may have sent requests and closed its side, or waits to hear why.
		c.busySince.Store(time.Now().UnixNano())
		err = errors.Join(c.drain(), deniedOnly(err))
		c.endInOrder()
	}
	c.abort(err)
	c.answers.writers.Wait()
	c.cursors.close()
	c.fetches.close()
	if !c.expected(err) {
		c.logWarn("a client's connection was closed", slog.Any("err", err))
	}
}

// begin makes the handshake of TLS, if there is one, and finds out who the client is as
// far as that says.
func (c *conn) begin() error {
	c.session.begin(len(c.listener.opts.SASL) > 0)
	if c.listener.opts.TLS == nil {
		return nil
	}
	t := tls.Server(c.raw, c.listener.opts.TLS)
	c.net = t
	if err := c.raw.SetDeadline(c.started.Add(c.server.opts.AuthTimeout)); err != nil {
		return err
	}
	if err := t.HandshakeContext(c.ctx); err != nil {
		return c.handshakeError(err)
	}
	if err := c.raw.SetDeadline(time.Time{}); err != nil {
		return err
	}
	if certs := t.ConnectionState().PeerCertificates; len(certs) > 0 {
		c.session.principal = userPrefix + distinguishedName(certs[0])
	}
	return nil
}

// handshakeError says what a client did that does not speak TLS, or not ours.
func (c *conn) handshakeError(err error) error {
	var not tls.RecordHeaderError
	switch {
	case errors.As(err, &not) && not.Conn != nil:
		return fmt.Errorf("%w: this is not TLS, which the listener wants: give the client its TLS settings%s", errBad, guess(not.RecordHeader[:4]))
	case errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed), errors.Is(err, os.ErrDeadlineExceeded):
		return err
	}
	return fmt.Errorf("%w: TLS: %w", errBad, err)
}

// expected says that an error is how connections end.
func (c *conn) expected(err error) bool {
	if err == nil || c.server.ctx.Err() != nil {
		return true
	}
	if errors.Is(err, errBad) || errors.Is(err, errBug) || errors.Is(err, errDenied) {
		return false
	}
	var op *net.OpError // such as a reset
	return errors.Is(err, errGone) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &op)
}

func (c *conn) logWarn(message string, attrs ...slog.Attr) {
	c.log(&c.server.clientLines, slog.LevelWarn, message, attrs)
}

func (c *conn) logError(message string, attrs ...slog.Attr) {
	c.log(&c.server.errorLines, slog.LevelError, message, attrs)
}

func (c *conn) log(limit *lineLimiter, level slog.Level, message string, attrs []slog.Attr) {
	attrs = append(attrs, slog.String("listener", c.listener.opts.Name), slog.String("host", c.host))
	c.server.logLimited(limit, level, message, attrs...)
}

// readRequests takes requests until there is an error.
func (c *conn) readRequests() error {
	for {
		f, err := c.readFrame()
		if err != nil {
			return err
		}
		c.busySince.Store(time.Now().UnixNano())
		late, err := c.request(f.b)
		c.busySince.Store(0)
		f.release()
		c.heldSince.Store(0)
		if err != nil {
			return err
		}
		if late != nil {
			if err := late(); err != nil {
				return err
			}
		}
	}
}

// readFrame reads a request, once there is memory for it.
func (c *conn) readFrame() (*frame, error) {
	head, err := c.peek(frameSizeLen, c.server.opts.IdleTimeout)
	if err != nil {
		return nil, err
	}
	early := !c.session.known()
	size, err := c.sizeOf(head, early)
	if err != nil {
		return nil, err
	}
	// The kind comes before the memory, so that nothing is held for who only announces.
	kind := int16(-1)
	if size >= requestHeader {
		if head, err = c.peek(frameSizeLen+2, c.server.opts.ReadTimeout); err != nil {
			return nil, err
		}
		kind = int16(binary.BigEndian.Uint16(head[frameSizeLen:]))
	}
	f, err := c.server.memory.take(c.ctx, size, early, !early && kind == kmsg.Produce.Int16())
	if err != nil {
		return nil, net.ErrClosed
	}
	c.heldBytes.Store(int64(size))
	c.heldSince.Store(time.Now().UnixNano())
	if c.read.Buffered() < frameSizeLen+size {
		err = c.net.SetReadDeadline(c.deadline(c.server.opts.ReadTimeout))
	}
	if err == nil {
		_, err = c.read.Discard(frameSizeLen)
	}
	if err == nil {
		_, err = io.ReadFull(c.read, f.b)
	}
	if err != nil {
		f.release()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = fmt.Errorf("%w: a request of %d bytes did not come within %v", errBad, size, c.server.opts.ReadTimeout)
		} else if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	c.listener.stats.received.Add(uint64(frameSizeLen + size))
	return f, nil
}

// sizeOf is the size of a request, if it may have it.
func (c *conn) sizeOf(head []byte, early bool) (int, error) {
	limit, least := c.server.opts.RequestBytesMax, requestHeader
	if early {
		limit = c.server.opts.EarlyRequestBytesMax
	}
	if c.session.bare() {
		least = 0
	}
	size := int64(int32(binary.BigEndian.Uint32(head)))
	if size < int64(least) || size > int64(limit) {
		return 0, fmt.Errorf("%w: a request of %d bytes: %d to %d are possible%s", errBad, size, least, limit, guess(head))
	}
	return int(size), nil
}

// peek waits for the first bytes of the next request, which stay in the buffer.
func (c *conn) peek(n int, wait time.Duration) ([]byte, error) {
	for {
		if c.read.Buffered() < n {
			if err := c.net.SetReadDeadline(c.deadline(wait)); err != nil {
				return nil, err
			}
		}
		b, err := c.read.Peek(n)
		switch {
		case err == nil:
			return b, nil
		case errors.Is(err, os.ErrDeadlineExceeded) && len(b) == 0 && c.session.known() && c.pending():
			continue // it waits for us
		case errors.Is(err, os.ErrDeadlineExceeded) && !c.session.known():
			return nil, fmt.Errorf("%w: it did not prove who it is within %v", errBad, c.server.opts.AuthTimeout)
		case errors.Is(err, io.EOF) && len(b) > 0:
			return nil, io.ErrUnexpectedEOF
		}
		return nil, err
	}
}

// deadline is when a wait of that length ends, which is earlier for a client that nobody
// knows.
func (c *conn) deadline(wait time.Duration) time.Time {
	at := time.Now().Add(wait)
	if auth := c.started.Add(c.server.opts.AuthTimeout); !c.session.known() && auth.Before(at) {
		return auth
	}
	return at
}

// guess says what the first bytes of another protocol are.
func guess(head []byte) string {
	switch {
	case head[0] == 0x16 && head[1] == 3:
		return ": this looks like TLS, and the listener is plaintext"
	case string(head) == "GET " || string(head) == "POST" || string(head) == "HEAD" || string(head) == "PUT " || string(head) == "OPTI":
		return ": this looks like HTTP"
	}
	return ""
}

// request carries out a request, which is whole in the frame. When it returns nothing
// of the frame is needed any more, and the answer is on its way to the client; only that
// to a produce request may take longer. What is left to do without the frame is returned.
func (c *conn) request(frame []byte) (late func() error, err error) {
	if c.session.bare() {
		return c.bareToken(frame)
	}
	call, request, entry, err := c.parse(frame)
	if err != nil {
		return nil, err
	}
	a := &answer{ready: make(chan struct{}), correlation: int32(binary.BigEndian.Uint32(frame[4:])), began: time.Now()}
	if entry != nil {
		a.stats = entry.stats
	}
	_, produce := request.(*kmsg.ProduceRequest)
	if produce {
		c.heldSince.Store(0) // it waits for disks, not for the client
		c.produces.Add(1)
		a.done = func() { c.produces.Done(); c.writeElsewhere() }
	} else {
		c.produces.Wait()
	}
	if !c.push(a) {
		a.end(net.ErrClosed)
		return nil, net.ErrClosed
	}
	if entry == nil {
		a.give(unknownVersion(c.server))
	} else if err := c.handle(entry, call, request, a); err != nil {
		a.end(err)
		return nil, err
	}
	if produce {
		return nil, nil
	}
	if c.session.denied != nil {
		return c.deny(a), nil
	}
	<-a.ready
	c.write()
	return nil, nil
}

// handle calls the handler. A fault in it ends the connection, not the process.
func (c *conn) handle(entry *api, call *call, request kmsg.Request, a *answer) (err error) {
	defer func() {
		if fault := recover(); fault != nil {
			c.logError("a request met a fault: this is a bug", slog.String("request", entry.key.Name()), slog.Int("version", int(call.version)),
				slog.Any("fault", fault), slog.String("stack", string(debug.Stack())))
			err = fmt.Errorf("%w: %s version %d", errBug, entry.key.Name(), call.version)
		}
	}()
	entry.handle(call, request, a)
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
	case !entry.early && !c.session.mayAsk(time.Now()):
		return nil, nil, nil, fmt.Errorf("%w: %s from a client that has to prove who it is, by SASL, first", errBad, entry.key.Name())
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
	return &call{ctx: c.ctx, conn: c, version: version, client: Client{ID: id, Host: c.host}, principal: c.session.principal}, request, entry, nil
}

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
