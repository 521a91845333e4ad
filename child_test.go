package billet

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

const (
	childEnv      = "BILLET_TEST_CHILD"       // what the child does; unset: this process is none
	childDirEnv   = "BILLET_TEST_CHILD_DIR"   // the log's directory
	childRoundEnv = "BILLET_TEST_CHILD_ROUND" // tells one child from another
)

// TestChild is no test: it is what child processes of other tests run.
func TestChild(t *testing.T) {
	run := map[string]func(dir, round string){"hold": childHold, "node": childNode, "produce": childProduce, "topics": childTopics, "kafka": childKafka, "wire": childWire}[os.Getenv(childEnv)]
	if run == nil {
		t.Skip("runs as a child of other tests")
	}
	run(os.Getenv(childDirEnv), os.Getenv(childRoundEnv))
}

// child is a process of this test binary.
type child struct {
	cmd   *exec.Cmd
	lines *bufio.Scanner // what it prints
	in    io.WriteCloser // it ends when this is closed, if it cares
}

func startChild(t *testing.T, does, dir string, round int) *child {
	t.Helper()
	c := &child{cmd: exec.Command(os.Args[0], "-test.run=^TestChild$")}
	c.cmd.Env = append(os.Environ(), childEnv+"="+does, childDirEnv+"="+dir, fmt.Sprintf("%s=%d", childRoundEnv, round))
	c.cmd.Stderr = os.Stderr
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c.lines = bufio.NewScanner(out)
	c.lines.Buffer(nil, 1<<20)
	return c
}

// expect wants the next line to be s.
func (c *child) expect(t *testing.T, s string) {
	t.Helper()
	if !c.lines.Scan() || c.lines.Text() != s {
		c.kill()
		t.Fatalf("the child printed %q, want %q (%v)", c.lines.Text(), s, c.lines.Err())
	}
}

// kill ends the process as a crash does, and waits for it.
func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	for c.lines.Scan() {
	}
	_ = c.cmd.Wait()
}

// end lets the process end by itself and waits for it.
func (c *child) end(t *testing.T) {
	t.Helper()
	_ = c.in.Close()
	for c.lines.Scan() {
	}
	if err := c.cmd.Wait(); err != nil {
		t.Errorf("child: %v", err)
	}
}

// childPrinter prints whole lines for the parent, from any goroutine.
type childPrinter struct{ mu sync.Mutex }

func (p *childPrinter) print(lines string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, _ = os.Stdout.WriteString(lines)
}

// childFail tells the parent and ends the process.
func childFail(what string, err error) {
	fmt.Println("error", what, strings.ReplaceAll(fmt.Sprint(err), "\n", "; "))
	os.Exit(3)
}

// childHold keeps a log open until its input ends.
func childHold(dir, _ string) {
	l, err := Open(Config{Dir: dir, JournalBytes: 1 << 20})
	if err != nil {
		childFail("open", err)
	}
	fmt.Println("open")
	_, _ = io.Copy(io.Discard, os.Stdin)
	if err := l.Close(); err != nil {
		childFail("close", err)
	}
	fmt.Println("closed")
}
