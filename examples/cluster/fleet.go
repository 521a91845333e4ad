package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
)

// fleet are the processes of the drill, and the directory with all of theirs.
type fleet struct {
	root      string
	processes []*process
	addresses []string // of the processes, and one more
}

// newFleet prepares so many nodes, with the ids 1, 2, and so on. The first creates
// the topic. lost is called when one ends by itself.
func newFleet(nodes int, lost func(error)) (*fleet, error) {
	root, err := os.MkdirTemp("", "billet-cluster-")
	if err != nil {
		return nil, err
	}
	f := &fleet{root: root}
	if f.addresses, err = freeAddresses(nodes + 1); err != nil {
		return nil, errors.Join(err, f.remove())
	}
	var ids []string
	for i := range nodes {
		ids = append(ids, fmt.Sprint(i+1))
	}
	for i := range nodes {
		p := &process{id: int32(i + 1), address: f.addresses[i], dir: filepath.Join(root, "node-"+ids[i]), lost: lost}
		p.args = []string{
			"-lifeline", "-log", "-node", ids[i], "-listen", p.address, "-dir", p.dir,
			"-join", strings.Join(f.addresses[:nodes], ","), "-bootstrap", strings.Join(ids, ","),
		}
		if i == 0 {
			p.args = append(p.args, "-topic")
		}
		f.processes = append(f.processes, p)
	}
	return f, nil
}

// start runs all processes and waits until they are one cluster with the topic.
func (f *fleet) start(ctx context.Context) error {
	for _, p := range f.processes {
		if err := p.start(); err != nil {
			return err
		}
	}
	for _, p := range f.processes {
		if err := p.open(ctx); err != nil {
			return err
		}
	}
	return nil
}

// process returns the one with a node id.
func (f *fleet) process(id int32) *process { return f.processes[id-1] }

// stop lets all processes end in peace.
func (f *fleet) stop() error {
	errs := make(chan error, len(f.processes))
	for _, p := range f.processes {
		go func() { errs <- p.stop() }()
	}
	var all error
	for range f.processes {
		all = errors.Join(all, <-errs)
	}
	return all
}

// kill ends all processes that are left.
func (f *fleet) kill() {
	for _, p := range f.processes {
		_ = p.kill() // an error says that it is gone
	}
}

// remove deletes everything.
func (f *fleet) remove() error { return os.RemoveAll(f.root) }

// The range of ports that are tried: systems take those of outgoing connections,
// which would be gone when a node is started again, from above.
const (
	portMin   = 20_000
	portRange = 10_000
	portTries = 1_000
)

// freeAddresses finds addresses that nobody listens at.
func freeAddresses(n int) ([]string, error) {
	var out []string
	for range portTries {
		if len(out) == n {
			return out, nil
		}
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", portMin+rand.IntN(portRange)))
		if err != nil {
			continue
		}
		defer l.Close() // when all are found, so that no address is found twice
		out = append(out, l.Addr().String())
	}
	return nil, fmt.Errorf("no free ports from %d to %d on 127.0.0.1", portMin, portMin+portRange-1)
}
