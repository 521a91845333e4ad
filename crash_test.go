package billet

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// crashConfig is how both parent and child open the log.
func crashConfig(dir string) Config {
	return Config{Dir: dir, JournalBytes: 1 << 20, RetentionCheckInterval: time.Hour, OpenTimeout: 20 * time.Second}
}

// crashRounds is how often a process is killed.
func crashRounds() int {
	switch {
	case os.Getenv("BILLET_SLOW") != "":
		return 60
	case testing.Short():
		return 2
	}
	return 3
}

const crashPartitions = 3

func crashTopic() Topic {
	return Topic{Name: "t", Partitions: crashPartitions, Retention: -1, Config: map[string]string{"segment.bytes": "131072"}}
}

// childProduce writes until it is killed: by a Producer with keys and compression, and by Produce, while it reads. It prints a line for every
// acknowledged record, "acked PARTITION OFFSET VALUE", and before that, "seen ..." for what the consumer got.
func childProduce(dir, round string) {
	ctx := context.Background()
	l, err := Open(crashConfig(dir))
	if err != nil {
		childFail("open", err)
	}
	var out childPrinter
	n, _ := strconv.Atoi(round)
	p, err := l.NewProducer(ProducerConfig{Compression: Compression(n % 5), BatchBytes: 8 << 10, BufferBytes: 256 << 10})
	if err != nil {
		childFail("producer", err)
	}
	c, err := l.NewConsumer(ConsumerConfig{Topics: []string{"t"}, StartAt: Latest})
	if err != nil {
		childFail("consumer", err)
	}
	go func() {
		for {
			records, err := c.Poll(ctx)
			if err != nil {
				childFail("poll", err)
			}
			var lines strings.Builder
			for _, r := range records {
				name, _, _ := strings.Cut(string(r.Value), " ")
				fmt.Fprintf(&lines, "seen %d %d %s\n", r.Partition, r.Offset, name)
			}
			out.print(lines.String())
		}
	}()
	for w := range 2 {
		go func() {
			writer := fmt.Sprintf("r%s-s%d", round, w)
			for i := 0; ; i++ {
				at, err := l.Produce(ctx, Record{Topic: "t", Key: []byte(writer), Value: ledgerValue(writer, i, 20+i%13*100)})
				if err != nil {
					childFail("produce", err)
				}
				out.print(fmt.Sprintf("acked %d %d %s/%d\n", at.Partition, at.Offset, writer, i))
			}
		}()
	}
	for i := 0; ; i++ {
		for k := range 7 {
			writer := fmt.Sprintf("r%s-a%d", round, k)
			err := p.Produce(ctx, Record{Topic: "t", Key: []byte(writer), Value: ledgerValue(writer, i, 50+i%17*50)}, func(at Offset, err error) {
				if err != nil {
					childFail("async", err)
				}
				out.print(fmt.Sprintf("acked %d %d %s/%d\n", at.Partition, at.Offset, writer, i))
			})
			if err != nil {
				childFail("produce", err)
			}
		}
	}
}

