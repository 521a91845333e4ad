package main

import (
	"fmt"
	"os"
	"sync/atomic"
	"time"
)

// progress tells on standard error how far things are: on one line that changes
// if that is a terminal, otherwise with a line every second.
type progress struct {
	produced, verified atomic.Int64

	verb     string // for what is produced; empty when nothing is
	start    time.Time
	terminal bool
	quit     chan struct{}
	done     chan struct{}
}

// newProgress starts to tell. The caller must stop it.
func newProgress(verb string) *progress {
	p := &progress{verb: verb, start: time.Now(), quit: make(chan struct{}), done: make(chan struct{})}
	if info, err := os.Stderr.Stat(); err == nil {
		p.terminal = info.Mode()&os.ModeCharDevice != 0
	}
	go p.run()
	return p
}

func (p *progress) run() {
	defer close(p.done)
	interval := time.Second
	if p.terminal {
		interval = 100 * time.Millisecond
	}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			p.tell()
		case <-p.quit:
			if p.terminal {
				fmt.Fprint(os.Stderr, "\r\x1b[K") // the report follows
			}
			return
		}
	}
}

func (p *progress) tell() {
	text := fmt.Sprintf("%s lines read and verified, %.1f s", count(p.verified.Load()), time.Since(p.start).Seconds())
	if p.verb != "" {
		text = fmt.Sprintf("%s lines %s, %s", count(p.produced.Load()), p.verb, text)
	}
	if p.terminal {
		fmt.Fprintf(os.Stderr, "\r%s\x1b[K", text)
		return
	}
	fmt.Fprintln(os.Stderr, text)
}

// stop ends it and clears its line.
func (p *progress) stop() {
	close(p.quit)
	<-p.done
}
