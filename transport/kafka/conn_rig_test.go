package kafka

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memoryStore is a Store in memory.
type memoryStore struct {
	mu      sync.Mutex
	entries map[string]map[string][]byte
	version uint64
	fail    error
}

func (s *memoryStore) Entries(kind string) map[string][]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.entries[kind]
}

func (s *memoryStore) EntriesVersion(string) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version
}

// failWith makes changes fail.
func (s *memoryStore) failWith(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = err
}

func (s *memoryStore) SetEntries(_ context.Context, kind string, entries map[string][]byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		return s.fail
	}
	all := maps.Clone(s.entries[kind])
	if all == nil {
		all = map[string][]byte{}
	}
	for key, value := range entries {
		if value == nil {
			delete(all, key)
			continue
		}
		all[key] = value
	}
	if s.entries == nil {
		s.entries = map[string]map[string][]byte{}
	}
	s.entries[kind] = all
	s.version++
	return nil
}

// logLines keeps what was logged.
type logLines struct {
	mu    sync.Mutex
	lines []string
	more  chan struct{} // of one, whenever there is a line
}

func newLogLines() *logLines { return &logLines{more: make(chan struct{}, 1)} }

func (l *logLines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, string(b))
	select {
	case l.more <- struct{}{}:
	default:
	}
	return len(b), nil
}

func (l *logLines) all() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.lines, "")
}

// await waits for a line.
func (l *logLines) await(t *testing.T, part string) {
	t.Helper()
	late := time.After(askTimeout)
	for !strings.Contains(l.all(), part) {
		select {
		case <-l.more:
		case <-late:
			t.Fatalf("no line says %q:\n%s", part, l.all())
		}
	}
}

// connRig is a server whose requests tests take apart.
type connRig struct {
	*Server
	t     *testing.T
	lines *logLines
	store *memoryStore
}

func newConnRig(t *testing.T, change ...func(*Options)) *connRig {
	t.Helper()
	r := &connRig{t: t, lines: newLogLines(), store: &memoryStore{}}
	opts := Options{Broker: newAdminBroker(), Store: r.store, Listeners: []Listener{{Address: "127.0.0.1:0"}},
		Logger: slog.New(slog.NewTextHandler(r.lines, nil))}
	for _, f := range change {
		f(&opts)
	}
	var err error
	if r.Server, err = Open(opts); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Server.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// answerTo replaces what is done about a request. It is called before Serve.
func (r *connRig) answerTo(key kmsg.Key, handle func(c *call, request kmsg.Request, a *answer)) {
	entry := *r.apis[key.Int16()]
	entry.handle = handle
	r.apis[key.Int16()] = &entry
}

// testClient speaks bytes.
type testClient struct {
	t *testing.T
	net.Conn
}

func (r *connRig) dial() *testClient {
	r.t.Helper()
	c, err := r.tryDial()
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

// tryDial is for connections that may be refused, which can show at once.
func (r *connRig) tryDial() (*testClient, error) {
	r.t.Helper()
	nc, err := net.Dial("tcp", r.listeners[0].Addr().String())
	if err != nil {
		return nil, err
	}
	r.t.Cleanup(func() { _ = nc.Close() })
	if err := nc.SetDeadline(time.Now().Add(askTimeout)); err != nil {
		r.t.Fatal(err)
	}
	return &testClient{r.t, nc}, nil
}

// frameOf encodes a request with its size.
func frameOf(request kmsg.Request, version int16, correlation int32) []byte {
	request.SetVersion(version)
	b := binary.BigEndian.AppendUint16(make([]byte, 4), uint16(request.Key()))
	b = binary.BigEndian.AppendUint16(b, uint16(version))
	b = binary.BigEndian.AppendUint32(b, uint32(correlation))
	b = append(b, 0, 4, 't', 'e', 's', 't')
	if request.IsFlexible() {
		b = append(b, 0)
	}
	b = request.AppendTo(b)
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

func (c *testClient) write(b []byte) {
	c.t.Helper()
	if _, err := c.Write(b); err != nil && !isBroken(err) {
		c.t.Fatal(err)
	}
}

func isBroken(err error) bool {
	return errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, net.ErrClosed)
}

// next reads an answer: what comes after its size.
func (c *testClient) next() ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return nil, err
	}
	b := make([]byte, binary.BigEndian.Uint32(size[:]))
	_, err := io.ReadFull(c, b)
	return b, err
}

// ask sends a request and decodes the answer.
func ask[R kmsg.Response](c *testClient, request kmsg.Request, version int16) R {
	c.t.Helper()
	c.write(frameOf(request, version, 42))
	return decode[R](c, request, 42)
}

func decode[R kmsg.Response](c *testClient, request kmsg.Request, correlation int32) R {
	c.t.Helper()
	b, err := c.next()
	if err != nil {
		c.t.Fatalf("%T version %d: %v", request, request.GetVersion(), err)
	}
	if got := int32(binary.BigEndian.Uint32(b)); got != correlation {
		c.t.Fatalf("%T: an answer to %d, want %d", request, got, correlation)
	}
	b = b[4:]
	r := request.ResponseKind()
	if r.IsFlexible() && r.Key() != kmsg.ApiVersions.Int16() {
		b = b[1:]
	}
	if err := r.ReadFrom(b); err != nil {
		c.t.Fatalf("%T: %v", r, err)
	}
	return r.(R)
}

// closed waits until the server has closed the connection, and says what came before.
func (c *testClient) closed() []byte {
	c.t.Helper()
	var got bytes.Buffer
	if _, err := io.Copy(&got, c); err != nil && !isBroken(err) {
		c.t.Fatalf("the connection is not closed: %v", err)
	}
	return got.Bytes()
}

// alive asks for versions on a connection of its own.
func (r *connRig) alive() {
	r.t.Helper()
	if v := ask[*kmsg.ApiVersionsResponse](r.dial(), kmsg.NewPtrApiVersionsRequest(), 0); v.ErrorCode != 0 {
		r.t.Errorf("another client is told %d", v.ErrorCode)
	}
}
