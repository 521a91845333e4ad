package kafka

import (
	"bytes"
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// everyFrame is a request of each kind and version that is served.
func everyFrame() (frames [][]byte) {
	for _, entry := range apis() {
		for version := entry.min; version <= entry.max; version++ {
			frames = append(frames, frameOf(entry.key.Request(), version, int32(version)))
		}
	}
	return frames
}

// fuzzServer is one whose handlers but for those of connections answer with nothing in it.
func fuzzServer(f *testing.F) (*Server, *logLines) {
	lines, store := newLogLines(), &memoryStore{}
	if err := SetUser(f.Context(), store, "ann", "secret"); err != nil {
		f.Fatal(err)
	}
	s, err := Open(Options{Broker: newAdminBroker(), Store: store, Authorize: true, SuperUsers: []string{anonymous}, RequestBytesMax: 1 << 20,
		Logger: slog.New(slog.NewTextHandler(lines, &slog.HandlerOptions{Level: slog.LevelError})), PipelineMax: 4,
		Listeners: []Listener{{Address: "127.0.0.1:0"}, {Name: "SASL", Address: "127.0.0.1:0", SASL: Mechanisms()}}})
	if err != nil {
		f.Fatal(err)
	}
	store.failWith(errBad) // what one input changes another one would see
	f.Cleanup(func() { _ = s.Close() })
	own := map[int16]bool{}
	for _, entry := range sessionAPIs() {
		own[entry.key.Int16()] = true
	}
	for key, entry := range s.apis {
		if !own[key] {
			changed := *entry
			changed.handle = func(_ *call, request kmsg.Request, a *answer) { a.give(request.ResponseKind()) }
			s.apis[key] = &changed
		}
	}
	return s, lines
}

// serveStream lets a server serve one client that sends a stream and goes, and returns
// what it answered.
func serveStream(t *testing.T, s *Server, l *listener, stream []byte) []byte {
	t.Helper()
	ours, theirs := net.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		newConn(s, l, ours).run()
	}()
	answered := make(chan []byte)
	go func() {
		b, _ := io.ReadAll(theirs)
		answered <- b
	}()
	if _, err := theirs.Write(stream); err == nil {
		// A pipe has no half: let what is on its way be answered first, if it is.
		_ = theirs.SetReadDeadline(time.Now().Add(time.Millisecond))
	}
	got := <-answered
	_ = theirs.Close()
	<-done
	return got
}

// Any stream of bytes is served or ends the connection, without a fault.
func FuzzConnection(f *testing.F) {
	s, lines := fuzzServer(f)
	var all []byte
	for _, frame := range everyFrame() {
		f.Add(false, frame)
		all = append(all, frame...)
	}
	f.Add(false, all)
	f.Add(true, bytes.Join([][]byte{frameOf(kmsg.NewPtrApiVersionsRequest(), 3, 1), frameOf(&kmsg.SASLHandshakeRequest{Mechanism: "PLAIN"}, 1, 2),
		frameOf(&kmsg.SASLAuthenticateRequest{SASLAuthBytes: []byte("\x00ann\x00secret")}, 2, 3), frameOf(kmsg.NewPtrDescribeACLsRequest(), 2, 4)}, nil))
	f.Add(true, bytes.Join([][]byte{frameOf(&kmsg.SASLHandshakeRequest{Mechanism: "PLAIN"}, 0, 2), bigEndian(11, "\x00ann\x00secret")}, nil))
	f.Add(true, []byte("GET / HTTP/1.1\r\n\r\n"))
	f.Add(false, bigEndian(-1, "abcd"))
	f.Fuzz(func(t *testing.T, sasl bool, stream []byte) {
		l := s.listeners[0]
		if sasl {
			l = s.listeners[1]
		}
		got := serveStream(t, s, l, stream)
		for len(got) >= 4 { // whole answers, but for the last one
			size := binary.BigEndian.Uint32(got)
			if size > 16<<20 {
				t.Fatalf("an answer of %d bytes", size)
			}
			if uint32(len(got)-4) < size {
				break
			}
			got = got[4+size:]
		}
		if said := lines.all(); strings.Contains(said, "this is a bug") {
			t.Fatal(said)
		}
	})
}

// Any frame is a request or an error, and a request is answered in a form that encodes.
func FuzzFrame(f *testing.F) {
	s, _ := fuzzServer(f)
	for _, frame := range everyFrame() {
		f.Add(frame[4:])
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		if len(frame) < requestHeader {
			return
		}
		ours, theirs := net.Pipe()
		defer func() { _, _ = ours.Close(), theirs.Close() }()
		c := newConn(s, s.listeners[0], ours)
		defer c.abort(nil)
		c.session.begin(false)
		call, request, entry, err := c.parse(frame)
		if err != nil {
			return
		}
		a := &answer{ready: make(chan struct{})}
		if entry == nil {
			a.give(unknownVersion(s))
		} else {
			entry.handle(call, request, a)
		}
		<-a.ready
		if b := appendAnswer(nil, a); int(binary.BigEndian.Uint32(b)) != len(b)-4 {
			t.Fatalf("an answer of %d bytes says %d", len(b)-4, binary.BigEndian.Uint32(b))
		}
	})
}
