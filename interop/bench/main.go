// Command bench measures brokers over the wire with the same client on the same disk
// in one run: billet's, Apache Kafka's, and plain sendfile as the limit of fetching.
// It prints a line of key=value for each case.
//
//	go run ./bench                              # from interop/: a few minutes
//	go run ./bench -quick                       # does every case work?
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// options are what the flags say.
type options struct {
	billet  []string
	kafka   []string
	seconds time.Duration // of producing
	rate    int           // records a second where latency is measured
	fetched int64         // bytes to fetch
	runs    int
	dir     string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	o, err := parse()
	if err != nil {
		return err
	}
	if o.dir, err = os.MkdirTemp(o.dir, "interop-bench-"); err != nil {
		return err
	}
	defer os.RemoveAll(o.dir)
	if len(o.billet) == 0 {
		binary := filepath.Join(o.dir, "billetd")
		build := exec.CommandContext(ctx, "go", "build", "-C", "..", "-o", binary, "./examples/billetd")
		build.Stderr = os.Stderr
		if err := build.Run(); err != nil {
			return fmt.Errorf("building billetd: %w", err)
		}
		o.billet = []string{binary}
	}
	fmt.Printf("# produce: %v of 1 KiB records, acks=all, one partition; latency: %d records/s for %v; fetch: %d MiB, page cache; medians of %d\n",
		o.seconds, o.rate, o.seconds, o.fetched>>20, o.runs)
	return measure(ctx, o)
}

func parse() (options, error) {
	o := options{}
	billet := flag.String("billet", "", "command of billet's broker, which gets -dir and -kafka; default: examples/billetd")
	kafka := flag.String("peer", "kafka/broker", "command of the peer, alike")
	flag.DurationVar(&o.seconds, "for", 5*time.Second, "how long to produce")
	flag.IntVar(&o.rate, "rate", 1000, "records a second where latency is measured")
	fetched := flag.Int64("fetch", 1024, "MiB to fetch")
	flag.IntVar(&o.runs, "runs", 3, "runs of each")
	flag.StringVar(&o.dir, "dir", "", "where the temporary directory is made")
	quick := flag.Bool("quick", false, "short and once: the figures say little")
	flag.Parse()
	o.billet, o.kafka, o.fetched = strings.Fields(*billet), strings.Fields(*kafka), *fetched<<20
	if *quick {
		o.seconds, o.fetched, o.runs = time.Second, 64<<20, 1
	}
	if o.runs < 1 || o.rate < 1 || o.seconds <= 0 || o.fetched < 1<<20 {
		return o, fmt.Errorf("-runs, -rate, -for and -fetch are above 0")
	}
	return o, nil
}

// durability is a pair of settings that promise the same.
type durability struct {
	name          string
	billet, kafka map[string]*string
}

func text(s string) *string { return &s }

// measure runs billet and its peer in turn.
func measure(ctx context.Context, o options) error {
	pairs := []durability{
		{"interval", map[string]*string{"billet.fsync": text("interval")}, nil},
		{"commit", map[string]*string{"billet.fsync": text("commit")}, map[string]*string{"flush.messages": text("1")}},
	}
	figures := map[string][]float64{}
	add := func(name, side string, value float64) {
		figures[name+" "+side] = append(figures[name+" "+side], value)
		fmt.Fprintf(os.Stderr, "%s %s %.4g\n", name, side, value)
	}
	for range o.runs {
		for _, d := range pairs {
			if err := o.side(ctx, "billet", o.billet, d, d.billet, add); err != nil {
				return err
			}
			if err := o.side(ctx, "kafka", o.kafka, d, d.kafka, add); err != nil {
				return err
			}
		}
		limit, err := sendfile(ctx, o)
		if err != nil {
			return err
		}
		add("fetch-raw", "limit", limit)
	}
	for _, d := range pairs {
		line(figures, "produce-"+d.name, "MB/s", false)
		line(figures, "produce-"+d.name+"-cpu", "us/MB", true) // of the broker's process
		line(figures, "produce-"+d.name+"-busy-p99", "ms", true)
		line(figures, "produce-"+d.name+"-paced-p50", "ms", true)
		line(figures, "produce-"+d.name+"-paced-p99", "ms", true)
	}
	line(figures, "fetch-raw", "MB/s", false)
	line(figures, "fetch-client", "MB/s", false)
	return nil
}

// side measures one broker with one durability.
func (o options) side(ctx context.Context, side string, command []string, d durability, config map[string]*string, add func(string, string, float64)) error {
	b, err := startBroker(ctx, command, filepath.Join(o.dir, "broker"))
	if err != nil {
		return fmt.Errorf("%s: %w", side, err)
	}
	defer b.stop()
	if err := b.create(ctx, "warm", config); err != nil {
		return err
	}
	if _, err := b.flood(ctx, "warm", o.seconds/2); err != nil {
		return fmt.Errorf("%s: warming up: %w", side, err)
	}
	for _, topic := range []string{"flood", "paced", "fetch"} {
		if err := b.create(ctx, topic, config); err != nil {
			return err
		}
	}
	before, err := b.processorTime()
	if err != nil {
		return err
	}
	flood, err := b.flood(ctx, "flood", o.seconds)
	if err != nil {
		return fmt.Errorf("%s: producing: %w", side, err)
	}
	after, err := b.processorTime()
	if err != nil {
		return err
	}
	add("produce-"+d.name, side, flood.rate)
	add("produce-"+d.name+"-cpu", side, float64((after-before)/time.Microsecond)/(float64(len(flood.waits))*recordBytes/1e6))
	add("produce-"+d.name+"-busy-p99", side, quantile(flood.waits, 0.99))
	paced, err := b.paced(ctx, "paced", o.seconds, o.rate)
	if err != nil {
		return fmt.Errorf("%s: producing at a pace: %w", side, err)
	}
	add("produce-"+d.name+"-paced-p50", side, quantile(paced, 0.5))
	add("produce-"+d.name+"-paced-p99", side, quantile(paced, 0.99))
	if d.name != "interval" {
		return nil
	}
	raw, client, err := b.fetch(ctx, "fetch", o.fetched)
	if err != nil {
		return fmt.Errorf("%s: fetching: %w", side, err)
	}
	add("fetch-raw", side, raw)
	add("fetch-client", side, client)
	return nil
}

// quantile returns a quantile of waits in milliseconds.
func quantile(waits []time.Duration, q float64) float64 {
	if len(waits) == 0 {
		return 0
	}
	slices.Sort(waits)
	return float64(waits[min(len(waits)-1, int(q*float64(len(waits))))]) / float64(time.Millisecond)
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// line prints a case. ratio is how many times better billet is than its peer.
func line(figures map[string][]float64, name, unit string, lowerBetter bool) {
	own, peer, limit := median(figures[name+" billet"]), median(figures[name+" kafka"]), median(figures[name+" limit"])
	ratio := own / peer
	if lowerBetter {
		ratio = peer / own
	}
	fmt.Printf("case=%s unit=%s billet=%.4g peer=%.4g ratio=%.3g", name, unit, own, peer, ratio)
	if limit > 0 {
		fmt.Printf(" limit=%.4g of_limit=%.3g limit_is=sendfile", limit, own/limit)
	}
	low, high := figures[name+" billet"][0], figures[name+" billet"][len(figures[name+" billet"])-1]
	fmt.Printf(" billet_range=%.4g..%.4g\n", low, high)
}
