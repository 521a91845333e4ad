package transport

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// TLSOptions configure a MutualTLS. The files are required.
type TLSOptions struct {
	// CertFile and KeyFile hold this node's certificate chain and key, CAFile the certificates that others' chains must lead to.
	// All PEM. Certificates need both extended key usages, client and server, or none.
	CertFile, KeyFile, CAFile string
	// CheckInterval bounds how often the files' modification times are looked at; it is done when a connection is made. Default 1 s;
	// negative: only Reload reads them.
	CheckInterval time.Duration
	// OnReload hears what came of reading changed files: nil, or why the old ones are kept (wraps ErrCertificate). It is called on
	// the goroutine of a connection and must not block.
	OnReload func(error)
	// Inner carries the encrypted bytes. Default TCP{}.
	Inner Transport
}

// MutualTLS is TLS 1.3, and nothing older, in which both sides prove themselves by a certificate of the cluster's CA. Host names are not
// checked, since a node's address may change: a Node holds the certificate's names against the node id ([Options.CheckIdentity]).
// Connections that stand are not touched by new files; sessions are never resumed, so every new connection is proved anew.
type MutualTLS struct {
	inner Transport
	files *tlsFiles
}

// NewMutualTLS reads the files. Errors wrap ErrCertificate.
func NewMutualTLS(opts TLSOptions) (*MutualTLS, error) {
	if opts.Inner == nil {
		opts.Inner = TCP{}
	}
	if opts.CheckInterval == 0 {
		opts.CheckInterval = time.Second
	}
	t := &MutualTLS{inner: opts.Inner, files: &tlsFiles{opts: opts}}
	if err := t.files.reload(); err != nil {
		return nil, err
	}
	return t, nil
}

// Reload reads the files now. After an error, which wraps ErrCertificate, the old ones stay in use. OnReload is called, too.
func (t *MutualTLS) Reload() error {
	err := t.files.reload()
	t.files.report(err)
	return err
}

// alpn keeps connections of other protocols out.
const alpn = "billet"

func (t *MutualTLS) serverConfig() *tls.Config {
	base := &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{alpn}}
	base.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		m := t.files.current()
		return &tls.Config{
			MinVersion:             tls.VersionTLS13,
			NextProtos:             []string{alpn},
			Certificates:           []tls.Certificate{m.cert},
			ClientAuth:             tls.RequireAndVerifyClientCert,
			ClientCAs:              m.pool,
			SessionTicketsDisabled: true,
		}, nil
	}
	return base
}

func (t *MutualTLS) clientConfig() *tls.Config {
	m := t.files.current()
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		NextProtos:   []string{alpn},
		Certificates: []tls.Certificate{m.cert},
		// The chain is verified below, without a host name.
		InsecureSkipVerify: true,
		VerifyConnection: func(state tls.ConnectionState) error {
			return verifyChain(state.PeerCertificates, m.pool, x509.ExtKeyUsageServerAuth)
		},
	}
}

func verifyChain(certs []*x509.Certificate, pool *x509.CertPool, usage x509.ExtKeyUsage) error {
	if len(certs) == 0 {
		return errors.New("no certificate")
	}
	between := x509.NewCertPool()
	for _, c := range certs[1:] {
		between.AddCert(c)
	}
	_, err := certs[0].Verify(x509.VerifyOptions{Roots: pool, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{usage}})
	return err
}

// Listen listens through Inner. Its connections are AuthenticatedConns that have not authenticated yet.
func (t *MutualTLS) Listen(addr string) (net.Listener, error) {
	inner, err := t.inner.Listen(addr)
	if err != nil {
		return nil, err
	}
	return &tlsListener{Listener: inner, config: t.serverConfig()}, nil
}

// Dial connects through Inner and authenticates, both until ctx ends.
func (t *MutualTLS) Dial(ctx context.Context, addr string) (net.Conn, error) {
	raw, err := t.inner.Dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	c := &tlsConn{Conn: tls.Client(raw, t.clientConfig()), raw: raw}
	if _, err := c.Authenticate(ctx); err != nil {
		_ = raw.Close()
		return nil, err
	}
	return c, nil
}

type tlsListener struct {
	net.Listener
	config *tls.Config
}

// Accept returns a connection on which nothing was done yet.
func (l *tlsListener) Accept() (net.Conn, error) {
	raw, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &tlsConn{Conn: tls.Server(raw, l.config), raw: raw, server: true}, nil
}

// tlsConn is an AuthenticatedConn.
type tlsConn struct {
	*tls.Conn
	raw    net.Conn
	server bool
}

// Authenticate makes the TLS handshake.
func (c *tlsConn) Authenticate(ctx context.Context) (Identity, error) {
	if err := c.HandshakeContext(ctx); err != nil {
		if ctx.Err() != nil {
			return Identity{}, fmt.Errorf("TLS: %w", ctx.Err())
		}
		if c.server {
			c.linger()
		}
		if isReset(err) || isTimeout(err) { // of the network, not of what was proved
			return Identity{}, fmt.Errorf("TLS: %w", err)
		}
		return Identity{}, fmt.Errorf("%w: %w", ErrAuthentication, err)
	}
	return identityOf(c.ConnectionState().PeerCertificates[0]), nil
}

// lingerTime bounds linger.
const lingerTime = 200 * time.Millisecond

// linger reads away what the client sent behind its certificate, until it closes: an unread byte would make our close a reset, which can
// overtake the alert that says why.
func (c *tlsConn) linger() {
	if c.raw.SetReadDeadline(time.Now().Add(lingerTime)) == nil {
		_, _ = io.CopyN(io.Discard, c.raw, 64<<10)
	}
}

// Read reads what was decrypted. An alert is the other side's word that it does not accept our certificate.
func (c *tlsConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "remote error" {
		err = fmt.Errorf("%w: %w", ErrAuthentication, err)
	}
	return n, err
}

// Close closes at once, without the alert for which TLS would wait: our frames have lengths, so a cut is seen.
func (c *tlsConn) Close() error { return c.raw.Close() }
