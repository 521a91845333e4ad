package kafka

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// endingRig is a server that never answers produce requests.
type endingRig struct {
	*connRig
	waits chan struct{} // of one, when there is such a request
}

func newEndingRig(t *testing.T, change func(*Options)) *endingRig {
	if change == nil {
		change = func(*Options) {}
	}
	r := &endingRig{connRig: newConnRig(t, change), waits: make(chan struct{}, 1)}
	r.answerTo(kmsg.Produce, func(*call, kmsg.Request, *answer) { r.waits <- struct{}{} })
	r.answerTo(kmsg.CreateTopics, func(_ *call, request kmsg.Request, a *answer) { a.give(request.ResponseKind()) })
	r.Serve()
	return r
}

// taken waits until the server has taken a connection.
func (r *endingRig) taken() {
	r.t.Helper()
	for late := time.Now().Add(askTimeout); ; time.Sleep(time.Millisecond) {
		r.mu.Lock()
		n := len(r.mu.conns)
		r.mu.Unlock()
		if n > 0 {
			return
		}
		if time.Now().After(late) {
			r.t.Fatal("no connection is taken")
		}
	}
}

// produce sends a request that stays without an answer.
func (r *endingRig) produce(c *testClient) {
	c.write(produceFrame(1))
	<-r.waits
}

func (r *endingRig) shut() {
	if err := r.Server.Close(); err != nil {
		r.t.Error(err)
	}
}

// A connection that has not answered what its client asks is reset when it ends, so that
// all clients try again. Others are closed in order, and those of clients that do not
// speak as they should.
func TestEndings(t *testing.T) {
	limited := func(o *Options) { o.ConnectionsMax, o.ConnectionsPerHostMax = 1, 1 }
	secured := func(o *Options) { o.Listeners[0].SASL = Mechanisms() }
	encrypted := func(o *Options) { o.Listeners[0].TLS = selfSigned(t) }
	for name, c := range map[string]struct {
		change func(*Options)
		do     func(*endingRig, *testClient)
		want   error
	}{
		"nothing was asked": {nil, func(r *endingRig, _ *testClient) { r.shut() }, syscall.ECONNRESET},
		"versions were told": {nil, func(r *endingRig, c *testClient) {
			ask[*kmsg.ApiVersionsResponse](c, kmsg.NewPtrApiVersionsRequest(), 4)
			r.shut()
		}, syscall.ECONNRESET},
		"a mechanism was told": {secured, func(r *endingRig, c *testClient) {
			ask[*kmsg.SASLHandshakeResponse](c, &kmsg.SASLHandshakeRequest{Mechanism: "PLAIN"}, 1)
			r.shut()
		}, syscall.ECONNRESET},
		"a request waits": {nil, func(r *endingRig, c *testClient) {
			r.produce(c)
			r.shut()
		}, syscall.ECONNRESET},
		"a handshake waits": {encrypted, func(r *endingRig, c *testClient) { r.shut() }, syscall.ECONNRESET},
		"a request over TLS waits": {encrypted, func(r *endingRig, c *testClient) {
			c.Conn = tls.Client(c.Conn, &tls.Config{InsecureSkipVerify: true})
			r.produce(c)
			r.shut()
		}, syscall.ECONNRESET},
		"a request was answered": {nil, func(r *endingRig, c *testClient) {
			ask[*kmsg.CreateTopicsResponse](c, kmsg.NewPtrCreateTopicsRequest(), 5)
			r.produce(c)
			r.shut()
		}, io.EOF},
		"nothing comes": {func(o *Options) { o.IdleTimeout = shortTime }, func(*endingRig, *testClient) {}, syscall.ECONNRESET},
		"there are too many": {limited, func(r *endingRig, c *testClient) {
			for { // the reset can come while it connects
				other, err := r.tryDial()
				if err == nil {
					c.Conn = other.Conn
					return
				}
				if !isBroken(err) {
					t.Fatal(err)
				}
			}
		}, syscall.ECONNRESET},
		"its settings are wrong": {secured, func(_ *endingRig, c *testClient) { c.write(produceFrame(1)) }, io.EOF},
		"it is gone": {nil, func(r *endingRig, c *testClient) {
			if err := c.Conn.(*net.TCPConn).CloseWrite(); err != nil {
				t.Fatal(err)
			}
		}, io.EOF},
	} {
		t.Run(name, func(t *testing.T) {
			r := newEndingRig(t, c.change)
			client := r.dial()
			r.taken()
			c.do(r, client)
			if _, err := client.Read(make([]byte, 1)); !errors.Is(err, c.want) {
				t.Errorf("the client sees %v, want %v", err, c.want)
			}
		})
	}
}

// A client whose first request waits at a node that closes takes it for worth another try.
func TestEndingIsRetriable(t *testing.T) {
	for name, change := range map[string]func(*Options){"plaintext": nil, "TLS": func(o *Options) { o.Listeners[0].TLS = selfSigned(t) }} {
		t.Run(name, func(t *testing.T) {
			r := newEndingRig(t, change)
			opts := []kgo.Opt{kgo.SeedBrokers(r.listeners[0].Addr().String()), kgo.RequestRetries(0)}
			if change != nil {
				opts = append(opts, kgo.DialTLSConfig(&tls.Config{InsecureSkipVerify: true}))
			}
			client, err := kgo.NewClient(opts...)
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			ended := make(chan error, 1)
			go func() {
				_, err := client.SeedBrokers()[0].Request(context.Background(), kmsg.NewPtrProduceRequest())
				ended <- err
			}()
			<-r.waits
			r.shut()
			if err := <-ended; err == nil || !kgo.IsRetryableBrokerErr(err) {
				t.Errorf("the client gives up: %v", err)
			}
		})
	}
}

// selfSigned is what a listener needs for TLS.
func selfSigned(t *testing.T) *tls.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
}
