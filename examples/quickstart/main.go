// Quickstart logs every line of Go's standard library, reads them back at the
// same time from another goroutine, and checks each against its file. Then it
// closes the log, opens it again, goes on, and reads everything once more.
//
//	go run ./examples/quickstart                  the standard library's source
//	go run ./examples/quickstart -in FILE         the lines of a file
//	some program | go run ./examples/quickstart -in -
//
// The key of a record is the file's name, its value the line without its end, and
// the header "line" its number. A key's records are in one partition, in order;
// so a file's lines are.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"time"

	"github.com/billetlog/billet"
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
		fmt.Fprintln(os.Stderr, "quickstart: interrupted;", err)
		os.Exit(1)
	default:
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

// errUsage says that the command line is wrong and the user was told.
var errUsage = errors.New("usage")

// options are the command line.
type options struct {
	in, dir string
	fsync   billet.Fsync
}

func parseOptions(args []string) (options, error) {
	flags := flag.NewFlagSet("quickstart", flag.ContinueOnError)
	in := flags.String("in", "", "log the lines of this `file`, or of standard input with -; default: the standard library's source")
	dir := flags.String("dir", "", "keep the log in this `directory`, going on with what is there; default: a new temporary one")
	fsync := flags.String("fsync", string(billet.FsyncCommit), "when records reach the disk: commit (before they are acknowledged) or interval (soon after)")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return options{}, err
		}
		return options{}, errUsage
	}
	o := options{in: *in, dir: *dir, fsync: billet.Fsync(*fsync)}
	if flags.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "quickstart: unexpected argument %q; a file is given with -in\n", flags.Arg(0))
		return o, errUsage
	}
	if o.fsync != billet.FsyncCommit && o.fsync != billet.FsyncInterval {
		fmt.Fprintf(os.Stderr, "quickstart: -fsync %q, allowed is commit or interval\n", *fsync)
		return o, errUsage
	}
	return o, nil
}

// run does everything; see the package comment.
func run(ctx context.Context, args []string) (err error) {
	o, err := parseOptions(args)
	if err != nil {
		return err
	}
	src, err := openSource(ctx, o.in)
	if err != nil {
		return err
	}
	if o.dir == "" {
		if o.dir, err = os.MkdirTemp("", "billet-quickstart-"); err != nil {
			return err
		}
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w\nthe log is kept in %s", err, o.dir)
		}
	}()
	fmt.Printf("logging    %s\n", src.describe())
	fmt.Printf("to         %s, fsync: %s\n", o.dir, o.fsync)

	first, err := fill(ctx, o, src)
	if err != nil {
		return err
	}
	first.print()
	second, err := reopen(ctx, o, src, first)
	if err != nil {
		return err
	}
	second.print(o.dir)
	return nil
}

