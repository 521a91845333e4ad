package transport

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

func nodeName(id int32) string { return fmt.Sprintf("node-%d", id) }

// tlsPair starts two nodes over TLS and returns what the first makes of the second.
func tlsPair(t *testing.T, one, two *MutualTLS) (state PeerState, events *recorder, err error) {
	t.Helper()
	rec, events := newRecorder(), newRecorder()
	a, b := testOptions(1, one), testOptions(2, two)
	a.CheckIdentity, b.CheckIdentity = NameCheck(nodeName), NameCheck(nodeName)
	a.OnPeerState, b.OnEvent = rec.onState, events.onEvent
	b.ListenAddress = "127.0.0.1:0"
	var seen sync.Map
	b.OnRequest = func(_ context.Context, from Peer, _ []byte) ([]byte, error) {
		seen.Store(from.ID, from.Identity)
		return nil, nil
	}
	n, _ := pair(t, a, b)
	_, err = n.Call(testContext(t), 2, nil)
	if err == nil {
		who, _ := seen.Load(int32(1))
		if !who.(Identity).Has("node-1") || who.(Identity).Certificate == nil {
			t.Errorf("the handler saw %+v", who)
		}
	}
	rec.wait(t, "a state", func() bool { return len(rec.states) > 0 })
	rec.mu.Lock()
	defer rec.mu.Unlock()
	return rec.states[0], events, err
}

func TestMutualTLS(t *testing.T) {
	ca, other := newAuthority(t, "ca"), newAuthority(t, "other")
	expired, err := NewMutualTLS(ca.write(t, t.TempDir(), "node-1", time.Now().Add(-time.Minute)))
	if err != nil {
		t.Fatal(err)
	}
	expiredServer, err := NewMutualTLS(ca.write(t, t.TempDir(), "node-2", time.Now().Add(-time.Minute)))
	if err != nil {
		t.Fatal(err)
	}
	good1, good2 := ca.transport(t, "node-1"), ca.transport(t, "node-2")
	for name, c := range map[string]struct {
		one, two *MutualTLS
		is       error
		words    string
	}{
		"good":           {good1, good2, nil, ""},
		"client of CA 2": {other.transport(t, "node-1"), good2, ErrAuthentication, ""},
		"server of CA 2": {good1, other.transport(t, "node-2"), ErrAuthentication, "unknown authority"},
		"client expired": {expired, good2, ErrAuthentication, ""},
		"server expired": {good1, expiredServer, ErrAuthentication, "expired"},
		"client's name":  {ca.transport(t, "node-9"), good2, ErrIdentity, "node-9"},
		"server's name":  {good1, ca.transport(t, "node-9"), ErrIdentity, "node-9"},
	} {
		t.Run(name, func(t *testing.T) {
			state, _, err := tlsPair(t, c.one, c.two)
			if c.is == nil {
				if err != nil || state.Status != PeerReachable {
					t.Errorf("%v, %v", state, err)
				}
				return
			}
			if !errors.Is(err, c.is) || !strings.Contains(fmt.Sprint(err), c.words) || state.Status != PeerRejected || state.Gone() {
				t.Errorf("state %v, error %v", state, err)
			}
		})
	}
}

// A client that offers TLS 1.2, no certificate or no TLS at all does not get as far as our handshake.
func TestTLSKeepsStrangersOut(t *testing.T) {
	ca := newAuthority(t, "ca")
	rec := newRecorder()
	opts := testOptions(2, ca.transport(t, "node-2"))
	opts.ListenAddress, opts.OnEvent, opts.CheckIdentity = "127.0.0.1:0", rec.onEvent, anyIdentity
	n := startNode(t, opts)
	addr := n.Addr().String()
	for name, config := range map[string]*tls.Config{
		"1.2":            {InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12, NextProtos: []string{alpn}},
		"no certificate": {InsecureSkipVerify: true, NextProtos: []string{alpn}},
		"other protocol": {InsecureSkipVerify: true, NextProtos: []string{"h2"}},
	} {
		conn, err := tls.Dial("tcp", addr, config)
		if err != nil {
			continue
		}
		_, _ = conn.Write(testHello().encode())
		if _, err := readAnswer(conn); err == nil {
			t.Errorf("%s: an answer", name)
		}
		_ = conn.Close()
	}
	plain, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	_, _ = plain.Write(testHello().encode())
	if _, err := readAnswer(plain); err == nil {
		t.Error("an answer without TLS")
	}
	rec.wait(t, "four events", func() bool { return len(rec.events) == 4 })
	if s := n.Stats(); s.HandshakesBad != 4 || s.HandshakesRefused != 0 {
		t.Errorf("%+v", s)
	}
}

