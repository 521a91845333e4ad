package kafka

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/internal/kerr"
)

func bigEndian(parts ...any) []byte {
	var b []byte
	for _, p := range parts {
		switch x := p.(type) {
		case int:
			b = binary.BigEndian.AppendUint32(b, uint32(int32(x)))
		case int16:
			b = binary.BigEndian.AppendUint16(b, uint16(x))
		case string:
			b = append(b, x...)
		}
	}
	return b
}

// What a client must not send closes its connection, with a line that says what it was,
// and nobody else notices.
func TestBadFrames(t *testing.T) {
	topics := kmsg.NewPtrCreateTopicsRequest()
	topics.Topics = []kmsg.CreateTopicsRequestTopic{{Topic: "t"}}
	whole := frameOf(topics, 5, 1)
	cut := bytes.Clone(whole[:len(whole)-3])
	binary.BigEndian.PutUint32(cut, uint32(len(cut)-4))
	for _, c := range []struct {
		name string
		send []byte
		line string
	}{
		{"a negative length", bigEndian(-1, "abcdefgh"), "a request of -1 bytes"},
		{"the lowest length", bigEndian(-1<<31, "abcdefgh"), "a request of -2147483648 bytes"},
		{"a giant length", bigEndian(1<<31-1, "abcdefgh"), "a request of 2147483647 bytes"},
		{"no length", bigEndian(0, "abcdefgh"), "a request of 0 bytes"},
		{"less than a header", bigEndian(7, "abcdefgh"), "a request of 7 bytes"},
		{"HTTP", []byte("GET / HTTP/1.1\r\n\r\n"), "this looks like HTTP"},
		{"TLS", []byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"), "this looks like TLS"},
		{"an unknown kind", bigEndian(10, int16(999), int16(0), 1, int16(-1)), "a request of kind 999"},
		{"a negative kind", bigEndian(10, int16(-7), int16(0), 1, int16(-1)), "a request of kind -7"},
		{"an unknown version", bigEndian(10, int16(19), int16(99), 1, int16(-1)), "CreateTopics version 99"},
		{"a negative version", bigEndian(10, int16(19), int16(-1), 1, int16(-1)), "CreateTopics version -1"},
		{"a header without an end", bigEndian(10, int16(19), int16(5), 1, int16(500)), "unexpected EOF"},
		{"a body without an end", cut, "CreateTopics version 5"},
		{"only a header", bigEndian(8, int16(19), int16(5), 1), "CreateTopics version 5"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newConnRig(t)
			r.Serve()
			client := r.dial()
			client.write(c.send)
			if got := client.closed(); len(got) != 0 {
				t.Errorf("%d bytes of an answer", len(got))
			}
			r.lines.await(t, c.line)
			r.alive()
		})
	}
}

// A frame that ends in the middle with its connection is how connections break: no line.
func TestCutFrame(t *testing.T) {
	r := newConnRig(t)
	r.Serve()
	whole := frameOf(kmsg.NewPtrApiVersionsRequest(), 3, 1)
	for n := range whole {
		client := r.dial()
		client.write(whole[:n])
		if err := client.Conn.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if got := client.closed(); len(got) != 0 {
			t.Errorf("after %d bytes: an answer", n)
		}
	}
	r.alive()
	if lines := r.lines.all(); lines != "" {
		t.Errorf("lines about it: %s", lines)
	}
}

// Versions that are not known are answered so that the client can try again.
func TestUnknownApiVersions(t *testing.T) {
	r := newConnRig(t)
	r.Serve()
	client := r.dial()
	for _, version := range []int16{5, 99, -1, 1<<15 - 1} {
		client.write(bigEndian(10, int16(18), version, 7, int16(-1)))
		request := kmsg.NewPtrApiVersionsRequest()
		got := decode[*kmsg.ApiVersionsResponse](client, request, 7)
		if got.ErrorCode != kerr.UNSUPPORTED_VERSION || len(got.ApiKeys) != len(r.apis) {
			t.Errorf("version %d: code %d, %d keys", version, got.ErrorCode, len(got.ApiKeys))
		}
	}
	if v := ask[*kmsg.ApiVersionsResponse](client, kmsg.NewPtrApiVersionsRequest(), 0); v.ErrorCode != 0 {
		t.Errorf("afterwards: code %d", v.ErrorCode)
	}
}

// produceFrame is a request to produce that has nothing in it.
func produceFrame(correlation int32) []byte {
	q := kmsg.NewPtrProduceRequest()
	q.Acks = -1
	return frameOf(q, 9, correlation)
}

