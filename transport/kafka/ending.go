package kafka

import (
	"net"
	"sync/atomic"
)

// ending is how a connection ends. It begins as one that is reset, by whatever ends it,
// the death of the process among that, and is closed in order once it has answered what
// the client asks. For clients take a connection that was closed in order before for a
// sign that their settings of TLS or SASL are wrong, and some give records up for that; a
// reset is worth another try to all. Kafka closes all in order.
type ending struct{ orderly atomic.Bool }

// resetAtEnd is what a connection begins with.
func resetAtEnd(nc net.Conn) {
	if t, ok := nc.(*net.TCPConn); ok {
		_ = t.SetLinger(0) // if it fails, it is broken
	}
}

// endInOrder has the client get all that was written before the connection ends.
func (c *conn) endInOrder() {
	if t, ok := c.raw.(*net.TCPConn); ok && !c.ending.orderly.Swap(true) {
		_ = t.SetLinger(-1)
	}
}

// isFirst says whether an answer is the first one to what a client asks, once it has
// learned the versions and proved who it is.
func (c *conn) isFirst(a *answer) bool {
	switch {
	case c.ending.orderly.Load():
		return false
	case a.response != nil:
		return !c.server.apis[a.response.Key()].early
	}
	return a.encoded != nil && !a.bare
}