// open opens the log. What an operator should know goes to standard error.
func open(dir string) (*billet.Log, error) {
	return billet.Open(billet.Config{
		Dir:    dir,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
}

const (
	topic      = "lines"
	partitions = 4
)

// ensureTopic creates the topic unless an earlier run did, and sets its fsync
// policy.
func ensureTopic(ctx context.Context, log *billet.Log, fsync billet.Fsync) error {
	err := log.CreateTopic(ctx, billet.Topic{
		Name:       topic,
		Partitions: partitions,
		Retention:  -1, // for ever
		Fsync:      fsync,
		Config:     map[string]string{"max.message.bytes": fmt.Sprint(lineBytesMax + 1<<10)},
	})
	if !errors.Is(err, billet.ErrTopicExists) {
		return err
	}
	return log.AlterTopic(ctx, topic, billet.Alter{Set: map[string]string{"billet.fsync": string(fsync)}})
}

// ends returns the offset that the next record of each partition gets.
func ends(ctx context.Context, log *billet.Log) ([]int64, error) {
	info, err := log.Topic(ctx, topic)
	if err != nil {
		return nil, err
	}
	var out []int64
	for _, p := range info.Partitions {
		if p.Err != nil {
			return nil, fmt.Errorf("partition %d: %w", p.Partition, p.Err)
		}
		out = append(out, p.End)
	}
	return out, nil
}

// filled is what the first part did.
type filled struct {
	source         source
	files          int
	begin, end     []int64 // offsets by partition: the run's first, and after its last
	records, bytes int64
	produce        time.Duration // until the last acknowledgement
	consume        time.Duration // until the last record was checked
}

// fill produces the source and consumes it at the same time.
func fill(ctx context.Context, o options, src source) (f filled, err error) {
	log, err := open(o.dir)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	if err := ensureTopic(ctx, log, o.fsync); err != nil {
		return f, err
	}
	if f.begin, err = ends(ctx, log); err != nil {
		return f, err
	}
	p := newProgress("logged")
	defer p.stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	start := time.Now()
	read := newReading(src, f.begin, p)
	consumed := make(chan error, 1)
	go func() {
		err := read.run(ctx, log)
		if err != nil {
			cancel(err) // producing on would be in vain
		}
		consumed <- err
	}()
	w, err := produce(ctx, log, src, f.begin, p)
	f.produce = time.Since(start)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		cancel(err)
		<-consumed
		return f, err
	}
	read.expect(w.produced)
	if err := <-consumed; err != nil {
		return f, err
	}
	f.consume = time.Since(start)
	f.source, f.files, f.end, f.records, f.bytes = src, read.files, w.next, read.records, read.bytes
	return f, nil
}

// reopened is what the second part did.
type reopened struct {
	filled
	open, close time.Duration
	added       []billet.Offset
}

// reopen opens the log again, writes a few more records, and reads everything
// that the run wrote once more, alone.
func reopen(ctx context.Context, o options, src source, f filled) (r reopened, err error) {
	r.filled = f
	start := time.Now()
	log, err := open(o.dir)
	if err != nil {
		return r, fmt.Errorf("open again: %w", err)
	}
	r.open = time.Since(start)
	defer func() {
		start := time.Now()
		err = errors.Join(err, log.Close())
		r.close = time.Since(start)
	}()
	for i, end := range f.end {
		p, err := log.Partition(ctx, topic, int32(i))
		if err != nil {
			return r, err
		}
		if p.EndOffset() != end {
			return r, fmt.Errorf("partition %d ends at offset %d after opening again, it ended at %d before", i, p.EndOffset(), end)
		}
	}
	if r.added, err = addMore(ctx, log, f.end); err != nil {
		return r, err
	}
	p := newProgress("")
	defer p.stop()
	start = time.Now()
	read := newReading(src, f.begin, p)
	read.end = f.end
	read.expect(f.records)
	if err := read.run(ctx, log); err != nil {
		return r, fmt.Errorf("reading again: %w", err)
	}
	r.consume = time.Since(start)
	return r, nil
}

// addMore writes one record a partition, each durable when Produce returns, and
// reads it back. Offsets must go on at ends.
func addMore(ctx context.Context, log *billet.Log, ends []int64) ([]billet.Offset, error) {
	var added []billet.Offset
	for i, missing := 0, len(ends); missing > 0; i++ {
		key := fmt.Appendf(nil, "after reopening %d", i)
		n := billet.PartitionForKey(key, len(ends))
		at := billet.Offset{Partition: int32(n), Offset: ends[n]}
		if containsPartition(added, at.Partition) {
			continue
		}
		missing--
		got, err := log.Produce(ctx, billet.Record{Topic: topic, Key: key, Value: []byte("one more")})
		if err != nil {
			return nil, err
		}
		if got != at {
			return nil, fmt.Errorf("a record after opening again went to %d/%d, want %d/%d", got.Partition, got.Offset, at.Partition, at.Offset)
		}
		p, err := log.Partition(ctx, topic, at.Partition)
		if err != nil {
			return nil, err
		}
		records, err := p.Read(ctx, at.Offset, 1)
		if err != nil {
			return nil, err
		}
		if len(records) != 1 || string(records[0].Key) != string(key) {
			return nil, fmt.Errorf("the record at %d/%d cannot be read back", at.Partition, at.Offset)
		}
		added = append(added, got)
	}
	return added, nil
}

func containsPartition(offsets []billet.Offset, partition int32) bool {
	for _, o := range offsets {
		if o.Partition == partition {
			return true
		}
	}
	return false
}
