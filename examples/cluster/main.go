// Cluster shows three services that are one log. Without a node it starts three
// processes of itself on the loopback interface, joins them with a fourth node that
// has no replicas, and through that one writes to and reads from a topic with three
// replicas. Under load it kills the process that leads most partitions with
// SIGKILL, starts it again on its directory, lets it catch up, and checks that each
// acknowledged record was read exactly once, in order within its partition:
//
//	go run ./examples/cluster
//
// With -node it is one node, until it is interrupted. In three terminals:
//
//	go run ./examples/cluster -node 1 -listen 127.0.0.1:7401 -dir /tmp/node-1
//	go run ./examples/cluster -node 2 -listen 127.0.0.1:7402 -dir /tmp/node-2 -join 127.0.0.1:7401 -produce
//	go run ./examples/cluster -node 3 -listen 127.0.0.1:7403 -dir /tmp/node-3 -join 127.0.0.1:7401 -consume
//
// Each prints who leads what, whenever that changes. Kill one and start it again.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	context.AfterFunc(ctx, stop) // a second interrupt ends the program at once
	switch err := run(ctx, os.Args[1:]); {
	case err == nil, errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errUsage):
		os.Exit(2)
	case ctx.Err() != nil:
		fmt.Fprintln(os.Stderr, "cluster: interrupted")
		os.Exit(1)
	default:
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

// run does what the command line says.
func run(ctx context.Context, args []string) error {
	o, err := parseOptions(args)
	if err != nil {
		return err
	}
	if o.node == 0 {
		return runDrill(ctx, o)
	}
	return runNode(ctx, o)
}
