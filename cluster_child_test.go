package billet

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/billetlog/billet/internal/history"
	"github.com/billetlog/billet/internal/vfs"
)

// childNodeConfig is what a child that is a node of a cluster finds in its folder.
type childNodeConfig struct {
	ID        int32
	Life      int
	Listen    string
	Join      []string
	Bootstrap []int32
	Fast      bool // with the tests' pace
}

const childNodeFile = "node.json"

func (c *childNodeConfig) config(dir string) (Config, seams) {
	s := seams{fs: vfs.OS}
	if c.Fast {
		s.pace = harnessPace
	}
	return Config{Dir: filepath.Join(dir, "log"), NodeID: c.ID, JournalBytes: 2 << 20, DiskReserve: -1, RetentionCheckInterval: time.Second,
		Logger:  clusterLogger(fmt.Sprintf("%d.%d", c.ID, c.Life)),
		Cluster: Cluster{Listen: c.Listen, Join: c.Join, Bootstrap: c.Bootstrap, ReplicaLagTimeMax: 2 * time.Second}}, s
}

// clusterLogger logs to the file that harnessLogEnv names.
func clusterLogger(node string) *slog.Logger {
	file, err := harnessLogFile()
	if err != nil || file == nil {
		return nil
	}
	return slog.New(slog.NewTextHandler(file, &slog.HandlerOptions{Level: slog.LevelDebug})).With("node", node)
}

// childNotes prints what a load was told. Each line ends with a word of its own: one that was cut by a kill has not got it.
type childNotes struct {
	out  childPrinter
	sent atomic.Int64
	last sync.Map // the epoch of each partition that was told last
}

func (c *childNotes) say(format string, args ...any) {
	c.out.print(fmt.Sprintf(format, args...) + " .\n")
}

func (c *childNotes) send(writer string) history.Value {
	return history.Value{Writer: writer, N: c.sent.Add(1) - 1}
}

func (c *childNotes) answered(v history.Value, at Offset, err error) {
	switch {
	case err == nil:
		c.say("acked %d %d %v", at.Partition, at.Offset, v)
	case isRefusal(err):
		c.say("refused %v %s", v, strconv.Quote(err.Error()))
	default:
		c.say("failed %v %s", v, strconv.Quote(err.Error()))
	}
}

func (c *childNotes) lead(partition, epoch, _ int32) {
	if before, ok := c.last.Swap(partition, epoch); !ok || before != epoch {
		c.say("lead %d %d", partition, epoch)
	}
}

// childNode is a node of a cluster, with a load on it. It does what its input says.
func childNode(dir, _ string) {
	before := goleak.IgnoreCurrent()
	data, err := os.ReadFile(filepath.Join(dir, childNodeFile))
	var own childNodeConfig
	if err := errors.Join(err, json.Unmarshal(data, &own)); err != nil {
		childFail("config", err)
	}
	config, s := own.config(dir)
	log, err := open(config, s)
	if err != nil {
		childFail("open", err)
	}
	notes := &childNotes{}
	m := newClusterMember(log, fmt.Sprintf("node%d.%d", own.ID, own.Life), notes)
	notes.say("open")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		number, order, _ := strings.Cut(in.Text(), " ")
		answer, err := childObey(m, order)
		if err == nil && order == "close" {
			err = goleak.Find(before, goleak.IgnoreAnyFunction("os/signal.loop"))
		}
		if err != nil {
			answer = "error " + strings.ReplaceAll(err.Error(), "\n", "; ")
		}
		notes.say("reply %s %s", number, answer)
		if order == "close" {
			return
		}
	}
	os.Exit(3) // the parent is gone
}

// childOrderMax bounds what a child does for its parent.
const childOrderMax = 2 * settleMax

func childObey(m *clusterMember, order string) (answer string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), childOrderMax)
	defer cancel()
	what, arg, _ := strings.Cut(order, " ")
	switch what {
	case "create":
		replicas, err := strconv.Atoi(arg)
		if err != nil {
			return "", err
		}
		return "ok", m.log.CreateTopic(ctx, rigTopicOf(replicas))
	case "rest":
		return "ok", m.rest(ctx)
	case "resume":
		return "ok", m.resume(ctx)
	case "look":
		look, err := m.look(ctx)
		if err != nil {
			return "", err
		}
		data, err := json.Marshal(look)
		return string(data), err
	case "dump":
		dump, err := m.dump(ctx)
		if err != nil {
			return "", err
		}
		data, err := json.Marshal(dump)
		return "ok", errors.Join(err, os.WriteFile(arg, data, 0o600))
	case "close":
		began := time.Now()
		err := m.close()
		return fmt.Sprint(time.Since(began)), err
	}
	return "", fmt.Errorf("what is %q?", order)
}

func rigTopicOf(replicas int) Topic {
	return Topic{Name: rigTopic, Partitions: rigPartitions, Replicas: replicas, Retention: -1, Config: map[string]string{"segment.bytes": "262144"}}
}

