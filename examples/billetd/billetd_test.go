package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// patience bounds what takes a moment, on a machine with other work.
const patience = 2 * time.Minute

// buildBilletd builds the program.
func buildBilletd(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "billetd")
	if out, err := exec.Command("go", "build", "-o", path, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// process is a running billetd.
type process struct {
	cmd         *exec.Cmd
	kafka, http string
	output      *lockedBuffer
}

// lockedBuffer is what a process said.
type lockedBuffer struct {
	sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) add(line string) {
	b.Lock()
	defer b.Unlock()
	b.WriteString(line + "\n")
}

func (b *lockedBuffer) all() string {
	b.Lock()
	defer b.Unlock()
	return b.String()
}

// start runs the program until it says that it is open.
func start(t *testing.T, path string, args ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(path, append([]string{"-kafka", "127.0.0.1:0", "-http", "127.0.0.1:0"}, args...)...), output: &lockedBuffer{}}
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if p.cmd.ProcessState == nil {
			_ = p.cmd.Process.Kill()
			_ = p.cmd.Wait()
		}
	})
	open := make(chan string, 1)
	go func() {
		defer close(open)
		lines := bufio.NewScanner(stderr)
		for lines.Scan() {
			p.output.add(lines.Text())
			if strings.Contains(lines.Text(), "billetd is open") {
				open <- lines.Text()
			}
		}
	}()
	select {
	case line := <-open:
		for word := range strings.FieldsSeq(line) {
			if at, ok := strings.CutPrefix(word, "kafka="); ok {
				p.kafka = at
			}
			if at, ok := strings.CutPrefix(word, "http="); ok {
				p.http = at
			}
		}
	case <-time.After(patience):
	}
	if p.kafka == "" || p.http == "" {
		t.Fatalf("it did not open:\n%s", p.output.all())
	}
	return p
}

// stop sends a signal and returns the exit code.
func (p *process) stop(t *testing.T, s os.Signal) int {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- p.cmd.Wait() }()
	select {
	case <-done:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(patience):
		t.Fatalf("it did not end:\n%s", p.output.all())
		return -1
	}
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Body.Close() }()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(b)
}

// The program serves a client, tells how it is, ends in order, and goes on where it ended.
func TestBilletd(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and starts the program")
	}
	path, dir := buildBilletd(t), t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	p := start(t, path, "-dir", dir, "num.partitions=2")
	client, err := kgo.NewClient(kgo.SeedBrokers(p.kafka), kgo.DefaultProduceTopic("greetings"))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := kadm.NewClient(client).CreateTopic(ctx, -1, -1, nil, "greetings"); err != nil {
		t.Fatal(err)
	}
	if err := client.ProduceSync(ctx, kgo.StringRecord("hello"), kgo.StringRecord("world")).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if code, body := get(t, "http://"+p.http+"/healthz"); code != http.StatusOK {
		t.Errorf("health: %d %s", code, body)
	}
	if code, body := get(t, "http://"+p.http+"/readyz"); code != http.StatusOK {
		t.Errorf("ready: %d %s", code, body)
	}
	offsets := kadm.Offsets{}
	offsets.AddOffset("greetings", 0, 0, -1)
	offsets.AddOffset("greetings", 1, 0, -1)
	if err := kadm.NewClient(client).CommitAllOffsets(ctx, "readers", offsets); err != nil {
		t.Fatal(err)
	}
	_, body := get(t, "http://"+p.http+"/metrics")
	for _, line := range []string{`billet_partition_high_watermark{partition="0",topic="greetings"} `, `billet_partition_led{partition="1",topic="greetings"} 1`, "billet_disk_full 0", `billet_group_lag{group="readers"} 2`, `billet_group_committed_offset{group="readers",partition="1",topic="greetings"} 0`, "billet_groups 1", "billet_cluster_nodes 1",
		`billet_kafka_connections{listener="CLIENT"} `, `billet_kafka_request_seconds_count{api="CreateTopics"} 1`, `billet_kafka_connections_closed_total{cause="protocol",listener="CLIENT"} 0`,
		`billet_kafka_memory_bytes{of="requests"} 0`, `billet_kafka_produce_waits_total 0`, "go_goroutines "} {
		if !strings.Contains(body, line) {
			t.Errorf("metrics do not say %s", line)
		}
	}
	if code := p.stop(t, syscall.SIGTERM); code != exitOK {
		t.Fatalf("exit code %d:\n%s", code, p.output.all())
	}

	p = start(t, path, "-dir", dir)
	reader, err := kgo.NewClient(kgo.SeedBrokers(p.kafka), kgo.ConsumeTopics("greetings"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	for n := 0; n < 2; {
		fetches := reader.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		n += fetches.NumRecords()
	}
	if code := p.stop(t, os.Interrupt); code != exitOK {
		t.Fatalf("exit code %d:\n%s", code, p.output.all())
	}
}

// What cannot be said is answered with why, and with its own exit code.
func TestBilletdRefuses(t *testing.T) {
	var out, errs bytes.Buffer
	if code := run([]string{"-help"}, nil, &out, &errs, nil); code != exitOK || !strings.Contains(out.String(), "BILLET_KAFKA_ADVERTISE") || errs.Len() > 0 {
		t.Errorf("-help: %d %s", code, errs.String())
	}
	for _, args := range [][]string{{"-id", "x"}, {"-log-level", "loud"}, {"-log-format", "xml"}} {
		errs.Reset()
		if code := run(args, nil, &out, &errs, nil); code != exitUsage || !strings.HasPrefix(errs.String(), "billetd: ") {
			t.Errorf("%v: %d %q", args, code, errs.String())
		}
	}
	errs.Reset()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if code := run([]string{"-dir", file, "-http", "", "-log-format", "json", "-kafka", "127.0.0.1:0"}, nil, &out, &errs, make(chan os.Signal)); code != exitFailed || !strings.Contains(errs.String(), `"err":`) {
		t.Errorf("a directory that is a file: %d %s", code, errs.String())
	}
}

// Before the log is open, and when it ends, the node is not ready.
func TestUnready(t *testing.T) {
	n := &node{}
	if why := n.unready(); len(why) != 1 || !strings.Contains(why[0], "not open") {
		t.Errorf("%v", why)
	}
	signals := make(chan os.Signal, 1)
	signals <- os.Interrupt
	if err := n.close(errSecondSignal, true, signals); !errors.Is(err, errSecondSignal) {
		t.Errorf("%v", err)
	}
	if why := n.unready(); len(why) != 1 || !strings.Contains(why[0], "stops") {
		t.Errorf("%v", why)
	}
}
