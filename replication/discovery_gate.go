package replication

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
)

// memberlist trusts what reaches it more than it may: a few bytes make it allocate room for a million nodes or decompress 40 MiB. What this
// node sends is of a narrow shape (no compression, no messages of users), so anything else is refused before memberlist sees it. With a key
// nothing is looked at: memberlist decrypts, and so authenticates, before it parses.

// The first bytes of memberlist's messages.
const (
	mlPing      = 0
	mlAck       = 2
	mlPushPull  = 6
	mlCompound  = 7
	mlUser      = 8
	mlCompress  = 9
	mlEncrypted = 10
	mlCRC       = 12
	mlError     = 13
	mlLabel     = 244
)

const (
	// gossipStreamMax bounds what is read from a stream: a push/pull of all members has some 600 bytes for each.
	gossipStreamMax = 1 << 20
	// gossipStatesMax bounds the nodes that a push/pull says it has.
	gossipStatesMax = 2 * gossipMembersMax
	compoundDepth   = 2
)

var errHostileGossip = errors.New("not what a node sends")

// How an unencrypted push/pull begins: whether it is a join (0xc2 or 0xc3) comes after the first, the number of nodes after the second.
const (
	pushPullHead = "\x83\xa4Join"
	pushPullMid  = "\xa5Nodes"
	pushPullTail = "\xacUserStateLen\x00"
)

// checkGossipPacket looks at a packet that is not encrypted.
func checkGossipPacket(b []byte) error {
	if len(b) >= 2 && b[0] == mlLabel {
		b = b[min(len(b), 2+int(b[1])):]
	}
	if len(b) >= 5 && b[0] == mlCRC {
		b = b[5:]
	}
	return checkGossipMessage(b, compoundDepth)
}

func checkGossipMessage(b []byte, depth int) error {
	switch {
	case len(b) == 0:
		return fmt.Errorf("%w: an empty message", errHostileGossip)
	case b[0] == mlCompress || b[0] == mlUser || b[0] == mlCompound && depth == 0:
		return fmt.Errorf("%w: a message of type %d", errHostileGossip, b[0])
	case b[0] != mlCompound:
		return nil
	case len(b) < 2 || len(b) < 2+2*int(b[1]):
		return fmt.Errorf("%w: a truncated message", errHostileGossip)
	}
	lengths, rest := b[2:2+2*int(b[1])], b[2+2*int(b[1]):]
	for ; len(lengths) > 0; lengths = lengths[2:] {
		n := int(binary.BigEndian.Uint16(lengths))
		if n > len(rest) {
			return fmt.Errorf("%w: a truncated message", errHostileGossip)
		}
		if err := checkGossipMessage(rest[:n], depth-1); err != nil {
			return err
		}
		rest = rest[n:]
	}
	return nil
}

// gatedConn is a stream for memberlist. The first read looks at what comes; all reads together are bounded. A write that fails closes it,
// since memberlist does not always.
type gatedConn struct {
	net.Conn
	in       *bufio.Reader
	left     int
	labelled bool // a label comes first
	checked  bool
	err      error

	once   sync.Once
	closed chan struct{}
	stop   func() bool // ends the tie to the context
}

func newGatedConn(conn net.Conn, labelled bool, stop func() bool) *gatedConn {
	return &gatedConn{Conn: conn, in: bufio.NewReader(conn), left: gossipStreamMax, labelled: labelled, closed: make(chan struct{}), stop: stop}
}

// Read reads what memberlist may see.
func (c *gatedConn) Read(p []byte) (int, error) {
	if !c.checked {
		c.checked, c.err = true, c.check()
	}
	if c.err != nil {
		return 0, c.err
	}
	if c.left == 0 {
		return 0, fmt.Errorf("%w: more than %d bytes", errHostileGossip, gossipStreamMax)
	}
	n, err := c.in.Read(p[:min(len(p), c.left)])
	c.left -= n
	return n, err
}

// Write writes, or closes.
func (c *gatedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if err != nil {
		_ = c.Close()
	}
	return n, err
}

// Close ends the stream.
func (c *gatedConn) Close() error {
	err := net.ErrClosed
	c.once.Do(func() {
		c.stop()
		err = c.Conn.Close()
		close(c.closed)
	})
	return err
}

// check looks at the first message without taking it.
func (c *gatedConn) check() error {
	at := 0
	next := func() (byte, error) {
		b, err := c.in.Peek(at + 1)
		if err != nil {
			return 0, err
		}
		at++
		return b[at-1], nil
	}
	kind, err := next()
	if err == nil && kind == mlLabel && c.labelled {
		var size byte
		if size, err = next(); err == nil {
			at += int(size)
			kind, err = next()
		}
	}
	if err != nil {
		return err
	}
	switch kind {
	case mlPing, mlAck, mlEncrypted, mlError:
		return nil
	case mlPushPull:
		return checkPushPull(next)
	}
	return fmt.Errorf("%w: a stream of type %d", errHostileGossip, kind)
}

// checkPushPull reads the head of a push/pull.
func checkPushPull(next func() (byte, error)) error {
	expect := func(text string) error {
		for i := range len(text) {
			if b, err := next(); err != nil {
				return err
			} else if b != text[i] {
				return fmt.Errorf("%w: a push/pull with another head", errHostileGossip)
			}
		}
		return nil
	}
	if err := expect(pushPullHead); err != nil {
		return err
	}
	if join, err := next(); err != nil {
		return err
	} else if join != 0xc2 && join != 0xc3 {
		return fmt.Errorf("%w: a push/pull with another head", errHostileGossip)
	}
	if err := expect(pushPullMid); err != nil {
		return err
	}
	nodes, err := smallInt(next)
	if err != nil {
		return err
	}
	if nodes > gossipStatesMax {
		return fmt.Errorf("%w: a push/pull of %d nodes", errHostileGossip, nodes)
	}
	return expect(pushPullTail)
}

// smallInt reads a number from 0 to 65,535 as MessagePack has it.
func smallInt(next func() (byte, error)) (int, error) {
	first, err := next()
	if err != nil {
		return 0, err
	}
	size := 0
	switch first {
	case 0xcc, 0xd0:
		size = 1
	case 0xcd, 0xd1:
		size = 2
	default:
		if first < 0x80 {
			return int(first), nil
		}
		return 0, fmt.Errorf("%w: a number of type %#x", errHostileGossip, first)
	}
	n := 0
	for range size {
		b, err := next()
		if err != nil {
			return 0, err
		}
		n = n<<8 | int(b)
	}
	if first >= 0xd0 && n >= 1<<(8*size-1) {
		return 0, fmt.Errorf("%w: a negative number", errHostileGossip)
	}
	return n, nil
}
