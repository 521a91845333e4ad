package replication

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/billetlog/billet/internal/batch"
	"github.com/billetlog/billet/internal/vfs"
)

// The crash loop: a child process produces with all its might and says on its standard output what was acknowledged; the parent kills it
// with SIGKILL at a random moment, starts the next one on the same directory, which sends again what had no answer, and at
// last reads the log: every sequence once, in order, at the offset that was acknowledged.

const (
	killDirEnv   = "BILLET_TEST_KILL_DIR"   // set: this process is the child
	killStartEnv = "BILLET_TEST_KILL_START" // the next sequence of each partition
	killParts    = 3                        // the last one is under fsync interval: a killed process loses nothing there either
)

func killOpen(dir string) (*Host, *Controller, error) {
	identity, err := identify(vfs.OS, dir, 1)
	if err != nil {
		return nil, nil, err
	}
	h, err := OpenHost(HostConfig{Dir: dir, Node: identity, JournalBytes: 2 << 20, TickInterval: 50 * time.Millisecond, RetentionCheckInterval: time.Hour})
	if err != nil {
		return nil, nil, err
	}
	c, err := OpenController(context.Background(), h)
	if err != nil {
		return nil, nil, err
	}
	for i := range killParts {
		config := map[string]string{"segment.bytes": "1048576"}
		if i == killParts-1 {
			config["billet.fsync"], config["flush.ms"] = "interval", "50"
		}
		name := fmt.Sprint("t", i)
		if _, ok := c.Topic(name); ok {
			continue
		}
		if _, err := c.CreateTopic(context.Background(), TopicSpec{Name: name, Partitions: 1, Config: config}); err != nil {
			return nil, nil, err
		}
	}
	return h, c, nil
}

// killBatch is the batch of one producer with the given sequence: now and then a large one.
func killBatch(seq int) (batch.Batch, error) {
	size := 20
	if seq%17 == 0 {
		size = 80 << 10
	}
	var b batch.Builder
	b.Reset(batch.BuilderOptions{HasProducer: true, ProducerID: 77, ProducerEpoch: 0, BaseSequence: int32(seq)})
	b.Append(time.Now().UnixMilli(), nil, fmt.Appendf(nil, "%d %s", seq, strings.Repeat("x", size)), nil)
	return b.Finish()
}

// TestKillChild is no test: it is what the killed process does.
func TestKillChild(t *testing.T) {
	dir := os.Getenv(killDirEnv)
	if dir == "" {
		t.Skip("runs as a child of TestCrashKill")
	}
	_, c, err := killOpen(dir)
	if err != nil {
		fmt.Println("error", err)
		os.Exit(3)
	}
	starts := strings.Split(os.Getenv(killStartEnv), ",")
	var out sync.Mutex
	var wg sync.WaitGroup
	for i := range killParts {
		next, _ := strconv.Atoi(starts[i])
		p, err := c.Partition(fmt.Sprint("t", i), 0)
		if err == nil {
			err = p.Writable(context.Background())
		}
		if err != nil {
			fmt.Println("error", err)
			os.Exit(3)
		}
		wg.Go(func() { killProduce(p, i, next, &out) })
	}
	wg.Wait()
}

func killProduce(p *Partition, i, next int, out *sync.Mutex) {
	flight := make(chan struct{}, 8)
	for {
		b, err := killBatch(next)
		if err != nil {
			fmt.Println("error", err)
			os.Exit(3)
		}
		seq := next
		next++
		flight <- struct{}{}
		p.Append(b, AppendOptions{Acks: AcksAll}, func(r AppendResult) {
			out.Lock()
			defer out.Unlock()
			if r.Err != nil {
				fmt.Println("error", r.Err)
				os.Exit(3)
			}
			fmt.Println("ack", i, seq, r.Offset)
			<-flight
		})
	}
}

func TestCrashKill(t *testing.T) {
	rounds := 5
	if os.Getenv("BILLET_SLOW") != "" {
		rounds = 200
	}
	if testing.Short() {
		rounds = 2
	}
	dir := t.TempDir()
	h, c, err := killOpen(dir) // the topics are there before the first kill
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if err := h.Close(testContext(t)); err != nil {
		t.Fatal(err)
	}
	acked := make([]map[int]int64, killParts)
	for i := range acked {
		acked[i] = map[int]int64{}
	}
	for round := range rounds {
		killRound(t, dir, round, acked)
	}
	h, c, err = killOpen(dir)
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for i := range killParts {
		p, err := c.Partition(fmt.Sprint("t", i), 0)
		if err != nil {
			t.Fatal(err)
		}
		writable(t, p)
		got := values(t, p, 0)
		for at, v := range got {
			seq, err := strconv.Atoi(v[:strings.IndexByte(v, ' ')])
			if err != nil || seq != at {
				t.Fatalf("partition %d: offset %d holds sequence %s", i, at, v[:min(len(v), 12)])
			}
		}
		for seq, at := range acked[i] {
			if at != int64(seq) || at >= int64(len(got)) {
				t.Fatalf("partition %d: sequence %d was acknowledged at %d, the log has %d records", i, seq, at, len(got))
			}
		}
		total += len(got)
	}
	t.Logf("%d kills, %d records", rounds, total)
	c.Close()
	if err := h.Close(testContext(t)); err != nil {
		t.Error(err)
	}
}

// killRound runs one child until it is killed, and notes what it acknowledged.
func killRound(t *testing.T, dir string, round int, acked []map[int]int64) {
	t.Helper()
	starts := make([]string, killParts)
	for i := range acked {
		starts[i] = fmt.Sprint(len(acked[i])) // acknowledged in order, so this is the first without an answer
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestKillChild$")
	cmd.Env = append(os.Environ(), killDirEnv+"="+dir, killStartEnv+"="+strings.Join(starts, ","))
	cmd.Stderr = os.Stderr
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var timer *time.Timer
	defer func() {
		if timer != nil {
			timer.Stop()
		}
	}()
	lines := bufio.NewScanner(pipe)
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		switch {
		case len(f) == 4 && f[0] == "ack":
			part, _ := strconv.Atoi(f[1])
			seq, _ := strconv.Atoi(f[2])
			at, err := strconv.ParseInt(f[3], 10, 64)
			if err != nil {
				continue // cut by the kill
			}
			if seq != len(acked[part]) {
				t.Fatalf("round %d: partition %d acknowledged sequence %d after %d", round, part, seq, len(acked[part])-1)
			}
			acked[part][seq] = at
			if timer == nil {
				timer = time.AfterFunc(time.Duration(rand.IntN(150))*time.Millisecond, func() { _ = cmd.Process.Kill() })
			}
		case len(f) > 0 && f[0] == "error":
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			t.Fatalf("round %d: the child: %s", round, lines.Text())
		}
	}
	_ = cmd.Wait()
	if timer == nil {
		t.Fatalf("round %d: the child ended before its first acknowledgement", round)
	}
}
