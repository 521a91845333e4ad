package transport

import (
	"crypto/tls"
	"errors"
	"net"
	"os"
	"testing"
	"time"
)

// serverHandshake connects a client to a server of that configuration and returns what the server saw.
func serverHandshake(t *testing.T, server, client *tls.Config) (tls.ConnectionState, error) {
	t.Helper()
	a, b := net.Pipe()
	defer func() { _, _ = a.Close(), b.Close() }()
	done := make(chan error, 1)
	go func() {
		c := tls.Client(b, client)
		err := c.Handshake()
		if err == nil {
			_, err = c.Read(make([]byte, 1)) // an alert about the certificate comes here in TLS 1.3
		}
		done <- err
	}()
	s := tls.Server(a, server)
	err := s.Handshake()
	_ = a.Close()
	<-done
	return s.ConnectionState(), err
}

// A server's certificate and its clients' CA are read again when their files change; without a CA nobody is asked for a certificate.
func TestServerTLS(t *testing.T) {
	ca, other := newAuthority(t, "ca"), newAuthority(t, "other")
	dir, until := t.TempDir(), time.Now().Add(time.Hour)
	files := ca.write(t, dir, "one", until)
	opts := ServerTLSOptions{CertFile: files.CertFile, KeyFile: files.KeyFile, CheckInterval: time.Nanosecond}
	open, err := NewServerTLS(opts)
	if err != nil {
		t.Fatal(err)
	}
	client := &tls.Config{InsecureSkipVerify: true}
	if state, err := serverHandshake(t, open, client); err != nil || len(state.PeerCertificates) != 0 {
		t.Fatalf("without a CA: %v", err)
	}
	opts.ClientCAFile = files.CAFile
	closed, err := NewServerTLS(opts)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := serverHandshake(t, closed, client); err == nil {
		t.Error("a client without a certificate was let in")
	}
	cert, key := other.issue(t, "client", until)
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	client.Certificates = []tls.Certificate{pair}
	if _, err := serverHandshake(t, closed, client); err == nil {
		t.Error("a client with a certificate of another CA was let in")
	}
	if err := os.WriteFile(files.CAFile, append(other.pem, '\n'), 0o600); err != nil {
		t.Fatal(err)
	}
	if state, err := serverHandshake(t, closed, client); err != nil || state.PeerCertificates[0].Subject.CommonName != "client" {
		t.Errorf("after the change of the CA: %v", err)
	}
	opts.KeyFile = files.CAFile
	if _, err := NewServerTLS(opts); !errors.Is(err, ErrCertificate) {
		t.Errorf("a CA as a key: %v", err)
	}
}
