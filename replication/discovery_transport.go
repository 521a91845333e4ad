package replication

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// The first byte of a stream says what it carries.
const (
	gossipPackets = 1 // packets, each with its length before it; each is answered by one byte
	gossipStream  = 2 // one of memberlist's streams
)

const (
	gossipPacketMax  = 64<<10 - 1 // the length has two bytes
	gossipQueueMax   = 64         // packets that wait for one peer
	gossipLinesMax   = gossipMembersMax
	gossipInboundMax = 2 * gossipMembersMax // streams from others, of both kinds
	gossipServedMax  = 32                   // of them, those that memberlist reads a message from
	gossipInboxMax   = 64                   // packets that wait for memberlist
)

// gossipTransport carries memberlist's packets and streams over raw streams of the node's own transport. Packets behave as UDP's do: they
// are dropped rather than waited for.
type gossipTransport struct {
	peers   *gossipPeers
	log     *gossipLog
	dial    func(ctx context.Context, addr string) (net.Conn, error)
	timings discoveryTimings
	sealed  bool // there is a key: memberlist authenticates what comes in

	packets chan *memberlist.Packet
	streams chan net.Conn

	// ctx ends with Shutdown, joining before: it is that of streams to addresses, rather than to known nodes.
	ctx     context.Context
	cancel  context.CancelFunc
	joining context.Context
	wg      sync.WaitGroup

	mu struct {
		sync.Mutex
		closed  bool
		lines   map[string]*gossipLine // by real address
		inbound int
		served  int
	}
}

func newGossipTransport(cfg discoveryConfig, peers *gossipPeers, log *gossipLog, joining context.Context) *gossipTransport {
	t := &gossipTransport{
		peers: peers, log: log, dial: cfg.dial, timings: cfg.timings, sealed: len(cfg.key) > 0, joining: joining,
		packets: make(chan *memberlist.Packet, gossipInboxMax), streams: make(chan net.Conn),
	}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	t.mu.lines = map[string]*gossipLine{}
	return t
}

// FinalAdvertiseAddr returns the address that stands for this node.
func (t *gossipTransport) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	return gossipIP(t.peers.self().Dir), gossipPort, nil
}

// PacketCh gives packets that came in.
func (t *gossipTransport) PacketCh() <-chan *memberlist.Packet { return t.packets }

// StreamCh gives streams that came in.
func (t *gossipTransport) StreamCh() <-chan net.Conn { return t.streams }

// WriteTo sends a packet to an address.
func (t *gossipTransport) WriteTo(b []byte, addr string) (time.Time, error) {
	return t.WriteToAddress(b, memberlist.Address{Addr: addr})
}

// WriteToAddress sends a packet to a node. It never waits and never fails: memberlist ends a probe early that could not be sent, and would
// not suspect a node that cannot be reached.
func (t *gossipTransport) WriteToAddress(b []byte, a memberlist.Address) (time.Time, error) {
	now := time.Now()
	addr, ok := t.peers.resolve(a)
	if !ok || len(b) == 0 || len(b) > gossipPacketMax {
		return now, nil
	}
	frame := make([]byte, 0, 2+len(b))
	frame = append(binary.BigEndian.AppendUint16(frame, uint16(len(b))), b...)
	t.mu.Lock()
	defer t.mu.Unlock()
	line := t.mu.lines[addr]
	if line == nil {
		if t.mu.closed || len(t.mu.lines) >= gossipLinesMax {
			return now, nil
		}
		line = &gossipLine{t: t, addr: addr, queue: make(chan []byte, gossipQueueMax)}
		t.mu.lines[addr] = line
		t.wg.Add(1)
		go line.carry()
	}
	select {
	case line.queue <- frame:
	default:
	}
	return now, nil
}

// retire forgets a line, unless a packet came meanwhile.
func (t *gossipTransport) retire(l *gossipLine) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(l.queue) > 0 {
		return false
	}
	delete(t.mu.lines, l.addr)
	return true
}

// DialTimeout opens a stream to an address.
func (t *gossipTransport) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	return t.DialAddressTimeout(memberlist.Address{Addr: addr}, timeout)
}

