package billet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/billetlog/billet/internal/history"
	"github.com/billetlog/billet/transport"
)

// The harness: five nodes in one process, over a network and on disks in memory, under producers and consumers, with faults that are drawn from a seed.
// What the log told everybody is held against what it contains in the end.

const (
	harnessSeedEnv   = "BILLET_HARNESS_SEED"   // this seed alone
	harnessForEnv    = "BILLET_HARNESS_FOR"    // one seed after the other for that long, beginning with the one given or a random one
	harnessRoundsEnv = "BILLET_HARNESS_ROUNDS" // rounds of each seed

	harnessWindow = 4 * time.Second // of faults in a round
	// After the faults of a round the cluster must take records again and be whole within this time, on a machine that does much else.
	harnessHealMax = 3 * time.Minute
	harnessSlow    = 15 * time.Second // what takes longer is told
)

// TestHarness runs seeds: a short one in each run of the tests, and as many as the environment says.
func TestHarness(t *testing.T) {
	seed, rounds := uint64(1), 1
	window := harnessWindow / 2
	if s := os.Getenv(harnessSeedEnv); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatalf("%s: %v", harnessSeedEnv, err)
		}
		rounds, window = 2, harnessWindow
	}
	if s := os.Getenv(harnessRoundsEnv); s != "" {
		var err error
		if rounds, err = strconv.Atoi(s); err != nil {
			t.Fatalf("%s: %v", harnessRoundsEnv, err)
		}
	}
	s := os.Getenv(harnessForEnv)
	if s == "" {
		runHarness(t, seed, rounds, window)
		return
	}
	lasts, err := time.ParseDuration(s)
	if err != nil {
		t.Fatalf("%s: %v", harnessForEnv, err)
	}
	if os.Getenv(harnessSeedEnv) == "" {
		seed = uint64(time.Now().UnixNano()) % 1_000_000
	}
	began, failed, first := time.Now(), 0, seed
	for ; time.Since(began) < lasts; seed++ {
		if !t.Run(fmt.Sprint(seed), func(t *testing.T) { runHarness(t, seed, rounds, harnessWindow) }) {
			failed++
		}
	}
	fmt.Fprintf(os.Stderr, "harness: %d seeds from %d on in %v, %d failed\n", seed-first, first, time.Since(began).Round(time.Second), failed)
}

// TestScheduleIsTheSeeds draws the same schedule twice, and others from other seeds, and looks at the rules that schedules keep.
func TestScheduleIsTheSeeds(t *testing.T) {
	kinds := map[faultKind]bool{}
	for seed := range uint64(200) {
		a, b := drawRounds(seed, 3, harnessWindow), drawRounds(seed, 3, harnessWindow)
		if fmt.Sprint(a) != fmt.Sprint(b) {
			t.Fatalf("seed %d draws differently:\n%v\n%v", seed, a, b)
		}
		if fmt.Sprint(a) == fmt.Sprint(drawRounds(seed+1, 3, harnessWindow)) {
			t.Errorf("seeds %d and %d draw the same", seed, seed+1)
		}
		for _, r := range a {
			lost := 0
			for _, f := range r.faults {
				kinds[f.kind] = true
				if f.kind.takesDisk() {
					lost++
				}
				if f.at < 0 || f.at > r.window {
					t.Errorf("seed %d: %v is outside of its round", seed, f)
				}
			}
			if lost > 1 {
				t.Errorf("seed %d takes %d disks away at once:\n%v", seed, lost, r)
			}
		}
	}
	if len(kinds) != len(faultWeights) {
		t.Errorf("only %d of %d kinds are ever drawn", len(kinds), len(faultWeights))
	}
}

// harness is one cluster and its history.
type harness struct {
	t       testing.TB
	seed    uint64
	net     *transport.MemoryNetwork
	nodes   []*harnessNode
	history *history.History
	lives   sync.WaitGroup
	tasks   sync.WaitGroup // changes of the cluster under way
	began   time.Time
	paused  atomic.Bool // producers rest
	open    atomic.Int64
	damaged atomic.Bool // bytes were changed in this round
	logFile *os.File

	mu     sync.Mutex
	notes  []string
	errors map[string]int
	dumped bool
	shards map[uint64]bool
	harmed map[int32]bool // nodes whose disk was taken away in this round
}

// runHarness runs one seed.
func runHarness(t *testing.T, seed uint64, rounds int, window time.Duration) {
	before := goleak.IgnoreCurrent()
	schedule := drawRounds(seed, rounds, window)
	// A panic leaves no time for the test's own log.
	fmt.Fprintf(os.Stderr, "harness: seed %d, again with: %s=%d %s=%d go test -run '^TestHarness$' .\n", seed, harnessSeedEnv, seed, harnessRoundsEnv, rounds)
	h := &harness{t: t, seed: seed, net: transport.NewMemoryNetwork(seed), history: history.New(), began: time.Now(),
		errors: map[string]int{}, harmed: map[int32]bool{}, shards: map[uint64]bool{}}
	var err error
	if h.logFile, err = harnessLogFile(); err != nil {
		t.Fatal(err)
	}
	h.paused.Store(true)
	for id := int32(1); id <= harnessNodes; id++ {
		n := &harnessNode{h: h, id: id}
		n.mu.disk = harnessDisk()
		n.mu.read = [2]map[history.Partition]int64{{}, {}}
		h.nodes = append(h.nodes, n)
		n.start()
	}
	ok := h.form()
	for i := 0; ok && i < len(schedule); i++ {
		ok = h.play(i, schedule[i])
	}
	if last := drawRounds(^seed, 1, window)[0]; ok && seed%2 == 0 && rounds > 0 {
		h.note("all nodes close in the middle of\n%v", last)
		h.paused.Store(false)
		last.window /= 2
		h.inject(last)
	}
	h.end()
	if err := goleak.Find(before); err != nil && ok {
		h.history.Violate("goroutines are left after Close: %w", err)
	}
	if h.logFile != nil {
		_ = h.logFile.Close()
	}
	if err := h.history.Err(); err != nil || !ok {
		h.report(schedule, err)
	}
	t.Logf("seed %d: %d acknowledged in %v, errors %v", seed, h.history.Acknowledged(), time.Since(h.began).Round(time.Millisecond), h.errors)
}