// Answers leave in the order of the requests. Produce requests are carried out beside one
// another, and others wait until those before them are answered.
func TestAnswersInOrder(t *testing.T) {
	r := newConnRig(t)
	var mu sync.Mutex
	var held []func()
	came := make(chan string, 8)
	r.answerTo(kmsg.Produce, func(c *call, request kmsg.Request, a *answer) {
		mu.Lock()
		held = append(held, func() { a.give(request.ResponseKind()) })
		mu.Unlock()
		came <- "produce"
	})
	r.answerTo(kmsg.CreateTopics, func(c *call, request kmsg.Request, a *answer) {
		came <- "create"
		a.give(request.ResponseKind())
	})
	r.Serve()
	client := r.dial()
	client.write(bytes.Join([][]byte{produceFrame(1), produceFrame(2), frameOf(kmsg.NewPtrCreateTopicsRequest(), 5, 3), produceFrame(4)}, nil))
	for range 2 {
		if got := <-came; got != "produce" {
			t.Fatalf("%s came before both produce requests", got)
		}
	}
	mu.Lock()
	held[1]()
	mu.Unlock()
	select {
	case got := <-came:
		t.Errorf("%s came before the first produce request was answered", got)
	default:
	}
	mu.Lock()
	held[0]()
	mu.Unlock()
	if a, b := <-came, <-came; a != "create" || b != "produce" {
		t.Errorf("then came %s and %s", a, b)
	}
	mu.Lock()
	held[2]()
	mu.Unlock()
	for want := range int32(4) {
		b, err := client.next()
		if err != nil {
			t.Fatal(err)
		}
		if got := int32(binary.BigEndian.Uint32(b)); got != want+1 {
			t.Fatalf("answer %d came in place %d", got, want+1)
		}
	}
}

// Many requests at once are answered in order, whatever order they finish in.
func TestPipeline(t *testing.T) {
	const n = 500
	r := newConnRig(t, func(o *Options) { o.PipelineMax = 8 })
	r.answerTo(kmsg.Produce, func(c *call, request kmsg.Request, a *answer) {
		go a.give(request.ResponseKind())
	})
	r.answerTo(kmsg.CreateTopics, func(c *call, request kmsg.Request, a *answer) { a.give(request.ResponseKind()) })
	r.Serve()
	client := r.dial()
	go func() {
		for i := range int32(n) {
			b := produceFrame(i)
			if i%7 == 3 {
				b = frameOf(kmsg.NewPtrCreateTopicsRequest(), 5, i)
			}
			if _, err := client.Write(b); err != nil {
				return
			}
		}
	}()
	for want := range int32(n) {
		b, err := client.next()
		if err != nil {
			t.Fatal(err)
		}
		if got := int32(binary.BigEndian.Uint32(b)); got != want {
			t.Fatalf("answer %d came in place %d", got, want)
		}
	}
}

// A client that sends requests and closes its side gets its answers.
func TestHalfClose(t *testing.T) {
	r := newConnRig(t)
	var a *answer
	came := make(chan struct{})
	r.answerTo(kmsg.Produce, func(c *call, request kmsg.Request, got *answer) {
		a = got
		close(came)
	})
	r.Serve()
	client := r.dial()
	client.write(append(produceFrame(1), frameOf(kmsg.NewPtrApiVersionsRequest(), 0, 2)...))
	if err := client.Conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	<-came
	a.give(kmsg.NewPtrProduceRequest().ResponseKind())
	for _, want := range []int32{1, 2} {
		b, err := client.next()
		if err != nil || int32(binary.BigEndian.Uint32(b)) != want {
			t.Fatalf("answer %d: %v", want, err)
		}
	}
	client.closed()
}

// A fault in a handler ends the connection, with a line that has the place, and nothing
// else.
func TestFault(t *testing.T) {
	r := newConnRig(t)
	r.answerTo(kmsg.CreateTopics, func(*call, kmsg.Request, *answer) { panic("out of order") })
	r.Serve()
	client := r.dial()
	client.write(frameOf(kmsg.NewPtrCreateTopicsRequest(), 5, 1))
	if got := client.closed(); len(got) != 0 {
		t.Errorf("%d bytes of an answer", len(got))
	}
	r.lines.await(t, "out of order")
	if lines := r.lines.all(); !strings.Contains(lines, "conn_test.go") || !strings.Contains(lines, "CreateTopics") {
		t.Errorf("the line does not say where: %s", lines)
	}
	r.alive()
}

// The first answer counts; a second one only gives its memory back.
func TestAnswerTwice(t *testing.T) {
	a := &answer{ready: make(chan struct{})}
	a.end(errBad)
	released := false
	a.give(nil)
	a.giveEncoded(nil, false, func() { released = true })
	if !errors.Is(a.close, errBad) || !released || a.release != nil {
		t.Errorf("close %v, released %v", a.close, released)
	}
}

