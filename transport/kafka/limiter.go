package kafka

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// A line of the log about clients: this many at once, and then one in an interval.
const (
	logBurst    = 20
	logInterval = 2 * time.Second
)

// lineLimiter keeps clients from filling the log.
type lineLimiter struct {
	mu struct {
		sync.Mutex
		tokens  int
		since   time.Time // the last time that tokens were added
		dropped int       // since the last line
	}
}

// allow says whether a line may be written, and how many were not before.
func (l *lineLimiter) allow(now time.Time) (dropped int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.since.IsZero() {
		l.mu.tokens, l.mu.since = logBurst, now
	}
	if n := int(now.Sub(l.mu.since) / logInterval); n > 0 {
		l.mu.tokens = min(l.mu.tokens+n, logBurst)
		l.mu.since = l.mu.since.Add(time.Duration(n) * logInterval)
	}
	if l.mu.tokens == 0 {
		l.mu.dropped++
		return 0, false
	}
	l.mu.tokens--
	dropped, l.mu.dropped = l.mu.dropped, 0
	return dropped, true
}

// logLimited writes a line that clients cause, unless there were too many of them.
func (s *Server) logLimited(limit *lineLimiter, level slog.Level, message string, attrs ...slog.Attr) {
	ctx := context.Background()
	if !s.logger.Enabled(ctx, level) {
		return
	}
	dropped, ok := limit.allow(time.Now())
	if !ok {
		return
	}
	if dropped > 0 {
		attrs = append(attrs, slog.Int("left_out", dropped))
	}
	s.logger.LogAttrs(ctx, level, message, attrs...)
}
