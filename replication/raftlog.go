package replication

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"

	"github.com/lni/dragonboat/v4/logger"
)

// dragonboat has one logger for the process. Ours sends what it says to the loggers of all open hosts and turns Panicf, which would
// end the process, into a report and a parked goroutine: what called it holds a broken invariant, so returning is not an option.

var raftSink struct {
	once sync.Once
	mu   sync.Mutex
	subs map[*Host]struct{}
}

// subscribeRaftLog makes h hear what dragonboat logs. The first call in the process installs the logger.
func subscribeRaftLog(h *Host) {
	raftSink.once.Do(func() {
		raftSink.subs = make(map[*Host]struct{})
		// The host program may use dragonboat itself and have set a factory: then its choice stands.
		defer func() { _ = recover() }()
		logger.SetLoggerFactory(func(pkg string) logger.ILogger { return raftLogger{pkg: pkg} })
	})
	raftSink.mu.Lock()
	defer raftSink.mu.Unlock()
	raftSink.subs[h] = struct{}{}
}

func unsubscribeRaftLog(h *Host) {
	raftSink.mu.Lock()
	defer raftSink.mu.Unlock()
	delete(raftSink.subs, h)
}

func raftSubscribers() []*Host {
	raftSink.mu.Lock()
	defer raftSink.mu.Unlock()
	hosts := make([]*Host, 0, len(raftSink.subs))
	for h := range raftSink.subs {
		hosts = append(hosts, h)
	}
	return hosts
}

type raftLogger struct{ pkg string }

func (l raftLogger) SetLevel(logger.LogLevel) {}

// dragonboat's information is of interest to those who debug it, and its warnings include things that are normal here.
func (l raftLogger) Debugf(string, ...any)       {}
func (l raftLogger) Infof(string, ...any)        {}
func (l raftLogger) Warningf(f string, a ...any) { l.log(slog.LevelDebug, f, a) }
func (l raftLogger) Errorf(f string, a ...any)   { l.log(slog.LevelWarn, f, a) }
func (l raftLogger) log(v slog.Level, f string, a []any) {
	for _, h := range raftSubscribers() {
		if h.logger.Enabled(context.Background(), v) {
			h.logger.Log(context.Background(), v, "raft: "+fmt.Sprintf(f, a...), "package", l.pkg)
		}
	}
}

// Panicf reports and never returns. On a goroutine that is inside our own call of StartReplica, or hands over a snapshot, it panics for real, because that call
// recovers; everywhere else the goroutine is parked for good.
func (l raftLogger) Panicf(f string, a ...any) {
	msg := fmt.Sprintf(f, a...)
	if onStack("replication.(*guard).start") || onStack("replication.(*guard).chunks") {
		panic(fmt.Errorf("raft (%s): %s", l.pkg, msg))
	}
	for _, h := range raftSubscribers() {
		h.parked.Add(1)
		h.logger.Error("raft: a worker met a broken invariant and was parked; close and open this log", "package", l.pkg, "what", msg)
		h.emit(Event{Kind: EventRaftParked, Err: fmt.Errorf("%w: raft (%s): %s", ErrFailed, l.pkg, msg)})
	}
	select {}
}

func onStack(function string) bool {
	pcs := make([]uintptr, 64)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	for {
		f, more := frames.Next()
		if strings.HasSuffix(f.Function, function) {
			return true
		}
		if !more {
			return false
		}
	}
}
