package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// childEnv holds the childSpec of a process that is a child.
const childEnv = "BILLET_PEERS_CHILD"

const (
	childPoolBytes = 1 << 20 // small, since it counts as the child's memory
	readyTogether  = 16      // partitions that are tried for writing at once
)

// childSpec says what a child process opens. It opens it, writes one
// acknowledged record to every partition, prints "ready", and then obeys the
// commands that come on its standard input, a line each:
//
//	ingest N   writes N records of 1 KiB (0: for ever) and prints "acked M"
//	           as acknowledgements come in, "done" at the end
//	count      prints "count M", the records that all partitions hold
//	create N   makes N partitions on a cluster and prints "created"
//	usage      prints "usage T", the processor time so far in microseconds
//	free       returns free memory to the system and prints "freed"
//	quit       closes the log, prints "bye" and ends
//
// It ends without closing anything when its standard input ends.
type childSpec struct {
	System string // of systems; empty for a process that opens nothing
	Dir    string
	Shape  shape
	// Node, where there is one, makes the child a node of a cluster instead, which
	// is "ready" when it is open and writes nothing by itself.
	Node *nodeSpec
}

// childMain is the main function of a child.
func childMain(encoded string) error {
	var spec childSpec
	if err := json.Unmarshal([]byte(encoded), &spec); err != nil {
		return err
	}
	commands := commandsOrExit()
	ctx := context.Background()
	log := system(nothing{})
	if spec.Node != nil {
		var err error
		if log, err = spec.Node.open(); err != nil {
			return err
		}
	} else if spec.System != "" {
		open, ok := systems[spec.System]
		if !ok {
			return fmt.Errorf("no system %q", spec.System)
		}
		var err error
		if log, err = open(ctx, spec.Dir, spec.Shape); err != nil {
			return err
		}
	}
	if spec.Node == nil {
		if err := writeEach(ctx, log, spec.Shape.Partitions); err != nil {
			return errors.Join(err, log.Close())
		}
	}
	fmt.Println("ready")
	for command := range commands {
		if err := obey(ctx, log, command); err != nil {
			return err
		}
		if command == "quit" {
			return nil
		}
	}
	return nil
}

// commandsOrExit passes on the lines of standard input and ends the process
// with it, whatever else goes on: the parent is gone then.
func commandsOrExit() <-chan string {
	commands := make(chan string)
	go func() {
		lines := bufio.NewScanner(os.Stdin)
		for lines.Scan() {
			commands <- lines.Text()
		}
		os.Exit(exitOrphan)
	}()
	return commands
}

// writeEach writes one record to every partition.
func writeEach(ctx context.Context, log system, partitions int) error {
	payloads := newPool(childPoolBytes)
	next := make(chan int)
	errs := make([]error, min(readyTogether, partitions))
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			for p := range next {
				errs[i] = errors.Join(errs[i], log.Publish(ctx, p, payloads.record(int64(p), kib)))
			}
		})
	}
	for p := range partitions {
		next <- p
	}
	close(next)
	wg.Wait()
	return errors.Join(errs...)
}

// obey carries out one command.
func obey(ctx context.Context, log system, command string) error {
	verb, argument, _ := strings.Cut(command, " ")
	switch verb {
	case "ingest":
		var records int64
		if _, err := fmt.Sscan(argument, &records); err != nil {
			return err
		}
		return ingestAloud(ctx, log, load{pool: newPool(childPoolBytes), size: kib, feeders: 1, records: records})
	case "count":
		records, err := log.Count(ctx)
		if err != nil {
			return err
		}
		fmt.Println("count", records)
	case "create":
		var partitions int
		if _, err := fmt.Sscan(argument, &partitions); err != nil {
			return err
		}
		if err := log.(member).create(ctx, partitions); err != nil {
			return err
		}
		fmt.Println("created")
	case "usage":
		var u unix.Rusage
		if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
			return err
		}
		fmt.Println("usage", (u.Utime.Nano()+u.Stime.Nano())/1000)
	case "free":
		debug.FreeOSMemory()
		fmt.Println("freed")
	case "quit":
		if err := log.Close(); err != nil {
			return err
		}
		fmt.Println("bye")
	default:
		return fmt.Errorf("no command %q", command)
	}
	return nil
}

// ingestAloud ingests and prints progress.
func ingestAloud(ctx context.Context, log system, l load) error {
	var acked atomic.Int64
	done := make(chan error, 1)
	go func() { done <- log.Ingest(ctx, l, &acked) }()
	ticks := time.NewTicker(2 * time.Millisecond)
	defer ticks.Stop()
	for {
		select {
		case err := <-done:
			if err != nil {
				return err
			}
			fmt.Printf("acked %d\ndone\n", acked.Load())
			return nil
		case <-ticks.C:
			fmt.Println("acked", acked.Load())
		}
	}
}

// nothing is the system of a child that opens none.
type nothing struct{ system }

func (nothing) Close() error { return nil }

// child is a child process, seen from its parent.
type child struct {
	command *exec.Cmd
	input   io.WriteCloser
	output  *bufio.Scanner
	started time.Time
	stderr  strings.Builder
}

// spawn starts a child. The caller ends it with kill or quit.
func spawn(ctx context.Context, spec childSpec) (*child, error) {
	encoded, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	c := &child{command: exec.CommandContext(ctx, "/proc/self/exe")}
	c.command.Env = append(os.Environ(), childEnv+"="+string(encoded))
	c.command.Stderr = &c.stderr
	if c.input, err = c.command.StdinPipe(); err != nil {
		return nil, err
	}
	output, err := c.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.output = bufio.NewScanner(output)
	c.started = time.Now()
	if err := c.command.Start(); err != nil {
		return nil, err
	}
	return c, nil
}

// expect reads one line, which must begin with the word, into the values after it.
func (c *child) expect(word string, values ...any) error {
	if !c.output.Scan() {
		c.kill()
		return fmt.Errorf("child ended before %q: %s", word, strings.TrimSpace(c.stderr.String()))
	}
	got, rest, _ := strings.Cut(c.output.Text(), " ")
	if got != word {
		return fmt.Errorf("child said %q, expected %q", c.output.Text(), word)
	}
	if len(values) == 0 {
		return nil
	}
	_, err := fmt.Sscan(rest, values...)
	return err
}

// tell sends a command and expects its answer.
func (c *child) tell(command, answer string, values ...any) error {
	if _, err := fmt.Fprintln(c.input, command); err != nil {
		return err
	}
	return c.expect(answer, values...)
}

// ingest lets the child write records of 1 KiB until enough are acknowledged:
// all of them, or the first of an endless load.
func (c *child) ingest(records, enough int64) (acked int64, err error) {
	if _, err := fmt.Fprintln(c.input, "ingest", records); err != nil {
		return 0, err
	}
	for acked < enough {
		if err := c.expect("acked", &acked); err != nil {
			return acked, err
		}
	}
	if records == 0 {
		return acked, nil
	}
	return acked, c.expect("done")
}

// drain reads what a killed child still said.
func (c *child) drain() (lines []string) {
	for c.output.Scan() {
		lines = append(lines, c.output.Text())
	}
	return lines
}

// quit closes the child's log and waits for its end.
func (c *child) quit() error {
	if err := c.tell("quit", "bye"); err != nil {
		c.kill()
		return err
	}
	return c.command.Wait()
}

// kill ends the child with SIGKILL and waits for its end.
func (c *child) kill() {
	c.command.Process.Kill()
	c.drain()
	c.command.Wait()
}
