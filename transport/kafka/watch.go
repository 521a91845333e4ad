package kafka

import (
	"errors"
	"log/slog"
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
		s.shed(time.Now().Add(-s.shedAfter))
	}
}

// waiting lists connections with a request that began before.
func (s *Server) waiting(before time.Time) (out []*conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.mu.conns {
		if isBefore(c.busySince.Load(), before) {
			out = append(out, c)
		}
	}
	return out
}

// While there is no memory for requests or for answers, those who have held much of it
// for long are sent away: clients that send or take what they have begun so slowly that
// others wait, and large requests that wait for something. Kafka's clients try again.
const (
	shedAfter   = 5 * time.Second
	shedRequest = 64 << 10 // smaller ones stay
)

// shed ends connections that hold memory since before, if there is none.
func (s *Server) shed(before time.Time) {
	requests := !s.memory.hasRoom()
	answers := !s.fetchMemory.TryAcquire(fetchChunkMin) // nor do others wait
	if !answers {
		s.fetchMemory.Release(fetchChunkMin)
	}
	if !requests && !answers {
		return
	}
	for _, c := range s.holding(before, requests, answers) {
		c.logWarn("a client's connection was closed: others wait for the memory that it holds", slog.Int64("request_bytes", c.heldBytes.Load()))
		c.abort(errShed)
	}
}

// holding lists connections that hold much memory since before.
func (s *Server) holding(before time.Time, requests, answers bool) (out []*conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.mu.conns {
		if answers && isBefore(c.writingSince.Load(), before) || requests && c.heldBytes.Load() > shedRequest && isBefore(c.heldSince.Load(), before) {
			out = append(out, c)
		}
	}
	return out
}

func isBefore(nanos int64, before time.Time) bool { return nanos != 0 && nanos < before.UnixNano() }
