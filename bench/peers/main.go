package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
)

// Exit codes.
const (
	exitFailed = 1 // a case failed
	exitUsage  = 2
	exitOrphan = 3 // a child whose parent is gone
)

// familyEnv holds "<name> <dir>" in a process that runs one family.
const familyEnv = "BILLET_PEERS_FAMILY"

// notes tells on standard error what goes on. It is not the standard logger
// because dragonboat's packages take that one over.
var notes = log.New(os.Stderr, "", log.Ltime)

func main() {
	if spec := os.Getenv(childEnv); spec != "" {
		if err := childMain(spec); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(exitFailed)
		}
		return
	}
	o, err := parseOptions(os.Args[1:])
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(exitUsage)
	case o.list:
		for _, f := range o.families() {
			for _, c := range f.cases {
				fmt.Println(c.name)
			}
		}
		return
	}
	if spec := os.Getenv(familyEnv); spec != "" {
		name, dir, _ := strings.Cut(spec, " ")
		os.Exit(familyMain(o, name, dir))
	}
	os.Exit(runAll(o))
}

// runAll runs each family in a process of its own, inside one temporary
// directory that is removed whatever happens to them.
func runAll(o options) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	dir, err := os.MkdirTemp(o.dir, "billet-peers-")
	if err != nil {
		notes.Print(err)
		return exitFailed
	}
	defer func() {
		if err := os.RemoveAll(dir); err != nil {
			notes.Print(err)
		}
	}()
	fmt.Print(header(dir, o))
	code := 0
	for _, f := range o.families() {
		if ctx.Err() != nil {
			return exitFailed
		}
		if !runFamily(ctx, f, dir) {
			code = exitFailed
		}
	}
	return code
}

// runFamily runs a family's process, passes its lines on, and reports the
// cases for which it printed none.
func runFamily(ctx context.Context, f family, dir string) (ok bool) {
	dir, err := os.MkdirTemp(dir, f.name+"-")
	if err != nil {
		return reportMissing(f, nil, err)
	}
	defer os.RemoveAll(dir)
	command := exec.CommandContext(ctx, "/proc/self/exe", os.Args[1:]...)
	command.Env = append(os.Environ(), familyEnv+"="+f.name+" "+dir)
	command.Stderr = os.Stderr
	// The family ends when this pipe does: with its parent.
	input, err := command.StdinPipe()
	if err != nil {
		return reportMissing(f, nil, err)
	}
	defer input.Close()
	output, err := command.StdoutPipe()
	if err != nil {
		return reportMissing(f, nil, err)
	}
	if err := command.Start(); err != nil {
		return reportMissing(f, nil, err)
	}
	printed := map[string]bool{}
	lines := bufio.NewScanner(output)
	for lines.Scan() {
		fmt.Println(lines.Text())
		name, _, _ := strings.Cut(strings.TrimPrefix(lines.Text(), "case="), " ")
		printed[name] = true
	}
	err = command.Wait()
	return reportMissing(f, printed, err) && err == nil
}

// reportMissing prints an error line for each case that is not printed yet.
func reportMissing(f family, printed map[string]bool, err error) (ok bool) {
	ok = true
	for _, c := range f.cases {
		if !printed[c.name] {
			ok = false
			fmt.Println(errorLine(c.name, fmt.Errorf("process of family %s: %w", f.name, err)))
		}
	}
	return ok
}

// familyMain is the main function of a family's process.
func familyMain(o options, name, dir string) int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	commandsOrExit()
	for _, f := range o.families() {
		if f.name != name {
			continue
		}
		code := 0
		r := f.run(ctx, dir, o)
		for _, c := range f.cases {
			line, ok := c.line(r)
			if !ok {
				code = exitFailed
			}
			fmt.Println(line)
		}
		return code
	}
	notes.Printf("no family %q", name)
	return exitUsage
}
