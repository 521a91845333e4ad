package transport

import "sync/atomic"

// Stats are counts since NewNode, and what is now.
type Stats struct {
	// BytesSent and BytesReceived are those of frames and pulls, without handshakes, TLS and raw streams.
	BytesSent, BytesReceived uint64
	// FramesReceived counts all frames, pings included.
	FramesReceived uint64
	// BatchesSent counts those that were queued, BatchesReceived those that were delivered.
	BatchesSent, BatchesReceived uint64
	// BatchesDropped counts those that met a full send queue; BatchesRefused those that a full inbound budget kept out.
	BatchesDropped, BatchesRefused uint64
	// Calls counts requests sent, RequestsServed those handed to OnRequest, RequestsRefused those answered with busy.
	Calls, RequestsServed, RequestsRefused uint64
	// PullsServed counts pulls that OnPull opened; PullBytesSent what they sent.
	PullsServed, PullBytesSent uint64
	// StreamsServed counts raw streams handed to OnStream.
	StreamsServed uint64
	// Dials and DialsFailed count connections to peers, handshake included.
	Dials, DialsFailed uint64
	// HandshakesRefused counts inbound connections that were given a reason; HandshakesBad those that did not deserve one.
	HandshakesRefused, HandshakesBad uint64
	// BadFrames counts connections closed for what a peer sent; CutFrames those that ended within a frame.
	BadFrames, CutFrames uint64
	// ConnsRefused counts inbound connections closed because of ConnsMax or HandshakesMax.
	ConnsRefused uint64
	// NotificationsDropped counts states and events that slow callbacks missed.
	NotificationsDropped uint64
	// InboundBytes are payloads that are being read or handled now. Conns are all connections, both ways.
	InboundBytes int64
	Conns        int
}

// counters are the live form.
type counters struct {
	bytesSent, bytesReceived, framesReceived       atomic.Uint64
	batchesSent, batchesReceived                   atomic.Uint64
	batchesDropped, batchesRefused                 atomic.Uint64
	calls, requestsServed, requestsRefused         atomic.Uint64
	pullsServed, pullBytesSent, dials, dialsFailed atomic.Uint64
	handshakesRefused, handshakesBad               atomic.Uint64
	badFrames, cutFrames, connsRefused             atomic.Uint64
	streamsServed                                  atomic.Uint64
}

// Stats returns the counts. They are read one by one, not at one moment.
func (n *Node) Stats() Stats {
	c := &n.stats
	s := Stats{
		BytesSent: c.bytesSent.Load(), BytesReceived: c.bytesReceived.Load(), FramesReceived: c.framesReceived.Load(),
		BatchesSent: c.batchesSent.Load(), BatchesReceived: c.batchesReceived.Load(),
		BatchesDropped: c.batchesDropped.Load(), BatchesRefused: c.batchesRefused.Load(),
		Calls: c.calls.Load(), RequestsServed: c.requestsServed.Load(), RequestsRefused: c.requestsRefused.Load(),
		PullsServed: c.pullsServed.Load(), PullBytesSent: c.pullBytesSent.Load(),
		StreamsServed: c.streamsServed.Load(),
		Dials:         c.dials.Load(), DialsFailed: c.dialsFailed.Load(),
		HandshakesRefused: c.handshakesRefused.Load(), HandshakesBad: c.handshakesBad.Load(),
		BadFrames: c.badFrames.Load(), CutFrames: c.cutFrames.Load(), ConnsRefused: c.connsRefused.Load(),
		NotificationsDropped: n.notes.droppedCount(), InboundBytes: n.inbound.used.Load(),
	}
	n.mu.Lock()
	s.Conns = len(n.mu.conns)
	n.mu.Unlock()
	return s
}
