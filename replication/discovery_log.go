package replication

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	gossipLineMax  = 512 // bytes of a line that are logged
	gossipKindMax  = 40  // bytes of a line that make its kind
	gossipKindsMax = 64
)

// gossipLog takes memberlist's lines, which it writes as text with their level in brackets, and warnings of our own. A warning of one kind
// is logged once in a while: a peer with the wrong key says the same for ever.
type gossipLog struct {
	logger *slog.Logger
	every  time.Duration
	quiet  atomic.Bool // the node is closing: what fails now fails because of that

	mu struct {
		sync.Mutex
		kinds map[string]*gossipKind
	}
}

// gossipKind counts warnings of one kind.
type gossipKind struct {
	last    time.Time
	dropped int
}

func newGossipLog(logger *slog.Logger, every time.Duration) *gossipLog {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	l := &gossipLog{logger: logger, every: every}
	l.mu.kinds = map[string]*gossipKind{}
	return l
}

// Write takes one line of memberlist's.
func (l *gossipLog) Write(p []byte) (int, error) {
	level, text := parseGossipLine(string(p))
	if level == slog.LevelWarn {
		l.warn(text, text)
	} else if l.logger.Enabled(context.Background(), level) {
		l.logger.Log(context.Background(), level, "gossip: "+text)
	}
	return len(p), nil
}

// parseGossipLine takes a line apart: "2026/11/29 12:00:00 [WARN] memberlist: text".
func parseGossipLine(line string) (slog.Level, string) {
	level := slog.LevelDebug
	if _, tail, ok := strings.Cut(line, "["); ok {
		if name, text, ok := strings.Cut(tail, "] "); ok {
			if name == "WARN" || name == "ERR" || name == "ERROR" {
				level = slog.LevelWarn
			}
			line = text
		}
	}
	line = strings.TrimPrefix(strings.TrimSpace(line), "memberlist: ")
	return level, line[:min(len(line), gossipLineMax)]
}

// warn logs a warning unless one of its kind was logged a moment ago. The kind is how it begins.
func (l *gossipLog) warn(kind, text string, args ...any) {
	if l.quiet.Load() {
		l.logger.Debug("gossip: "+text, args...)
		return
	}
	dropped, ok := l.due(kind)
	if !ok {
		return
	}
	if dropped > 0 {
		args = append(args, "not logged", dropped)
	}
	l.logger.Warn("gossip: "+text, args...)
}

func (l *gossipLog) due(kind string) (dropped int, ok bool) {
	if i := strings.IndexAny(kind, "0123456789'\"("); i >= 0 {
		kind = kind[:i]
	}
	kind = kind[:min(len(kind), gossipKindMax)]
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.mu.kinds[kind]
	if k == nil {
		if len(l.mu.kinds) >= gossipKindsMax {
			kind = ""
		}
		if k = l.mu.kinds[kind]; k == nil {
			k = &gossipKind{}
			l.mu.kinds[kind] = k
		}
	}
	if !k.last.IsZero() && time.Since(k.last) < l.every {
		k.dropped++
		return 0, false
	}
	dropped, k.dropped, k.last = k.dropped, 0, time.Now()
	return dropped, true
}
