// Command kfake serves franz-go's fake broker, to try the suites on.
//
//	go run ./kfake -kafka 127.0.0.1:9092
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"github.com/twmb/franz-go/pkg/kfake"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "kfake:", err)
		os.Exit(1)
	}
}

func run() error {
	address := flag.String("kafka", "127.0.0.1:9092", "`address` to serve")
	flag.String("dir", "", "not used: everything is in memory")
	flag.Parse()
	configs := map[string]string{}
	for _, arg := range flag.Args() {
		name, value, ok := strings.Cut(arg, "=")
		if !ok {
			return fmt.Errorf("%q is no setting=value", arg)
		}
		configs[name] = value
	}
	_, port, ok := strings.Cut(*address, ":")
	if !ok {
		return fmt.Errorf("-kafka %q has no port", *address)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		return fmt.Errorf("-kafka %q: %w", *address, err)
	}
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.Ports(number), kfake.BrokerConfigs(configs))
	if err != nil {
		return err
	}
	defer cluster.Close()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	<-ctx.Done()
	return nil
}
