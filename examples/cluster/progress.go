package main

import (
	"fmt"
	"os"
	"sync"
	"time"
)

// progress prints what happened, to standard output, and on standard error once a
// second how far things are: on one line that changes if that is a terminal.
type progress struct {
	start    time.Time
	terminal bool
	quit     chan struct{}
	done     chan struct{}

	mu       sync.Mutex
	followed *drill // whose counters are told, or nil
	acks     int64  // when they were told last
	at       time.Time
}

// newProgress starts to tell. The caller must stop it.
func newProgress() *progress {
	p := &progress{start: time.Now(), quit: make(chan struct{}), done: make(chan struct{})}
	if info, err := os.Stderr.Stat(); err == nil {
		p.terminal = info.Mode()&os.ModeCharDevice != 0
	}
	go p.run()
	return p
}

func (p *progress) run() {
	defer close(p.done)
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			p.tick()
		case <-p.quit:
			p.clear()
			return
		}
	}
}

// follow tells of a drill's counters from now on, or of none.
func (p *progress) follow(d *drill) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.followed, p.acks, p.at = d, 0, time.Now()
}

func (p *progress) tick() {
	p.mu.Lock()
	defer p.mu.Unlock()
	text := fmt.Sprintf("%4.0f s", time.Since(p.start).Seconds())
	if d := p.followed; d != nil {
		acks, now := d.load.written.Load(), time.Now()
		s := stretch{acks: acks - p.acks, took: now.Sub(p.at)}
		p.acks, p.at = acks, now
		text += fmt.Sprintf("  %s records acknowledged, %s/s, %s read", count(acks), count(s.rate()), count(d.reader.consumed.Load()))
	}
	if p.terminal {
		fmt.Fprintf(os.Stderr, "\r%s\x1b[K", text)
		return
	}
	fmt.Fprintln(os.Stderr, text)
}

// say prints a line that stays.
func (p *progress) say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
	fmt.Printf(format+"\n", args...)
}

// clear wipes the line that changes.
func (p *progress) clear() {
	if p.terminal {
		fmt.Fprint(os.Stderr, "\r\x1b[K")
	}
}

// stop ends it.
func (p *progress) stop() {
	close(p.quit)
	<-p.done
}
