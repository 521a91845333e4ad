package main

import (
	"errors"
	"flag"
	"fmt"
	"regexp"
	"time"
)

// options are the command line.
type options struct {
	cases      string
	runs       int
	dir        string
	quick      bool
	list       bool
	billet     bool
	peer       bool
	batchBytes int
	profileDir string

	match *regexp.Regexp
}

const (
	runsDefault  = 5
	batchDefault = 64 << 10 // billet's ProducerConfig.BatchBytes
)

func parseOptions(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("peers", flag.ContinueOnError)
	flags.StringVar(&o.cases, "cases", "", "only cases whose name this regular expression matches")
	flags.IntVar(&o.runs, "runs", 0, fmt.Sprintf("runs of every side; the medians are printed (default %d, 1 with -quick)", runsDefault))
	flags.StringVar(&o.dir, "dir", "", "where the temporary directory is made (default: the system's place)")
	flags.BoolVar(&o.quick, "quick", false, "short runs and small logs: shows that every case works, the figures say little")
	flags.BoolVar(&o.list, "list", false, "print the names of the cases and end")
	flags.BoolVar(&o.billet, "billet", true, "run billet's sides")
	flags.BoolVar(&o.peer, "peer", true, "run the peers' sides")
	flags.IntVar(&o.batchBytes, "batch", batchDefault, "billet's producer batch in bytes, and that of the bare loop beside it")
	flags.StringVar(&o.profileDir, "profile", "", "write CPU profiles of billet's last run of each family into this existing directory (sides in child processes excepted)")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if o.runs == 0 {
		o.runs = runsDefault
		if o.quick {
			o.runs = 1
		}
	}
	if o.runs < 1 || o.batchBytes < 1 {
		return o, errors.New("-runs and -batch must be at least 1")
	}
	var err error
	o.match, err = regexp.Compile(o.cases)
	return o, err
}

// duration returns d, or a fifth of it in a quick run.
func (o options) duration(d time.Duration) time.Duration {
	if o.quick {
		return d / 5
	}
	return d
}

// records returns n, or a small part of it in a quick run.
func (o options) records(n int64) int64 {
	if o.quick {
		return n / 16
	}
	return n
}

// families returns what the options select, in the order it runs: what leaves
// much to write back comes last.
func (o options) families() []family {
	all := []family{durableProduce(o)}
	all = append(all, intervalProduce(o)...)
	all = append(all, singleProduce(o)...)
	all = append(all, clusterProduce(o)...)
	all = append(all, clusterSingle(o)...)
	all = append(all, clusterIdle(o), followed(o), catchUp(o), failover(o))
	all = append(all, endToEnd(o), consume(o), shards(o), opening(o), idle(o), ingesting(o), reopen(o))
	var selected []family
	for _, f := range all {
		if f = o.narrow(f); len(f.cases) > 0 {
			selected = append(selected, f)
		}
	}
	return selected
}

// narrow leaves the cases that are asked for and the sides that they need.
func (o options) narrow(f family) family {
	needed := map[string]bool{}
	var cases []benchCase
	for _, c := range f.cases {
		if !o.match.MatchString(c.name) {
			continue
		}
		cases = append(cases, c)
		for _, m := range c.metrics() {
			for m := &m; m != nil; m = m.over {
				needed[m.side] = true
			}
		}
	}
	var sides []*side
	for _, s := range f.sides {
		if !needed[s.name] || (s.kind == kindBillet && !o.billet) || (s.kind == kindPeer && !o.peer) {
			continue
		}
		sides = append(sides, s)
	}
	f.cases, f.sides = cases, sides
	return f
}
