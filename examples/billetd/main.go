// Billetd is a node as a program of its own: any Kafka client is a client of it.
//
//	go run ./examples/billetd                     one node, its data in ./data
//	kcat -b 127.0.0.1:9092 -L
//
//	billetd -id 2 -listen 10.0.0.2:7800 -join 10.0.0.1:7800
//
// Every setting is a flag, an environment variable and a key of a YAML file (-config);
// a flag counts before the environment, and that before the file. Settings under the
// names that Kafka's brokers have for them may follow the flags:
//
//	billetd -dir /var/lib/billet num.partitions=4 log.retention.ms=86400000
//
// The first SIGTERM or interrupt ends it in order, a second one at once.
//
// Two commands are for a cluster that has lost most of its nodes for good; see
// docs/failures.md. They stand before the flags of a node that is stopped:
//
//	billetd recover-cluster -dir d1 -id 1
//	billetd follow-cluster GENERATION -dir d2 -id 2
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/billetlog/billet"
	"github.com/billetlog/billet/transport"
)

// What the program ends with.
const (
	exitOK = iota
	exitFailed
	exitUsage
)

func main() {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	os.Exit(run(os.Args[1:], os.Environ(), os.Stdout, os.Stderr, apart(signals, signalGap)))
}

// signalGap is how far apart signals are that somebody sends one after the other.
const signalGap = time.Second

// apart leaves out signals that come within gap of one before: who starts programs may
// send one to the process and at the same time to its group.
func apart(signals <-chan os.Signal, gap time.Duration) <-chan os.Signal {
	out := make(chan os.Signal, cap(signals))
	go func() {
		defer close(out)
		var last time.Time
		for s := range signals {
			if now := time.Now(); last.IsZero() || now.Sub(last) >= gap {
				last = now
				out <- s
			}
		}
	}()
	return out
}

// run is the program. It returns its exit code.
func run(args, environment []string, stdout, stderr io.Writer, signals <-chan os.Signal) int {
	do, args, err := command(args)
	if err != nil {
		fmt.Fprintln(stderr, "billetd:", err)
		return exitUsage
	}
	opts, err := parse(args, environment)
	switch {
	case errors.Is(err, flag.ErrHelp):
		usage(stdout)
		return exitOK
	case err != nil:
		fmt.Fprintln(stderr, "billetd:", err)
		fmt.Fprintln(stderr, "billetd: -help lists all settings")
		return exitUsage
	}
	logger, err := newLogger(stderr, opts.LogLevel, opts.LogFormat)
	if err != nil {
		fmt.Fprintln(stderr, "billetd:", err)
		return exitUsage
	}
	if do != nil {
		if err := do(&opts.Config, stdout); err != nil {
			fmt.Fprintln(stderr, "billetd:", err)
			return exitFailed
		}
		return exitOK
	}
	if err := serve(opts, logger, signals); err != nil {
		logger.Error("billetd ends", "err", err)
		return exitFailed
	}
	return exitOK
}

// newLogger makes a logger.
func newLogger(w io.Writer, level, format string) (*slog.Logger, error) {
	var options slog.HandlerOptions
	var at slog.Level
	if err := at.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("log-level is %q: it is debug, info, warn or error", level)
	}
	options.Level = at
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(w, &options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, &options)), nil
	}
	return nil, fmt.Errorf("log-format is %q: it is text or json", format)
}

// errSecondSignal says that somebody did not want to wait.
var errSecondSignal = errors.New("a second signal: ended at once, and the next start looks what there is to recover")

// serve opens the log and the HTTP server and runs them until a signal.
func serve(opts *options, logger *slog.Logger, signals <-chan os.Signal) error {
	config := opts.Config
	config.Logger = logger
	if opts.CertFile != "" || opts.KeyFile != "" || opts.CAFile != "" {
		tls, err := transport.NewMutualTLS(transport.TLSOptions{CertFile: opts.CertFile, KeyFile: opts.KeyFile, CAFile: opts.CAFile,
			OnReload: func(err error) { logger.Info("the cluster's certificates were read again", "err", err) }})
		if err != nil {
			return err
		}
		config.Cluster.Transport = tls
	}
	n := &node{}
	web, err := openWeb(opts.HTTP, opts.Admin, n, logger)
	if err != nil {
		return err
	}
	defer web.close()

	logger.Info("billetd opens", "dir", config.Dir, "id", config.NodeID, "listen", config.Cluster.Listen, "join", config.Cluster.Join, "timeout", config.OpenTimeout)
	opened := make(chan error, 1)
	go func() {
		log, err := billet.Open(config)
		n.log.Store(log)
		opened <- err
	}()
	if err, asked := wait(opened, signals, logger); err != nil || asked {
		return n.close(err, asked, signals)
	}
	log := n.log.Load()
	logger.Info("billetd is open", "dir", config.Dir, "id", config.NodeID, "cluster", log.ClusterID(), "kafka", log.KafkaAddr(), "http", web.address())
	s := <-signals
	logger.Info("billetd stops", "signal", s.String())
	return n.close(nil, true, signals)
}

// wait waits for the log to be open, and notes whether it was asked to stop meanwhile.
func wait(opened <-chan error, signals <-chan os.Signal, logger *slog.Logger) (err error, asked bool) {
	select {
	case err = <-opened:
		return err, false
	case s := <-signals:
		logger.Info("billetd stops as soon as it is open", "signal", s.String())
	}
	select {
	case err = <-opened:
		return err, true
	case <-signals:
		return errSecondSignal, true
	}
}

// close closes the log, unless it did not open, and until another signal comes.
func (n *node) close(err error, asked bool, signals <-chan os.Signal) error {
	n.stopping.Store(true)
	log := n.log.Load()
	if log == nil || err != nil {
		return err
	}
	closed := make(chan error, 1)
	go func() { closed <- log.Close() }()
	select {
	case err := <-closed:
		return err
	case <-signals:
		return errSecondSignal
	}
}