// TestCrashProducer kills a process that writes and reads, again and again, at random moments. What it had been told was stored, and what it had
// read, is there afterwards: at its offset, once, and in the order of its key.
func TestCrashProducer(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	defer cancel()
	dir := t.TempDir()
	l := openTest(t, crashConfig(dir))
	if err := errors.Join(l.CreateTopic(ctx, crashTopic()), l.Close()); err != nil {
		t.Fatal(err)
	}
	g := newLedger()
	rounds := crashRounds()
	acked, seen := 0, 0
	for round := range rounds {
		a, s := crashRound(t, dir, round, g)
		acked, seen = acked+a, seen+s
		// Now and then a clean life in between; mostly one crash follows the other.
		if round%4 == 3 || round == rounds-1 {
			l := openTest(t, crashConfig(dir))
			g.check(ctx, t, l, "t")
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	l = openTest(t, crashConfig(dir))
	records := g.check(ctx, t, l, "t")
	t.Logf("%d kills: %d records, %d acknowledged, %d read before a kill", rounds, records, acked, seen)
}

// crashRound runs a child and kills it some time after its first answer.
func crashRound(t *testing.T, dir string, round int, g *ledger) (acked, seen int) {
	t.Helper()
	c := startChild(t, "produce", dir, round)
	defer c.kill()
	var timer *time.Timer
	for c.lines.Scan() {
		kind, rest, _ := strings.Cut(c.lines.Text(), " ")
		if kind == "error" {
			t.Fatalf("round %d: the child: %s", round, rest)
		}
		f := strings.Fields(rest)
		if len(f) != 3 || strings.Count(f[2], "/") != 1 {
			continue // cut by the kill
		}
		partition, err1 := strconv.Atoi(f[0])
		offset, err2 := strconv.ParseInt(f[1], 10, 64)
		if err1 != nil || err2 != nil {
			t.Fatalf("round %d: %q", round, c.lines.Text())
		}
		if kind == "seen" {
			seen++
		} else {
			acked++
		}
		g.confirm(t, int32(partition), offset, f[2])
		if timer == nil {
			timer = time.AfterFunc(time.Duration(rand.IntN(150))*time.Millisecond, func() { _ = c.cmd.Process.Kill() })
			defer timer.Stop()
		}
	}
	if timer == nil {
		t.Fatalf("round %d: the child ended before its first answer", round)
	}
	return acked, seen
}

// confirm is ack for what may have been acknowledged before: then it must have been the same.
func (g *ledger) confirm(t *testing.T, partition int32, offset int64, name string) {
	t.Helper()
	g.mu.Lock()
	before, known := g.acked[partition][offset]
	g.mu.Unlock()
	if !known {
		g.ack(partition, offset, name)
	} else if before != name {
		t.Fatalf("partition %d offset %d was %s and is %s", partition, offset, before, name)
	}
}

// childTopics changes topics until it is killed. It prints what it begins, "try TOPIC WHAT N", and what is done, "done TOPIC WHAT N". In the end a
// topic is deleted in one of three cases.
func childTopics(dir, round string) {
	ctx := context.Background()
	l, err := Open(crashConfig(dir))
	if err != nil {
		childFail("open", err)
	}
	for i := 0; ; i++ {
		name := fmt.Sprintf("r%s.%d", round, i)
		step := func(what string, n int, change func() error) {
			fmt.Println("try", name, what, n)
			if err := change(); err != nil {
				childFail(what+" "+name, err)
			}
			fmt.Println("done", name, what, n)
		}
		step("partitions", 1, func() error { return l.CreateTopic(ctx, Topic{Name: name, Retention: time.Hour}) })
		for n := 2; n <= 4; n++ {
			step("partitions", n, func() error { return l.AddPartitions(ctx, name, n) })
			step("flush", 1000+n, func() error {
				return l.AlterTopic(ctx, name, Alter{Set: map[string]string{"flush.ms": strconv.Itoa(1000 + n)}})
			})
			step("records", n, func() error {
				_, err := l.ProduceBatch(ctx, name, int32(n-1), []Record{{Value: ledgerValue(name, n, 10)}})
				return err
			})
		}
		if i%3 == 0 {
			step("deleted", 1, func() error { return l.DeleteTopic(ctx, name) })
		}
	}
}

// crashedTopic is what is known of a topic: of each property, the value that was reached for sure and the one that was tried.
type crashedTopic struct{ done, tried map[string]int }

// TestCrashTopics kills a process that creates, alters, extends and deletes topics. Each change has happened or not, never by half, and those
// that were acknowledged have.
func TestCrashTopics(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	defer cancel()
	dir := t.TempDir()
	rounds := crashRounds()
	count := 0
	for round := range rounds {
		topics := crashTopicsRound(t, dir, round)
		count += len(topics)
		l := openTest(t, crashConfig(dir))
		for name, k := range topics {
			checkCrashedTopic(ctx, t, l, name, k)
		}
		dropTopics(ctx, t, l)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d kills, %d topics", rounds, count)
}

func crashTopicsRound(t *testing.T, dir string, round int) map[string]*crashedTopic {
	t.Helper()
	topics := map[string]*crashedTopic{}
	c := startChild(t, "topics", dir, round)
	defer c.kill()
	var timer *time.Timer
	for c.lines.Scan() {
		f := strings.Fields(c.lines.Text())
		if len(f) > 0 && f[0] == "error" {
			t.Fatalf("round %d: the child: %s", round, c.lines.Text())
		}
		if len(f) != 4 {
			continue // cut by the kill
		}
		k := topics[f[1]]
		if k == nil {
			k = &crashedTopic{map[string]int{}, map[string]int{}}
			topics[f[1]] = k
		}
		n, err := strconv.Atoi(f[3])
		if err != nil {
			t.Fatal(err)
		}
		k.tried[f[2]] = n
		if f[0] == "done" {
			k.done[f[2]] = n
		}
		if timer == nil {
			timer = time.AfterFunc(time.Duration(rand.IntN(200))*time.Millisecond, func() { _ = c.cmd.Process.Kill() })
			defer timer.Stop()
		}
	}
	if timer == nil {
		t.Fatalf("round %d: the child ended before it began", round)
	}
	return topics
}

func checkCrashedTopic(ctx context.Context, t *testing.T, l *Log, name string, k *crashedTopic) {
	t.Helper()
	info, err := l.Topic(ctx, name)
	if errors.Is(err, ErrUnknownTopic) {
		if k.done["partitions"] > 0 && k.tried["deleted"] == 0 {
			t.Fatalf("topic %s is gone: %+v", name, k)
		}
		return
	}
	if err != nil || k.done["deleted"] > 0 {
		t.Fatalf("topic %s: %v: %+v", name, err, k)
	}
	if n := len(info.Partitions); n != k.done["partitions"] && n != k.tried["partitions"] {
		t.Fatalf("topic %s has %d partitions: %+v", name, n, k)
	}
	for _, s := range info.Config {
		if s.Name != "flush.ms" {
			continue
		}
		if n, _ := strconv.Atoi(s.Value); n != k.done["flush"] && n != k.tried["flush"] && !(k.done["flush"] == 0 && s.Source == SourceDefault) {
			t.Fatalf("topic %s has flush.ms %d: %+v", name, n, k)
		}
	}
	for n := 2; n <= k.done["records"]; n++ {
		p, err := l.Partition(ctx, name, int32(n-1))
		if err != nil {
			t.Fatal(err)
		}
		got, err := p.Read(ctx, 0, 10)
		if err != nil || len(got) != 1 || string(got[0].Value) != string(ledgerValue(name, n, 10)) {
			t.Fatalf("topic %s partition %d: %d records, %v", name, n-1, len(got), err)
		}
	}
	// All of it works.
	for n := range info.Partitions {
		if _, err := l.ProduceBatch(ctx, name, int32(n), []Record{{}}); err != nil {
			t.Fatalf("topic %s partition %d: %v", name, n, err)
		}
	}
}

// dropTopics deletes all topics but internal ones, some at a time.
func dropTopics(ctx context.Context, t *testing.T, l *Log) {
	t.Helper()
	infos, err := l.Topics(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for _, info := range infos {
		if info.Internal {
			continue
		}
		wg.Go(func() {
			if err := l.DeleteTopic(ctx, info.Name); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}