// Without a rule for identities nobody gets in.
func TestTLSNeedsCheckIdentity(t *testing.T) {
	ca := newAuthority(t, "ca")
	a, b := testOptions(1, ca.transport(t, "node-1")), testOptions(2, ca.transport(t, "node-2"))
	b.ListenAddress, a.CheckIdentity = "127.0.0.1:0", anyIdentity
	one, _ := pair(t, a, b)
	if _, err := one.Call(testContext(t), 2, nil); !errors.Is(err, ErrIdentity) || !strings.Contains(err.Error(), "no rule") {
		t.Error(err)
	}
}

func TestTLSReload(t *testing.T) {
	ca, next := newAuthority(t, "ca"), newAuthority(t, "next")
	dir := t.TempDir()
	reports := make(chan error, 10)
	opts := ca.write(t, dir, "node-2", time.Now().Add(time.Hour))
	opts.OnReload = func(err error) { reports <- err }
	server, err := NewMutualTLS(opts)
	if err != nil {
		t.Fatal(err)
	}
	l, err := server.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			if _, err := conn.(AuthenticatedConn).Authenticate(context.Background()); err == nil {
				_, _ = conn.Write([]byte("x"))
			}
			_ = conn.Close()
		}
	}()
	defer func() { _ = l.Close(); <-served }()
	try := func(client *MutualTLS) error {
		conn, err := client.Dial(testContext(t), l.Addr().String())
		if err != nil {
			return err
		}
		defer conn.Close()
		_, err = conn.Read(make([]byte, 1))
		return err
	}
	ofCA, ofNext := ca.transport(t, "node-1"), next.transport(t, "node-1")
	if err := try(ofCA); err != nil {
		t.Fatal(err)
	}
	if err := try(ofNext); !errors.Is(err, ErrAuthentication) {
		t.Fatal(err)
	}
	// A new file that is no good keeps the old, and is reported once.
	if err := os.WriteFile(opts.CertFile, []byte("half a file"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := try(ofCA); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-reports; !errors.Is(err, ErrCertificate) {
		t.Error(err)
	}
	if len(reports) != 0 {
		t.Errorf("reported again: %v", <-reports)
	}
	if err := server.Reload(); !errors.Is(err, ErrCertificate) || !errors.Is(<-reports, ErrCertificate) {
		t.Error(err)
	}
	// Good files are taken without a restart.
	next.write(t, dir, "node-2", time.Now().Add(time.Hour))
	if err := try(ofNext); err != nil {
		t.Error(err)
	}
	if err := <-reports; err != nil {
		t.Error(err)
	}
	if err := try(ofCA); !errors.Is(err, ErrAuthentication) {
		t.Error(err)
	}
	if err := os.Remove(opts.CAFile); err != nil {
		t.Fatal(err)
	}
	if err := try(ofNext); err != nil {
		t.Error(err)
	}
	if err := <-reports; !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

func TestTLSOptionsAreChecked(t *testing.T) {
	ca := newAuthority(t, "ca")
	dir := t.TempDir()
	good := ca.write(t, dir, "node-1", time.Now().Add(time.Hour))
	if err := os.WriteFile(dir+"/empty", bytes.Repeat([]byte("\n"), 10), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, spoil := range []func(*TLSOptions){
		func(o *TLSOptions) { o.CertFile = "" },
		func(o *TLSOptions) { o.KeyFile = o.CertFile },
		func(o *TLSOptions) { o.CAFile = dir + "/empty" },
	} {
		o := good
		spoil(&o)
		if _, err := NewMutualTLS(o); !errors.Is(err, ErrCertificate) {
			t.Error(err)
		}
	}
}

// TLS runs over any transport, and a Close that would have to tell a peer that does not read does not wait.
func TestTLSOverMemory(t *testing.T) {
	m := newTestNetwork(t, 1)
	ca := newAuthority(t, "ca")
	make1 := func(name, host string) *MutualTLS {
		o := ca.write(t, t.TempDir(), name, time.Now().Add(time.Hour))
		o.Inner = m.Host(host)
		tr, err := NewMutualTLS(o)
		if err != nil {
			t.Fatal(err)
		}
		return tr
	}
	release := make(chan struct{})
	a, b := testOptions(1, make1("node-1", "a")), testOptions(2, make1("node-2", "b"))
	a.CheckIdentity, b.CheckIdentity = NameCheck(nodeName), NameCheck(nodeName)
	b.OnBatch = func(Peer, []byte) { <-release }
	b.ListenAddress = "b"
	one, _ := pair(t, a, b)
	t.Cleanup(func() { close(release) })
	batches, err := one.OpenBatches(testContext(t), 2, FullDrops)
	if err != nil {
		t.Fatal(err)
	}
	for range 8 {
		if err := batches.Send(make([]byte, 1<<20)); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	if err := one.Close(); err != nil || time.Since(began) > 4*time.Second { // TLS would wait for 5 s
		t.Errorf("close: %v after %v", err, time.Since(began))
	}
}