// report prints all that is needed to play the seed again.
func (h *harness) report(schedule []round, err error) {
	h.t.Log("what happened:\n" + h.story())
	for i, r := range schedule {
		h.t.Logf("round %d:\n%v", i+1, r)
	}
	h.t.Errorf("seed %d: %v\nrun it again with %s=%d %s=%d go test -run '^TestHarness$' .", h.seed, err,
		harnessSeedEnv, h.seed, harnessRoundsEnv, len(schedule))
}

// form waits for the cluster and makes the topics.
func (h *harness) form() bool {
	ctx, cancel := context.WithTimeout(context.Background(), harnessHealMax)
	defer cancel()
	if !h.await(ctx, "all nodes are open", h.allOpen) {
		return false
	}
	config := map[string]string{"segment.bytes": "131072", "retention.ms": "-1"}
	short := map[string]string{"segment.bytes": "65536", "retention.bytes": "200000"}
	wide := maps.Clone(config)
	wide["min.insync.replicas"] = fmt.Sprint(1 + h.seed%3)
	for _, topic := range []Topic{
		{Name: harnessMainTopic, Partitions: harnessMainParts, Replicas: 3, Config: config},
		{Name: harnessWideTopic, Partitions: harnessWideParts, Replicas: 3, Config: wide},
		{Name: harnessShortTopic, Replicas: 3, Config: short},
	} {
		for {
			err := h.nodes[0].log().CreateTopic(ctx, topic)
			if err == nil || errors.Is(err, ErrTopicExists) {
				break
			}
			if ctx.Err() != nil {
				h.history.Violate("create %s: %w", topic.Name, err)
				return false
			}
		}
	}
	return h.await(ctx, "the new cluster is whole", h.whole)
}

// play runs one round and checks what is left.
func (h *harness) play(i int, r round) bool {
	h.note("round %d begins", i+1)
	clear(h.harmed)
	h.paused.Store(false)
	h.inject(r)
	h.note("round %d: its faults are over", i+1)
	healed := time.Now()
	h.heal()
	ctx, cancel := context.WithTimeout(context.Background(), harnessHealMax)
	defer cancel()
	if !h.await(ctx, "all nodes are open", h.allOpen) || !h.activate(ctx) || !h.takesRecords(ctx) {
		return false
	}
	h.paused.Store(true)
	if !h.await(ctx, "all records are answered", h.allAnswered) || !h.await(ctx, "the cluster is whole", h.whole) ||
		!h.await(ctx, "readers are at the end", h.allRead) {
		return false
	}
	if h.damaged.Swap(false) && !h.await(ctx, "damage is found and replaced", h.undamaged) {
		return false
	}
	h.compare()
	h.note("round %d is checked", i+1)
	if took := time.Since(healed); took > harnessSlow {
		h.t.Logf("seed %d: round %d took %v to be whole again:\n%s", h.seed, i+1, took.Round(time.Millisecond), h.story())
	}
	return true
}

// story is what happened so far.
func (h *harness) story() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.notes, "\n")
}

// end closes all nodes, at the same time.
func (h *harness) end() {
	var wg sync.WaitGroup
	for _, n := range h.nodes {
		wg.Go(n.shut)
	}
	wg.Wait()
	h.tasks.Wait() // some may have started a node
	for _, n := range h.nodes {
		n.shut()
		n.mend()
	}
	h.lives.Wait()
	_ = h.net.Close()
}

// await waits until a condition, which says what it lacks, holds.
func (h *harness) await(ctx context.Context, what string, lacks func() error) bool {
	began := time.Now()
	for {
		err := lacks()
		if err == nil {
			h.note("%s after %v", what, time.Since(began).Round(time.Millisecond))
			return true
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			h.history.Violate("not within %v: %s: %w", harnessHealMax, what, err)
			h.dumpGoroutines(what)
			return false
		}
	}
}

func (h *harness) note(format string, args ...any) {
	line := fmt.Sprintf("%8s ", time.Since(h.began).Round(time.Millisecond)) + fmt.Sprintf(format, args...)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.notes = append(h.notes, line)
	if h.logFile != nil {
		fmt.Fprintln(h.logFile, "HARNESS", line)
	}
}

// count notes an error that a producer got.
func (h *harness) count(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, known := range []error{ErrTimeout, ErrClosed, ErrPartitionFailed, ErrDiskFull, ErrNotLeader, context.Canceled, ErrOutOfOrderSequence, ErrAmbiguous} {
		if errors.Is(err, known) {
			h.errors[known.Error()]++
			return
		}
	}
	h.errors[err.Error()]++
}

// dumpGoroutines writes all stacks to standard error, once.
func (h *harness) dumpGoroutines(why string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.dumped || os.Getenv("BILLET_HARNESS_STACKS") == "" {
		return
	}
	h.dumped = true
	b := make([]byte, 16<<20)
	fmt.Fprintf(os.Stderr, "harness: %s\n%s\n", why, b[:runtime.Stack(b, true)])
}
