package replication

import (
	"bytes"
	"context"
	"runtime/pprof"
	"time"

	"github.com/hashicorp/memberlist"
)

// memberlist's Shutdown does not wait for its goroutines: one that probes a silent peer goes on until that probe's time is over. They
// cannot be waited for one by one, but goroutines inherit the profiler's labels, so that it can be seen whether any is left.

const (
	gossipGoroutines = "billet-gossip"
	markedPollMin    = time.Millisecond
	markedPollMax    = 50 * time.Millisecond
)

// startMarked starts memberlist with all its goroutines marked.
func startMarked(mark string, conf *memberlist.Config) (list *memberlist.Memberlist, err error) {
	done := make(chan struct{})
	go func() { // the caller's labels stay as they are
		defer close(done)
		pprof.Do(context.Background(), pprof.Labels(gossipGoroutines, mark), func(context.Context) {
			list, err = memberlist.Create(conf)
		})
	}()
	<-done
	return list, err
}

// waitMarked returns when no goroutine has the mark, or after a while: each of memberlist's ends by then, but dial or the logger of the host
// may have started others from them.
func waitMarked(mark string, atMost time.Duration) {
	wait := markedPollMin
	end := time.Now().Add(atMost)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		<-timer.C
		var text bytes.Buffer
		if err := pprof.Lookup("goroutine").WriteTo(&text, 1); err != nil || !bytes.Contains(text.Bytes(), []byte(mark)) || time.Now().After(end) {
			return
		}
		timer.Reset(wait)
		wait = min(2*wait, markedPollMax)
	}
}
