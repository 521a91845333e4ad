package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Server serves Kafka's protocol at its listeners until it is closed.
type Server struct {
	opts      Options
	logger    *slog.Logger
	apis      apiTable
	listeners []*listener

	memory       *memory
	fetchMemory  *budget
	fetchBuffers framePool
	sessionParts atomic.Int64 // partitions that sessions of fetches remember
	users        *users       // nil without a store
	authorizer   *authorizer  // nil unless access rules count
	// clientLines are about what clients do, errorLines about what went wrong here.
	clientLines, errorLines lineLimiter
	shedAfter               time.Duration
	// produceWaits counts batches that waited for room in their partition, produceWaited the
	// nanoseconds.
	produceWaits  atomic.Uint64
	produceWaited atomic.Int64

	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	running sync.WaitGroup // accept loops and connections

	mu struct {
		sync.Mutex
		closed bool
		conns  map[*conn]struct{}
		hosts  map[string]int // how many of them
	}
}

// listener is an open Listener.
type listener struct {
	opts Listener
	net.Listener
	host  string // advertised
	port  int32
	stats listenerStats
}

// Endpoint is where clients reach a listener.
type Endpoint struct {
	Name, Host string
	Port       int32
}

// Open binds the listeners. Nobody is served before Serve.
func Open(opts Options) (s *Server, err error) {
	opts.EnsureDefaults()
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	s = &Server{opts: opts, logger: opts.Logger, apis: newAPITable(), shedAfter: shedAfter,
		memory: newMemory(&opts), fetchMemory: newBudget(opts.FetchMemoryMax)}
	if opts.Store != nil {
		s.users = newUsers(opts.Store, opts.Logger)
	}
	if opts.Authorize {
		s.authorizer = newAuthorizer(&opts)
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.mu.conns, s.mu.hosts = map[*conn]struct{}{}, map[string]int{}
	for _, o := range opts.Listeners {
		l, err := listen(o)
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
		s.listeners = append(s.listeners, l)
	}
	return s, nil
}

func listen(o Listener) (*listener, error) {
	bound, err := net.Listen("tcp", o.Address)
	if err != nil {
		return nil, fmt.Errorf("kafka: listener %s: %w: choose an address that is free", o.Name, err)
	}
	l := &listener{opts: o, Listener: bound}
	if l.host, l.port, err = advertised(o.Advertise, o.Address, bound.Addr().(*net.TCPAddr)); err != nil {
		return nil, errors.Join(fmt.Errorf("kafka: listener %s: %w", o.Name, err), bound.Close())
	}
	return l, nil
}

// advertised is what clients are told of an address.
func advertised(given, asked string, bound *net.TCPAddr) (host string, port int32, err error) {
	if given != "" {
		h, p, err := net.SplitHostPort(given)
		if err != nil {
			return "", 0, err
		}
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil {
			return "", 0, fmt.Errorf("port %q: %w", p, err)
		}
		host, port = h, int32(n)
	}
	if port == 0 {
		port = int32(bound.Port)
	}
	if host == "" {
		host, err = reachedAt(asked, bound)
	}
	return host, port, err
}

// reachedAt is the host of a bound address to clients: the name that it was asked for by, the
// machine's where it is all addresses, else the address.
func reachedAt(asked string, bound *net.TCPAddr) (string, error) {
	if bound.IP.IsUnspecified() {
		host, err := os.Hostname()
		if err != nil {
			return "", fmt.Errorf("the machine's name, to tell clients, is not known: %w: give Advertise", err)
		}
		return host, nil
	}
	name, _, err := net.SplitHostPort(asked)
	if err != nil {
		return "", err
	}
	if _, err := netip.ParseAddr(name); err != nil && name != "" {
		return name, nil
	}
	return bound.IP.String(), nil
}

// Endpoints tells where clients reach the listeners.
func (s *Server) Endpoints() []Endpoint {
	var out []Endpoint
	for _, l := range s.listeners {
		out = append(out, Endpoint{Name: l.opts.Name, Host: l.host, Port: l.port})
	}
	return out
}

// Serve begins to take connections, and returns.
func (s *Server) Serve() {
	s.running.Go(s.watch)
	for _, l := range s.listeners {
		s.running.Go(func() { s.accept(l) })
	}
}

// acceptPause is how long accepting rests after an error, such as too many open files.
const acceptPause = 50 * time.Millisecond

func (s *Server) accept(l *listener) {
	for {
		nc, err := l.Accept()
		if err != nil {
			if s.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			s.logLimited(&s.errorLines, slog.LevelWarn, "a connection could not be taken", slog.String("listener", l.opts.Name), slog.Any("err", err))
			select {
			case <-time.After(acceptPause):
			case <-s.ctx.Done():
				return
			}
			continue
		}
		resetAtEnd(nc)
		if err := s.take(l, nc); err != nil {
			l.stats.refused.Add(1)
			s.logLimited(&s.clientLines, slog.LevelWarn, "a connection was refused", slog.String("listener", l.opts.Name),
				slog.String("host", hostOf(nc)), slog.Any("err", err))
			_ = nc.Close()
		}
	}
}

// take starts a connection.
func (s *Server) take(l *listener, nc net.Conn) error {
	c := newConn(s, l, nc)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closed {
		return net.ErrClosed
	}
	if len(s.mu.conns) >= s.opts.ConnectionsMax {
		return fmt.Errorf("there are %d connections, as many as ConnectionsMax allows", len(s.mu.conns))
	}
	if s.mu.hosts[c.host] >= s.opts.ConnectionsPerHostMax {
		return fmt.Errorf("there are %d connections from it, as many as ConnectionsPerHostMax allows", s.mu.hosts[c.host])
	}
	s.mu.conns[c] = struct{}{}
	s.mu.hosts[c.host]++
	l.stats.accepted.Add(1)
	l.stats.open.Add(1)
	s.running.Go(func() {
		c.run()
		s.forget(c)
	})
	return nil
}

func (s *Server) forget(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.conns, c)
	c.listener.stats.open.Add(-1)
	c.listener.stats.closed[c.causeOf(c.whyOver())].Add(1)
	if s.mu.hosts[c.host]--; s.mu.hosts[c.host] == 0 {
		delete(s.mu.hosts, c.host)
	}
}

// Close ends all connections and waits for them. It may be called again.
func (s *Server) Close() error {
	s.mu.Lock()
	s.mu.closed = true
	conns := s.mu.conns
	for c := range conns {
		c.abort(net.ErrClosed)
	}
	s.mu.Unlock()
	s.cancel()
	var errs []error
	for _, l := range s.listeners {
		if err := l.Listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	s.running.Wait()
	return errors.Join(errs...)
}