// DialAddressTimeout opens a stream to a node, or to the address of a join. memberlist sets its own deadlines later.
func (t *gossipTransport) DialAddressTimeout(a memberlist.Address, timeout time.Duration) (net.Conn, error) {
	addr, ok := t.peers.resolve(a)
	if !ok {
		return nil, fmt.Errorf("gossip: nobody knows where %s is", a.Name)
	}
	ctx := t.ctx
	if a.Name == "" {
		ctx = t.joining
	}
	conn, stop, err := t.open(ctx, addr, timeout, gossipStream)
	if err != nil {
		return nil, err
	}
	return newGatedConn(conn, false, stop), nil
}

// open dials and says what the stream is for. The stream is closed when ctx ends, unless stop was called; all of it has one deadline.
func (t *gossipTransport) open(ctx context.Context, addr string, timeout time.Duration, kind byte) (net.Conn, func() bool, error) {
	limit, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := t.dial(limit, addr)
	if err != nil {
		return nil, nil, fmt.Errorf("gossip: dial %s: %w", addr, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	err = conn.SetDeadline(time.Now().Add(timeout))
	if err == nil {
		_, err = conn.Write([]byte{kind})
	}
	if err != nil {
		stop()
		_ = conn.Close()
		return nil, nil, fmt.Errorf("gossip: %s: %w", addr, err)
	}
	return conn, stop, nil
}

// Shutdown ends all streams and waits for what runs on them.
func (t *gossipTransport) Shutdown() error {
	t.mu.Lock()
	t.mu.closed = true
	t.mu.Unlock()
	t.cancel()
	t.wg.Wait()
	return nil
}

// enter counts a stream in, and leave out.
func (t *gossipTransport) enter() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.closed || t.mu.inbound >= gossipInboundMax {
		return false
	}
	t.mu.inbound++
	t.wg.Add(1)
	return true
}

func (t *gossipTransport) leave() {
	t.mu.Lock()
	t.mu.inbound--
	t.mu.Unlock()
	t.wg.Done()
}

// handle serves a stream from another node until it ends.
func (t *gossipTransport) handle(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	if !t.enter() {
		return
	}
	defer t.leave()
	stop := context.AfterFunc(t.ctx, func() { _ = conn.Close() })
	defer stop()
	var kind [1]byte
	if conn.SetDeadline(time.Now().Add(t.timings.stream)) != nil {
		return
	}
	if _, err := io.ReadFull(conn, kind[:]); err != nil {
		return
	}
	var err error
	switch kind[0] {
	case gossipPackets:
		err = t.receive(conn)
	case gossipStream:
		err = t.serve(conn, stop)
	default:
		err = fmt.Errorf("%w: a stream of kind %d", errHostileGossip, kind[0])
	}
	if errors.Is(err, errHostileGossip) {
		t.log.warn("a stream was closed", "a stream was closed", "peer", conn.RemoteAddr(), "err", err)
	}
}

// receive takes packets and answers each with a byte, so that the sender knows a stream that leads nowhere any more.
func (t *gossipTransport) receive(conn net.Conn) error {
	in := bufio.NewReader(conn)
	for {
		// The sender closes an idle stream first.
		if err := conn.SetDeadline(time.Now().Add(2*t.timings.idle + t.timings.stream)); err != nil {
			return err
		}
		var head [2]byte
		if _, err := io.ReadFull(in, head[:]); err != nil {
			return err
		}
		b := make([]byte, binary.BigEndian.Uint16(head[:]))
		if _, err := io.ReadFull(in, b); err != nil {
			return err
		}
		if len(b) == 0 {
			return fmt.Errorf("%w: an empty packet", errHostileGossip)
		}
		if !t.sealed {
			if err := checkGossipPacket(b); err != nil {
				return err
			}
		}
		select {
		case t.packets <- &memberlist.Packet{Buf: b, From: conn.RemoteAddr(), Timestamp: time.Now()}:
		case <-t.ctx.Done():
			return nil
		}
		if _, err := conn.Write([]byte{0}); err != nil {
			return err
		}
	}
}

// serve hands a stream to memberlist, which closes it.
func (t *gossipTransport) serve(conn net.Conn, stop func() bool) error {
	t.mu.Lock()
	busy := t.mu.served >= gossipServedMax
	if !busy {
		t.mu.served++
	}
	t.mu.Unlock()
	if busy {
		return nil // the other side tries again later
	}
	defer func() {
		t.mu.Lock()
		t.mu.served--
		t.mu.Unlock()
	}()
	c := newGatedConn(conn, true, stop)
	select {
	case t.streams <- c:
	case <-t.ctx.Done():
		return nil
	}
	select {
	case <-c.closed:
	case <-t.ctx.Done():
	}
	return nil
}
