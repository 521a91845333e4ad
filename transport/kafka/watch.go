package kafka

import (
	"errors"
	"time"
)

// watchInterval is how often, and after how long, the clients of requests that take long
// are looked after.
const watchInterval = time.Second

// errGone is the end of a client that did not wait for its answer.
var errGone = errors.New("the client is gone")

// watch ends the connections of clients that went while a request of theirs waits, such
// as a fetch for new records: nobody reads from them, and the request may wait for long.
func (s *Server) watch() {
	ticker := time.NewTicker(watchInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-s.ctx.Done():
			return
		}
		for _, c := range s.waiting(time.Now().Add(-watchInterval)) {
			if isGone(c.raw) {
				c.abort(errGone)
			}
		}
	}
}

// waiting lists connections with a request that began before.
func (s *Server) waiting(before time.Time) (out []*conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.mu.conns {
		if since := c.busySince.Load(); since != 0 && since < before.UnixNano() {
			out = append(out, c)
		}
	}
	return out
}
