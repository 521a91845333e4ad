package transport

import (
	"context"
	"net"
	"time"
)

// TCP is plain TCP: no encryption, no authentication. Its connections are *net.TCPConn, so that pulls of files use sendfile. The zero
// value is ready for use; fields must not change once it is in use.
type TCP struct {
	// DialTimeout bounds a Dial besides its context. Default 3 s.
	DialTimeout time.Duration
	// KeepAlive is the idle time before the kernel probes a connection, and the interval of probes; four unanswered ones end it.
	// A Node finds dead peers sooner by itself. Default 15 s; negative switches the probes off.
	KeepAlive time.Duration
}

func (t TCP) dialTimeout() time.Duration {
	if t.DialTimeout <= 0 {
		return 3 * time.Second
	}
	return t.DialTimeout
}

func (t TCP) keepAlive() net.KeepAliveConfig {
	d := t.KeepAlive
	if d < 0 {
		return net.KeepAliveConfig{}
	}
	if d == 0 {
		d = 15 * time.Second
	}
	return net.KeepAliveConfig{Enable: true, Idle: d, Interval: d, Count: 4}
}

// Listen listens at a host:port; an empty host is all addresses, port 0 any free one.
func (t TCP) Listen(addr string) (net.Listener, error) {
	lc := net.ListenConfig{KeepAlive: -1, KeepAliveConfig: t.keepAlive()}
	return lc.Listen(context.Background(), "tcp", addr)
}

// Dial connects to a host:port. Small writes are sent at once (TCP_NODELAY).
func (t TCP) Dial(ctx context.Context, addr string) (net.Conn, error) {
	d := net.Dialer{Timeout: t.dialTimeout(), KeepAlive: -1, KeepAliveConfig: t.keepAlive()}
	return d.DialContext(ctx, "tcp", addr)
}
