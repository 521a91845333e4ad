package billet

import (
	"context"
	"sync"
	"time"
)

// The bounds of asking other nodes about the partitions that they lead.
const (
	refreshTimeout  = time.Second
	refreshParallel = 32
)

// refreshAll asks the leaders of partitions elsewhere where they stand. Who does
// not answer in time is left out.
func refreshAll(ctx context.Context, logs []partitionLog) {
	var wg sync.WaitGroup
	var slots chan struct{}
	for _, log := range logs {
		if log.Current() {
			continue
		}
		if slots == nil {
			slots = make(chan struct{}, refreshParallel)
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, refreshTimeout)
			defer cancel()
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			_ = log.Refresh(ctx) // what is known stays
		})
	}
	wg.Wait()
}

// refresh asks the leaders of the topics' partitions where they stand.
func (l *Log) refresh(ctx context.Context, states ...topicState) {
	var logs []partitionLog
	for _, state := range states {
		for n := range state.Partitions {
			if log, err := l.catalog.Partition(state.Name, int32(n)); err == nil {
				logs = append(logs, log)
			}
		}
	}
	refreshAll(ctx, logs)
}
