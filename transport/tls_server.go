package transport

import (
	"crypto/tls"
	"time"
)

// ServerTLSOptions configure NewServerTLS.
type ServerTLSOptions struct {
	// CertFile and KeyFile hold the server's certificate chain and key, PEM. Required.
	CertFile, KeyFile string
	// ClientCAFile holds the certificates that clients' chains must lead to, PEM. Default "": clients are not asked for a certificate;
	// otherwise each must have one.
	ClientCAFile string
	// CheckInterval bounds how often the files' modification times are looked at; it is done when a connection is made. Default 1 s;
	// negative: the files are read once.
	CheckInterval time.Duration
	// OnReload hears what came of reading changed files: nil, or why the old ones are kept (wraps ErrCertificate). It is called on
	// the goroutine of a connection and must not block.
	OnReload func(error)
}

// NewServerTLS makes the configuration of a server of foreign clients, such as those of Kafka's protocol: TLS 1.2 or newer, from files that
// are read again when they change. Errors wrap ErrCertificate.
func NewServerTLS(opts ServerTLSOptions) (*tls.Config, error) {
	if opts.CheckInterval == 0 {
		opts.CheckInterval = time.Second
	}
	files := &tlsFiles{optionalCA: true, opts: TLSOptions{CertFile: opts.CertFile, KeyFile: opts.KeyFile, CAFile: opts.ClientCAFile,
		CheckInterval: opts.CheckInterval, OnReload: opts.OnReload}}
	if err := files.reload(); err != nil {
		return nil, err
	}
	base := &tls.Config{MinVersion: tls.VersionTLS12}
	base.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		m := files.current()
		c := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{m.cert}}
		if m.pool != nil {
			// A session that is resumed is one whose certificate is not looked at again.
			c.ClientAuth, c.ClientCAs, c.SessionTicketsDisabled = tls.RequireAndVerifyClientCert, m.pool, true
		}
		return c, nil
	}
	return base, nil
}