// Close ends connections in any state, and the answers of those that wait are released.
func TestCloseWhileConnected(t *testing.T) {
	r := newConnRig(t, func(o *Options) {
		o.Listeners = append(o.Listeners, Listener{Name: "SASL", Address: "127.0.0.1:0", SASL: Mechanisms()})
	})
	var mu sync.Mutex
	var held []*answer
	came := make(chan struct{}, 8)
	r.answerTo(kmsg.Produce, func(_ *call, _ kmsg.Request, a *answer) {
		mu.Lock()
		defer mu.Unlock()
		held = append(held, a)
		came <- struct{}{}
	})
	r.answerTo(kmsg.CreateTopics, func(c *call, _ kmsg.Request, a *answer) {
		came <- struct{}{}
		<-c.ctx.Done()
		a.give(nil)
	})
	r.Serve()
	var clients []*testClient
	for _, send := range [][]byte{nil, {0, 0}, bigEndian(100, int16(18)), produceFrame(1), frameOf(kmsg.NewPtrCreateTopicsRequest(), 5, 1)} {
		c := r.dial()
		c.write(send)
		clients = append(clients, c)
	}
	<-came
	<-came
	done := make(chan error, 1)
	go func() { done <- r.Server.Close() }()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(askTimeout):
		t.Fatal("Close does not return")
	}
	for _, c := range clients {
		c.closed()
	}
	released := make(chan struct{})
	mu.Lock()
	held[0].giveEncoded(net.Buffers{[]byte("late")}, false, func() { close(released) })
	mu.Unlock()
	<-released
}

// Connections beyond the bounds are closed, with a line, and there is room again when
// others go.
func TestConnectionsMax(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Options)
	}{
		{"all", func(o *Options) { o.ConnectionsMax, o.ConnectionsPerHostMax = 3, 100 }},
		{"of one host", func(o *Options) { o.ConnectionsPerHostMax = 3 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newConnRig(t, c.change)
			r.Serve()
			var in []*testClient
			for range 3 {
				client := r.dial()
				ask[*kmsg.ApiVersionsResponse](client, kmsg.NewPtrApiVersionsRequest(), 0)
				in = append(in, client)
			}
			if client, err := r.tryDial(); err == nil {
				client.closed()
			} else if !isBroken(err) {
				t.Fatal(err)
			}
			r.lines.await(t, "a connection was refused")
			_ = in[0].Close()
			for try := 0; ; try++ { // until the server has seen it
				if client, err := r.tryDial(); err == nil {
					client.write(frameOf(kmsg.NewPtrApiVersionsRequest(), 0, 1))
					if _, err := client.next(); err == nil {
						break
					}
				}
				if try > 10_000 {
					t.Fatal("there is no room again")
				}
			}
		})
	}
}

// A client that is gone does not hold a request that waits.
func TestGoneWhileWaiting(t *testing.T) {
	r := newConnRig(t)
	ended := make(chan struct{})
	came := make(chan struct{})
	r.answerTo(kmsg.CreateTopics, func(c *call, _ kmsg.Request, a *answer) {
		close(came)
		<-c.ctx.Done()
		a.give(nil)
		close(ended)
	})
	r.Serve()
	client := r.dial()
	client.write(frameOf(kmsg.NewPtrCreateTopicsRequest(), 5, 1))
	<-came
	_ = client.Close()
	select {
	case <-ended:
	case <-time.After(askTimeout):
		t.Fatal("the request of a client that is gone goes on")
	}
}

// Requests and answers beyond every buffer come through whole.
func TestLargeFrames(t *testing.T) {
	r := newConnRig(t)
	part := bytes.Repeat([]byte("0123456789abcdef"), 1<<16) // 1 MiB
	r.answerTo(kmsg.Produce, func(_ *call, request kmsg.Request, a *answer) {
		records := request.(*kmsg.ProduceRequest).Topics[0].Partitions[0].Records
		if !bytes.Equal(records, bytes.Repeat(part, 3)) {
			a.end(fmt.Errorf("%w: other bytes", errBad))
			return
		}
		a.giveEncoded(net.Buffers{part, nil, part[:1], part[1:]}, true, nil)
	})
	r.Serve()
	client := r.dial()
	for i := range int32(3) {
		q := kmsg.NewPtrProduceRequest()
		q.Topics = []kmsg.ProduceRequestTopic{{Topic: "t", Partitions: []kmsg.ProduceRequestTopicPartition{{Records: bytes.Repeat(part, 3)}}}}
		client.write(frameOf(q, 9, i))
		b, err := client.next()
		if err != nil {
			t.Fatal(err)
		}
		want := append(bigEndian(int(i), "\x00"), append(bytes.Clone(part), part...)...)
		if !bytes.Equal(b, want) {
			t.Fatalf("answer %d has %d bytes, want %d, or others", i, len(b), len(want))
		}
	}
}