// nodeProcess is one life of a node in a process of its own.
type nodeProcess struct {
	*child
	rig    *clusterRig
	id     int32
	dir    string
	writer string
	opened chan struct{}
	over   chan struct{} // closed when it has ended and all that it said is noted
	killed atomic.Bool

	asking  sync.Mutex
	number  int
	replies chan string
}

// startNode starts a node in a folder.
func (r *clusterRig) startNode(dir string, config childNodeConfig) *nodeProcess {
	r.t.Helper()
	data, err := json.Marshal(config)
	if err := errors.Join(err, os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, childNodeFile), data, 0o600)); err != nil {
		r.t.Fatal(err)
	}
	p := &nodeProcess{rig: r, id: config.ID, dir: dir, writer: fmt.Sprintf("node%d.%d", config.ID, config.Life),
		opened: make(chan struct{}), over: make(chan struct{}), replies: make(chan string, 16)}
	r.history.Expect(p.writer)
	p.child = startChild(r.t.(*testing.T), "node", dir, 0)
	p.lines.Buffer(nil, 1<<24)
	go p.listen()
	return p
}

// listen notes what the child says.
func (p *nodeProcess) listen() {
	defer close(p.over)
	for p.lines.Scan() {
		if f := strings.Fields(p.lines.Text()); len(f) > 1 && f[len(f)-1] == "." {
			p.hear(f[:len(f)-1])
		} else if len(f) > 0 && f[0] == "error" && !p.killed.Load() {
			p.rig.history.Violate("node %d: %s", p.id, p.lines.Text())
		}
	}
	err := p.cmd.Wait()
	if err != nil && !p.killed.Load() {
		p.rig.history.Violate("the process of node %d ended: %w", p.id, err)
	}
}

func (p *nodeProcess) hear(f []string) {
	number := func(i int) int64 {
		n, err := strconv.ParseInt(f[i], 10, 64)
		if err != nil {
			p.rig.history.Violate("node %d said %q", p.id, f)
		}
		return n
	}
	h := p.rig.history
	switch {
	case f[0] == "open":
		close(p.opened)
	case f[0] == "acked" && len(f) == 4:
		h.Acknowledge(p.rig.partition(int32(number(1))), number(2), harnessValue([]byte(f[3])))
	case f[0] == "lead" && len(f) == 3:
		p.rig.lead(int32(number(1)), int32(number(2)), p.id)
	case f[0] == "refused" || f[0] == "failed":
		v := harnessValue([]byte(f[1]))
		text := strings.Join(f[2:], " ")
		if f[0] == "refused" {
			h.Refuse(v, errors.New(text))
		}
		if !strings.Contains(text, ErrClosed.Error()) && !strings.Contains(text, context.Canceled.Error()) {
			h.Violate("record %v failed: %s", v, text)
		}
	case f[0] == "reply" && len(f) > 2:
		select {
		case p.replies <- strings.Join(f[1:], " "):
		default: // nobody waits
		}
	default:
		h.Violate("node %d said %q", p.id, f)
	}
}

// ask gives an order and returns the answer.
func (p *nodeProcess) ask(ctx context.Context, order string) (string, error) {
	p.asking.Lock()
	defer p.asking.Unlock()
	p.number++
	if _, err := fmt.Fprintf(p.in, "%d %s\n", p.number, order); err != nil {
		return "", err
	}
	for {
		select {
		case reply := <-p.replies:
			number, answer, _ := strings.Cut(reply, " ")
			if number != strconv.Itoa(p.number) {
				continue // of a question that was given up
			}
			if why, bad := strings.CutPrefix(answer, "error "); bad {
				return "", errors.New(why)
			}
			return answer, nil
		case <-p.over:
			if len(p.replies) > 0 {
				continue
			}
			return "", fmt.Errorf("the process of node %d has ended", p.id)
		case <-ctx.Done():
			return "", fmt.Errorf("node %d does not answer %q: %w", p.id, order, ctx.Err())
		}
	}
}

func (p *nodeProcess) look(ctx context.Context) (out map[int32]rigReplica, err error) {
	answer, err := p.ask(ctx, "look")
	if err != nil {
		return nil, err
	}
	return out, json.Unmarshal([]byte(answer), &out)
}

func (p *nodeProcess) dump(ctx context.Context) (out map[int32]history.Replica, err error) {
	path := filepath.Join(p.dir, "dump.json")
	if _, err := p.ask(ctx, "dump "+path); err != nil {
		return nil, err
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return out, json.Unmarshal(data, &out)
}

func (p *nodeProcess) rest(ctx context.Context) error {
	_, err := p.ask(ctx, "rest")
	return err
}

func (p *nodeProcess) resume(ctx context.Context) error {
	_, err := p.ask(ctx, "resume")
	return err
}

// crash ends the process with kill -9.
func (p *nodeProcess) crash() {
	p.killed.Store(true)
	_ = p.cmd.Process.Kill()
	<-p.over
}

func (p *nodeProcess) signal(s syscall.Signal) {
	p.rig.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.rig.t.Fatal(err)
	}
}
