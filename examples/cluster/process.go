package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"time"
)

// process is one of the drill's nodes, which is a process of this program.
type process struct {
	id      int32
	address string
	dir     string
	args    []string
	lost    func(error) // called when it ends by itself

	command  *exec.Cmd
	lifeline io.WriteCloser // the process ends when this is closed, as it is when we die
	opened   chan struct{}  // closed when its log is open
	ended    chan struct{}  // closed when the process is gone
	err      error          // how it ended, once it has
	meant    atomic.Bool    // that it ends
}

// start runs the process. Its log's messages are added to a file beside its
// directory.
func (p *process) start() error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	messages, err := os.OpenFile(p.messages(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer messages.Close() // the process has its own
	p.command = exec.Command(program, p.args...)
	p.command.Stderr = messages
	out, err := p.command.StdoutPipe()
	if err != nil {
		return err
	}
	if p.lifeline, err = p.command.StdinPipe(); err != nil {
		return err
	}
	if err := p.command.Start(); err != nil {
		return err
	}
	p.opened, p.ended = make(chan struct{}), make(chan struct{})
	p.meant.Store(false)
	go p.watch(out)
	return nil
}

// messages is the file with what the process said.
func (p *process) messages() string { return filepath.Clean(p.dir) + ".log" }

// openedLine is what a process prints when its log is open.
const openedLine = "open"

// watch reads what the process prints, and waits for its end.
func (p *process) watch(out io.Reader) {
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if lines.Text() == openedLine {
			close(p.opened)
			break
		}
	}
	_, _ = io.Copy(io.Discard, out)
	p.err = p.command.Wait()
	var unmeant error
	if !p.meant.Load() {
		unmeant = p.gone()
	}
	close(p.ended) // from here on it may be started again
	if unmeant != nil {
		p.lost(unmeant)
	}
}

// open waits until the log of the process is open.
func (p *process) open(ctx context.Context) error {
	select {
	case <-p.opened:
		return nil
	case <-p.ended:
		return p.gone()
	case <-ctx.Done():
		return fmt.Errorf("node %d does not open: %w", p.id, context.Cause(ctx))
	}
}

// gone says that the process is not there any more, with the last of what it said.
func (p *process) gone() error {
	const most = 2 << 10
	said, err := os.ReadFile(p.messages())
	if err != nil {
		said = []byte(err.Error())
	}
	return fmt.Errorf("node %d ended by itself (%v); it said:\n%s", p.id, p.err, said[max(len(said)-most, 0):])
}

// kill ends the process as a crash does: it gets no chance to write anything.
func (p *process) kill() error {
	if p.ended == nil {
		return nil // it never ran
	}
	p.meant.Store(true)
	if err := p.command.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-p.ended
	return nil
}

// stopTimeout bounds how long a process may take to close its log.
const stopTimeout = 20 * time.Second

// stop lets the process close its log and end.
func (p *process) stop() error {
	p.meant.Store(true)
	_ = p.lifeline.Close()
	timer := time.NewTimer(stopTimeout)
	defer timer.Stop()
	select {
	case <-p.ended:
	case <-timer.C:
		return errors.Join(fmt.Errorf("node %d does not end within %v and is killed", p.id, stopTimeout), p.kill())
	}
	if p.err != nil {
		return p.gone()
	}
	return nil
}
