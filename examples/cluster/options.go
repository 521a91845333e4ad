package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// errUsage says that the command line is wrong and the user was told.
var errUsage = errors.New("usage")

// options are the command line.
type options struct {
	// All processes.
	size int // bytes of a record's value
	rate int // records a second, 0: as many as are acknowledged

	// The drill with three processes.
	phase, timeout time.Duration
	keep           bool

	// One node.
	node             int32 // 0: the drill
	listen, dir      string
	join             []string
	bootstrap        []int32
	topic            bool
	produce, consume bool
	log              bool // print what the library logs
	lifeline         bool // ends with standard input
}

func parseOptions(args []string) (o options, err error) {
	flags := flag.NewFlagSet("cluster", flag.ContinueOnError)
	flags.IntVar(&o.size, "size", 100, "`bytes` of a record's value")
	flags.IntVar(&o.rate, "rate", -1, "records a `second`, 0: as many as are acknowledged; default: 50000, with -produce 1000")
	flags.DurationVar(&o.phase, "phase", 5*time.Second, "how `long` the load runs before the kill, while the process is down, and after it has caught up")
	flags.DurationVar(&o.timeout, "timeout", 3*time.Minute, "how `long` the drill may take")
	flags.BoolVar(&o.keep, "keep", false, "keep the directories of the nodes")
	node := flags.Int("node", 0, "run one node with this `id`; default: the whole drill")
	flags.StringVar(&o.listen, "listen", "", "`address` at which other nodes reach this one, as 127.0.0.1:7401")
	flags.StringVar(&o.dir, "dir", "", "`directory` of the node")
	join := flags.String("join", "", "`addresses` of nodes of the cluster, with commas")
	bootstrap := flags.String("bootstrap", "", "`ids` of the nodes that form the cluster together, with commas; default: the first one forms it, others join")
	flags.BoolVar(&o.topic, "topic", false, "create the topic, as soon as there are three nodes")
	flags.BoolVar(&o.produce, "produce", false, "write numbered records; implies -topic")
	flags.BoolVar(&o.consume, "consume", false, "read all records and check their order")
	flags.BoolVar(&o.log, "log", false, "print what the library logs, to standard error")
	flags.BoolVar(&o.lifeline, "lifeline", false, "end when standard input does, as the drill's processes")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return o, err
		}
		return o, errUsage
	}
	o.node = int32(*node)
	switch {
	case o.rate >= 0:
	case o.node == 0:
		o.rate = drillRate
	default:
		o.rate = handRate
	}
	if *join != "" {
		o.join = strings.Split(*join, ",")
	}
	if *bootstrap != "" {
		for _, s := range strings.Split(*bootstrap, ",") {
			id, err := strconv.ParseInt(s, 10, 32)
			if err != nil {
				return o, usage("-bootstrap %q is no list of node ids", *bootstrap)
			}
			o.bootstrap = append(o.bootstrap, int32(id))
		}
	}
	return o, o.check(flags.Args())
}

// Records a second, unless asked for otherwise: enough to see a dip, and below what
// a small machine can do.
const (
	drillRate = 50_000
	handRate  = 1_000
)

// The bounds of a record's value: what the writer puts into it, and far below
// max.message.bytes.
const (
	sizeMin = 32
	sizeMax = 64 << 10
)

func (o *options) check(rest []string) error {
	switch {
	case len(rest) > 0:
		return usage("unexpected argument %q", rest[0])
	case o.size < sizeMin || o.size > sizeMax:
		return usage("-size %d, allowed is %d to %d", o.size, sizeMin, sizeMax)
	case o.node < 0:
		return usage("-node %d, allowed is 1 or more", o.node)
	case o.node == 0 && (o.listen != "" || o.dir != "" || len(o.join)+len(o.bootstrap) > 0 || o.topic || o.produce || o.consume || o.log || o.lifeline):
		return usage("-listen, -dir, -join, -bootstrap, -topic, -produce, -consume, -log and -lifeline need -node")
	case o.node == 0 && (o.phase < 100*time.Millisecond || o.phase > 10*time.Minute):
		return usage("-phase %v, allowed is 100ms to 10m", o.phase)
	case o.node > 0 && (o.listen == "" || o.dir == ""):
		return usage("-node needs -listen and -dir")
	}
	return nil
}

func usage(format string, args ...any) error {
	fmt.Fprintf(os.Stderr, "cluster: "+format+"\n", args...)
	return errUsage
}
