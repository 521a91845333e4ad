package replication

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/billetlog/billet/internal/vfs"
	"github.com/billetlog/billet/segment"
)

// testCluster is a node with its controller, on a file system in memory.
type testCluster struct {
	*testNode
	c *Controller
}

func openCluster(t testing.TB, fs vfs.FS) *testCluster {
	t.Helper()
	k, err := tryOpenCluster(t, fs)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// tryOpenCluster opens the node, whose host is closed again when the controller does not open.
func tryOpenCluster(t testing.TB, fs vfs.FS) (*testCluster, error) {
	t.Helper()
	k := &testCluster{testNode: memNodeWith(t, fs, 128<<10)}
	var err error
	if k.c, err = OpenController(testContext(t), k.host); err != nil {
		k.testNode.close()
		return nil, err
	}
	return k, nil
}

func memNodeWith(t testing.TB, fs vfs.FS, journal int64) *testNode {
	t.Helper()
	if err := fs.MkdirAll("/data"); err != nil {
		t.Fatal(err)
	}
	if err := fs.SyncDir("/"); err != nil {
		t.Fatal(err)
	}
	n := &testNode{t: t, fs: fs, dir: "/data", id: 1, journal: journal}
	n.open()
	return n
}

func (k *testCluster) close() {
	k.t.Helper()
	k.c.Close()
	k.testNode.close()
}

func (k *testCluster) reopen() {
	k.t.Helper()
	k.close()
	*k = *openCluster(k.t, k.fs)
}

func (k *testCluster) create(name string, partitions int, config map[string]string) TopicState {
	k.t.Helper()
	s, err := k.c.CreateTopic(testContext(k.t), TopicSpec{Name: name, Partitions: partitions, Config: config})
	if err != nil {
		k.t.Fatal(err)
	}
	return s
}

func (k *testCluster) partition(topic string, n int32) *Partition {
	k.t.Helper()
	p, err := k.c.Partition(topic, n)
	if err != nil {
		k.t.Fatal(err)
	}
	return p
}

// folders lists the replicas' folders without the metadata's.
func folders(t testing.TB, fs vfs.FS) []string {
	t.Helper()
	names, err := fs.List("/data/partitions")
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(names, func(n string) bool { return strings.HasPrefix(n, "1-") })
}

// checkWhole finds topics of which there is only a part: each partition that a topic has must be there, take a record and give it back, and no
// partition more.
func (k *testCluster) checkWhole() {
	k.t.Helper()
	k.settled()
	for _, s := range k.c.Topics() {
		if s.Internal {
			continue
		}
		for i := range s.Partitions {
			p, err := k.c.Partition(s.Name, int32(i))
			if err != nil {
				k.t.Errorf("topic %s has %d partitions, and of %d: %v", s.Name, len(s.Partitions), i, err)
				continue
			}
			writable(k.t, p)
			if r := appendBatch(k.t, p, textBatch(k.t, "probe"), AcksAll); r.Err != nil {
				k.t.Errorf("%s-%d takes no record: %v", s.Name, i, r.Err)
				continue
			}
			if got := values(k.t, p, p.HighWatermark()-1); fmt.Sprint(got) != "[probe]" {
				k.t.Errorf("%s-%d gives %v", s.Name, i, got)
			}
			if p.Spec().Settings != s.Settings {
				k.t.Errorf("%s-%d has other settings than its topic", s.Name, i)
			}
		}
		if _, err := k.c.Partition(s.Name, int32(len(s.Partitions))); !errors.Is(err, ErrUnknownTopic) {
			k.t.Errorf("topic %s has a partition too many: %v", s.Name, err)
		}
	}
}

// settled waits until the replicas agree with what is recorded.
func (k *testCluster) settled() {
	k.t.Helper()
	at := k.c.meta().HighWatermark()
	if err := k.c.await(testContext(k.t), func() bool { return k.c.mu.settled >= at && !k.c.mu.troubled }); err != nil {
		k.t.Error(err)
	}
}

func (k *testCluster) names() (names []string) {
	for _, s := range k.c.Topics() {
		if !s.Internal {
			names = append(names, fmt.Sprintf("%s:%d", s.Name, len(s.Partitions)))
		}
	}
	return names
}

func (k *testCluster) expect(want ...string) {
	k.t.Helper()
	if got := k.names(); !slices.Equal(got, want) {
		k.t.Errorf("topics are %v, want %v", got, want)
	}
}

func TestTopics(t *testing.T) {
	ctx := testContext(t)
	k := openCluster(t, vfs.NewMem())
	made := k.create("b", 3, map[string]string{"retention.ms": "600000"})
	k.create("a", 1, nil)
	for range 2 {
		k.expect("a:1", "b:3")
		s, ok := k.c.Topic("b")
		if !ok || s.ID != made.ID || s.Created != made.Created || s.Config["retention.ms"] != "600000" || s.Settings.RetentionAge.Minutes() != 10 {
			t.Errorf("described as %+v", s)
		}
		if m, ok := k.c.Topic(MetadataTopic); !ok || !m.Internal || len(m.Partitions) != 1 {
			t.Errorf("the metadata topic is %+v", m)
		}
		if _, err := k.c.Partition("b", 3); !errors.Is(err, ErrUnknownTopic) || !strings.Contains(err.Error(), "0 to 2") {
			t.Errorf("a partition too many: %v", err)
		}
		k.checkWhole()
		k.reopen()
	}
	if err := k.c.AlterTopic(ctx, "b", map[string]string{"billet.fsync": "interval", "segment.bytes": "65536"}, []string{"retention.ms", "flush.ms"}); err != nil {
		t.Fatal(err)
	}
	if err := k.c.AddPartitions(ctx, "b", 5); err != nil {
		t.Fatal(err)
	}
	if err := k.c.DeleteTopic(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		k.expect("b:5")
		s, _ := k.c.Topic("b")
		if want := map[string]string{"billet.fsync": "interval", "segment.bytes": "65536"}; !maps.Equal(s.Config, want) || s.Settings.Fsync != FsyncInterval || s.ID != made.ID {
			t.Errorf("altered to %+v", s)
		}
		if got := folders(t, k.fs); len(got) != 5 {
			t.Errorf("folders are %v", got)
		}
		k.checkWhole()
		k.reopen()
	}
	k.close()
}

// What is refused changes nothing, neither in memory nor after a restart.
func TestTopicRefused(t *testing.T) {
	ctx := testContext(t)
	k := openCluster(t, vfs.NewMem())
	k.create("my.topic", 2, map[string]string{"retention.ms": "1000"})
	before, _ := k.c.Topic("my.topic")
	end := k.c.meta().HighWatermark()
	create := func(name string, partitions int, config map[string]string) error {
		_, err := k.c.CreateTopic(ctx, TopicSpec{Name: name, Partitions: partitions, Config: config})
		return err
	}
	for _, c := range []struct {
		what string
		err  error
		want error
		says string
	}{
		{"same name", create("my.topic", 1, nil), ErrTopicExists, `"my.topic"`},
		{"name that folds to the same", create("my_topic", 1, nil), ErrTopicExists, `differs from "my.topic" only in '.' and '_'`},
		{"no partitions", create("x", 0, nil), ErrInvalidPartitions, "1 to 10000"},
		{"negative partitions", create("x", -1, nil), ErrInvalidPartitions, "1 to 10000"},
		{"too many partitions", create("x", MaxPartitions+1, nil), ErrInvalidPartitions, "1 to 10000"},
		{"bad value", create("x", 1, map[string]string{"segment.bytes": "1"}), ErrInvalidConfig, "segment.bytes"},
		{"unknown key", create("x", 1, map[string]string{"colour": "red"}), ErrInvalidConfig, "colour"},
		{"alter: bad value beside a good one", k.c.AlterTopic(ctx, "my.topic", map[string]string{"retention.bytes": "5", "flush.ms": "x"}, nil), ErrInvalidConfig, "flush.ms"},
		{"alter: unknown key", k.c.AlterTopic(ctx, "my.topic", map[string]string{"colour": "red"}, []string{"retention.ms"}), ErrInvalidConfig, "colour"},
		{"alter: unknown topic", k.c.AlterTopic(ctx, "nope", nil, nil), ErrUnknownTopic, "nope"},
		{"alter: internal", k.c.AlterTopic(ctx, MetadataTopic, map[string]string{"retention.ms": "1"}, nil), ErrInvalidTopic, "internal"},
		{"as many partitions", k.c.AddPartitions(ctx, "my.topic", 2), ErrInvalidPartitions, "has 2"},
		{"fewer partitions", k.c.AddPartitions(ctx, "my.topic", 1), ErrInvalidPartitions, "has 2"},
		{"partitions beyond the bound", k.c.AddPartitions(ctx, "my.topic", MaxPartitions+1), ErrInvalidPartitions, "at most 10000"},
		{"partitions of an unknown topic", k.c.AddPartitions(ctx, "nope", 9), ErrUnknownTopic, "nope"},
		{"partitions of an internal one", k.c.AddPartitions(ctx, MetadataTopic, 9), ErrInvalidTopic, "internal"},
		{"delete: unknown", k.c.DeleteTopic(ctx, "nope"), ErrUnknownTopic, "nope"},
		{"delete: internal", k.c.DeleteTopic(ctx, MetadataTopic), ErrInvalidTopic, "internal"},
	} {
		if !errors.Is(c.err, c.want) || !strings.Contains(c.err.Error(), c.says) {
			t.Errorf("%s: %v", c.what, c.err)
		}
	}
	if hw := k.c.meta().HighWatermark(); hw != end {
		t.Errorf("%d records were written", hw-end)
	}
	for range 2 {
		k.expect("my.topic:2")
		if now, _ := k.c.Topic("my.topic"); !maps.Equal(now.Config, before.Config) || now.Settings != before.Settings {
			t.Errorf("changed to %+v", now)
		}
		if got := folders(t, k.fs); len(got) != 2 {
			t.Errorf("folders are %v", got)
		}
		k.checkWhole()
		k.reopen()
	}
	k.close()
}

// A topic that is deleted and made again is another one.
func TestTopicAgain(t *testing.T) {
	ctx := testContext(t)
	mem := vfs.NewMem()
	k := openCluster(t, mem)
	ids, shards := map[[16]byte]bool{}, map[uint64]bool{}
	for round := range 4 {
		s := k.create("t", 2, nil)
		if ids[s.ID] {
			t.Errorf("round %d has an id of an earlier one", round)
		}
		ids[s.ID] = true
		for _, a := range s.Partitions {
			if shards[a.Shard] {
				t.Errorf("round %d has shard %d of an earlier one", round, a.Shard)
			}
			shards[a.Shard] = true
		}
		secret := fmt.Sprintf("secret-of-round-%d", round)
		old := k.partition("t", 0)
		writable(t, old)
		for i := range 3 {
			if r := appendBatch(t, old, textBatch(t, secret), AcksAll); r.Err != nil || r.Offset != int64(i) {
				t.Fatalf("round %d: %+v", round, r)
			}
		}
		c := old.NewCursor()
		if err := k.c.DeleteTopic(ctx, "t"); err != nil {
			t.Fatal(err)
		}
		if _, err := k.c.Partition("t", 0); !errors.Is(err, ErrUnknownTopic) {
			t.Errorf("after the deletion: %v", err)
		}
		if _, err := c.Read(nil, 0, 100); !errors.Is(err, ErrUnknownTopic) {
			t.Errorf("a cursor of the deleted topic: %v", err)
		}
		c.Close()
		if r := appendBatch(t, old, textBatch(t, "x"), AcksAll); !errors.Is(r.Err, ErrUnknownTopic) {
			t.Errorf("an append to the deleted topic: %+v", r)
		}
		if err := old.Writable(ctx); !errors.Is(err, ErrUnknownTopic) {
			t.Errorf("waiting for the deleted topic: %v", err)
		}
		if got := folders(t, mem); len(got) != 0 {
			t.Errorf("folders %v stay", got)
		}
		if round%2 == 1 {
			k.reopen()
		}
		k.expect()
	}
	k.close()
}

// Ids of producers never repeat, whatever happens in between.
func TestProducerIDs(t *testing.T) {
	mem := vfs.NewMem()
	k := openCluster(t, mem)
	seen := map[int64]bool{}
	take := func(n int) {
		t.Helper()
		for range n {
			id, epoch, err := k.c.NewProducerID(testContext(t))
			if err != nil || epoch != 0 || id < 0 || seen[id] {
				t.Fatalf("id %d, epoch %d, %v, seen before: %v", id, epoch, err, seen[id])
			}
			seen[id] = true
		}
	}
	take(producerIDBlock + 10)
	k.reopen()
	take(5)
	for range 3 {
		clone := mem.CrashClone(vfs.CrashOptions{})
		k.close()
		mem = clone
		k = openCluster(t, mem)
		take(2)
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range producerIDBlock {
				id, _, err := k.c.NewProducerID(context.Background())
				mu.Lock()
				if err != nil || seen[id] {
					t.Errorf("id %d twice, or %v", id, err)
				}
				seen[id] = true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	k.close()
}

// A producer's id is asked for again when the answer was lost, until the context ends.
func TestProducerIDsAgain(t *testing.T) {
	k := openCluster(t, vfs.NewMem())
	lost := 0
	id := func(context.Context, nothing) (int64, error) {
		if lost++; lost < 3 {
			return 0, fmt.Errorf("%w: the node is gone", ErrAmbiguous)
		}
		return 7, nil
	}
	do := func(_ *Controller, ctx context.Context, q nothing) (int64, error) { return id(ctx, q) }
	if got, err := askAgain(testContext(t), k.c, "ids", nothing{}, do); got != 7 || err != nil || lost != 3 {
		t.Errorf("%d after %d attempts, %v", got, lost, err)
	}
	calls := 0
	k.c.patience = 20 * time.Millisecond
	id = func(ctx context.Context, _ nothing) (int64, error) {
		if calls++; calls == 1 { // no answer comes
			<-ctx.Done()
			return 0, ctx.Err()
		}
		return 8, nil
	}
	if got, err := askAgain(testContext(t), k.c, "ids", nothing{}, do); got != 8 || err != nil {
		t.Errorf("%d after %d attempts, the first without an answer, %v", got, calls, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	id = func(context.Context, nothing) (int64, error) { cancel(); return 0, ErrAmbiguous }
	if _, err := askAgain(ctx, k.c, "ids", nothing{}, do); !errors.Is(err, ErrAmbiguous) {
		t.Errorf("after the end of the context: %v", err)
	}
	k.close()
}

// A change that waits for another one ends with its context, and so does one that runs when the controller closes.
func TestTopicChangesHonourContext(t *testing.T) {
	k := openCluster(t, vfs.NewMem())
	k.c.admin <- struct{}{} // another change runs
	ctx, cancel := context.WithCancel(context.Background())
	errs := make(chan error, 5)
	go func() {
		_, err := k.c.CreateTopic(ctx, TopicSpec{Name: "t", Partitions: 1})
		errs <- err
	}()
	go func() { errs <- k.c.DeleteTopic(ctx, "t") }()
	go func() { errs <- k.c.AlterTopic(ctx, "t", nil, nil) }()
	go func() { errs <- k.c.AddPartitions(ctx, "t", 2) }()
	go func() { _, _, err := k.c.NewProducerID(ctx); errs <- err }()
	cancel()
	for range 5 {
		if err := <-errs; !errors.Is(err, context.Canceled) {
			t.Errorf("a call whose context ended: %v", err)
		}
	}
	go func() { errs <- k.c.DeleteTopic(context.Background(), "t") }()
	go func() { <-k.c.ctx.Done(); <-k.c.admin }()
	k.c.Close()
	if err := <-errs; !errors.Is(err, ErrClosed) && !errors.Is(err, ErrUnknownTopic) {
		t.Errorf("a call during close: %v", err)
	}
	if err := k.c.AlterTopic(context.Background(), "t", nil, nil); !errors.Is(err, ErrClosed) {
		t.Errorf("a call after close: %v", err)
	}
	k.close()
	if err := k.c.AlterTopic(context.Background(), "t", nil, nil); !errors.Is(err, ErrClosed) {
		t.Errorf("a call after the host closed: %v", err)
	}
}

// gate holds up operations while it is shut.
type gate struct {
	mu     sync.Mutex
	match  func(op vfs.Op, name string) bool
	held   chan struct{} // gets one for each operation that waits
	opened chan struct{}
}

func (g *gate) fault(op vfs.Op, name string, _ int64, _ int) error {
	g.mu.Lock()
	match, held, opened := g.match, g.held, g.opened
	g.mu.Unlock()
	if match != nil && match(op, name) {
		select {
		case held <- struct{}{}:
		default:
		}
		<-opened
	}
	return nil
}

func (g *gate) shut(match func(op vfs.Op, name string) bool) (held <-chan struct{}, open func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.match, g.held, g.opened = match, make(chan struct{}, 16), make(chan struct{})
	opened := g.opened
	return g.held, func() {
		g.mu.Lock()
		g.match = nil
		g.mu.Unlock()
		close(opened)
	}
}

// The answer to a change is lost, since its context ends while the disk is busy. The next change finds out first what became of it.
func TestTopicChangeOfUnknownFate(t *testing.T) {
	g := &gate{}
	k := openCluster(t, vfs.Inject(vfs.NewMem(), g.fault))
	k.create("t", 1, nil)
	writable(t, k.c.meta())
	lost := func(change func(context.Context) error) {
		t.Helper()
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		end := k.c.meta().EndOffset()
		held, open := g.shut(func(op vfs.Op, name string) bool {
			return op == vfs.OpSync && strings.Contains(name, "journal") && k.c.meta().EndOffset() > end
		})
		done := make(chan error, 1)
		go func() { done <- change(ctx) }()
		select {
		case <-held:
		case err := <-done:
			t.Fatalf("the change was not held up: %v", err)
		}
		cancel()
		if err := <-done; !errors.Is(err, ErrAmbiguous) {
			t.Errorf("a change whose answer was lost: %v", err)
		}
		open()
	}
	lost(func(ctx context.Context) error {
		_, err := k.c.CreateTopic(ctx, TopicSpec{Name: "u", Partitions: 2})
		return err
	})
	if _, err := k.c.CreateTopic(testContext(t), TopicSpec{Name: "u", Partitions: 2}); !errors.Is(err, ErrTopicExists) {
		t.Errorf("made again: %v", err)
	}
	k.expect("t:1", "u:2")
	k.checkWhole()
	lost(func(ctx context.Context) error { return k.c.AddPartitions(ctx, "u", 3) })
	if err := k.c.AddPartitions(testContext(t), "u", 3); !errors.Is(err, ErrInvalidPartitions) {
		t.Errorf("extended again: %v", err)
	}
	lost(func(ctx context.Context) error {
		return k.c.AlterTopic(ctx, "u", map[string]string{"billet.fsync": "interval"}, nil)
	})
	if err := k.c.AlterTopic(testContext(t), "u", map[string]string{"flush.ms": "100"}, nil); err != nil {
		t.Error(err)
	}
	k.expect("t:1", "u:3")
	k.checkWhole()
	lost(func(ctx context.Context) error { return k.c.DeleteTopic(ctx, "u") })
	if err := k.c.DeleteTopic(testContext(t), "u"); !errors.Is(err, ErrUnknownTopic) {
		t.Errorf("deleted again: %v", err)
	}
	k.settled()
	if got := folders(t, k.fs); len(got) != 1 {
		t.Errorf("folders are %v", got)
	}
	k.reopen()
	k.expect("t:1")
	k.close()
}

// Damaged metadata is an error that says so, and no folder is touched.
func TestMetadataDamaged(t *testing.T) {
	mem := vfs.NewMem()
	k := openCluster(t, mem)
	k.create("t", 3, nil)
	if err := k.c.DeleteTopic(testContext(t), "t"); err != nil {
		t.Fatal(err)
	}
	k.create("u", 2, nil)
	k.close()
	before := folders(t, mem)
	dir := filepath.Join("/data/partitions", fmt.Sprintf("1-%d", replicaID(1, 1)))
	for _, name := range []string{"000001/00000000000000000000.log", "raft"} {
		clone := mem.CrashClone(vfs.CrashOptions{})
		flipByte(t, clone, filepath.Join(dir, name), 40)
		_, err := tryOpenCluster(t, clone)
		if !errors.Is(err, ErrQuarantined) || !errors.Is(err, segment.ErrCorrupt) || !strings.Contains(err.Error(), "metadata") {
			t.Errorf("%s damaged: %v", name, err)
		}
		if got := folders(t, clone); !slices.Equal(got, before) {
			t.Errorf("%s damaged: folders are %v, were %v", name, got, before)
		}
	}
	clone := mem.CrashClone(vfs.CrashOptions{})
	if err := clone.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := tryOpenCluster(t, clone); !errors.Is(err, ErrQuarantined) {
		t.Errorf("the metadata's folder is gone: %v", err)
	}
	if got := folders(t, clone); !slices.Equal(got, before) {
		t.Errorf("folders are %v, were %v", got, before)
	}
}

func flipByte(t testing.TB, fs vfs.FS, path string, pos int64) {
	t.Helper()
	f, err := fs.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, pos); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 0x10
	if _, err := f.WriteAt(b, pos); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.SyncData(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// A folder that belongs to no topic is reported, left alone, and its number is never given to another replica.
func TestOrphanFolders(t *testing.T) {
	mem := vfs.NewMem()
	k := openCluster(t, mem)
	k.create("t", 1, nil)
	k.close()
	for _, name := range []string{"40-4294967297", "41-4294967297.bak", "notes"} {
		if err := mem.MkdirAll("/data/partitions/" + name); err != nil {
			t.Fatal(err)
		}
	}
	k = openCluster(t, mem)
	found := []string{}
	for range 2 {
		found = append(found, waitEvent(t, k.testNode, EventOrphan).Detail)
	}
	slices.Sort(found)
	if fmt.Sprint(found) != "[40-4294967297 41-4294967297.bak]" {
		t.Errorf("reported are %v", found)
	}
	if s := k.create("u", 1, nil); s.Partitions[0].Shard <= 41 {
		t.Errorf("the new topic has shard %d", s.Partitions[0].Shard)
	}
	k.close()
	if got := folders(t, mem); len(got) != 5 {
		t.Errorf("folders are %v", got)
	}
}

// A replica that is lost does not run. When the records take it away at last, its folder goes, too.
func TestIdleFolder(t *testing.T) {
	mem := vfs.NewMem()
	k := openCluster(t, mem)
	k.create("t", 1, nil)
	record := func(change func(PartitionAssignment) PartitionAssignment) {
		t.Helper()
		err := k.c.decide(testContext(t), func(ctx context.Context) error {
			k.c.mu.RLock()
			topic := k.c.mu.topics["t"]
			k.c.mu.RUnlock()
			return k.c.write(ctx, topicRecord(topic.with(change(topic.Partitions[0])), false))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	record(func(a PartitionAssignment) PartitionAssignment {
		a, _ = a.lose(RoleLost, func(ReplicaAssignment) bool { return true })
		return a
	})
	k.close()
	k = openCluster(t, mem)
	defer k.close()
	before := folders(t, mem)
	if len(before) != 1 {
		t.Fatalf("folders are %v", before)
	}
	record(func(a PartitionAssignment) PartitionAssignment {
		a.Replicas = []ReplicaAssignment{{Node: 1, Replica: replicaID(1, a.NextIncarnation), Role: RoleLearner}}
		a.Target, a.NextIncarnation = nil, a.NextIncarnation+1
		return a
	})
	eventually(t, "the new replica has a folder, and the old one has none", func() bool {
		now := folders(t, mem)
		return len(now) == 1 && now[0] != before[0]
	})
}

// change is one step of the script of the crash and fault tests.
type change struct {
	name string
	do   func(ctx context.Context, c *Controller) error
}

var script = []change{
	{"create a", func(ctx context.Context, c *Controller) error {
		_, err := c.CreateTopic(ctx, TopicSpec{Name: "a", Partitions: 2})
		return err
	}},
	{"create b", func(ctx context.Context, c *Controller) error {
		_, err := c.CreateTopic(ctx, TopicSpec{Name: "b", Partitions: 1})
		return err
	}},
	{"alter a", func(ctx context.Context, c *Controller) error {
		return c.AlterTopic(ctx, "a", map[string]string{"retention.ms": "5000"}, nil)
	}},
	{"extend a", func(ctx context.Context, c *Controller) error { return c.AddPartitions(ctx, "a", 4) }},
	{"delete b", func(ctx context.Context, c *Controller) error { return c.DeleteTopic(ctx, "b") }},
	{"delete a", func(ctx context.Context, c *Controller) error { return c.DeleteTopic(ctx, "a") }},
	{"create a again", func(ctx context.Context, c *Controller) error {
		_, err := c.CreateTopic(ctx, TopicSpec{Name: "a", Partitions: 1, Config: map[string]string{"retention.ms": "7000"}})
		return err
	}},
}

// scriptStates is what there is after each number of steps.
var scriptStates = []string{"", "a:2", "a:2 b:1", "a:2/5000 b:1", "a:4/5000 b:1", "a:4/5000", "", "a:1/7000"}

func (k *testCluster) state() string {
	var out []string
	for _, s := range k.c.Topics() {
		if s.Internal {
			continue
		}
		v := fmt.Sprintf("%s:%d", s.Name, len(s.Partitions))
		if r := s.Config["retention.ms"]; r != "" {
			v += "/" + r
		}
		out = append(out, v)
	}
	return strings.Join(out, " ")
}

// Power fails before each operation of changes to topics: what was answered is there, what was not is there wholly or not at all.
func TestCrashOfTopicChanges(t *testing.T) {
	every := 9
	if os.Getenv("BILLET_SLOW") != "" {
		every = 1
	}
	type crash struct {
		steps int
		op    string
		fs    *vfs.Mem
	}
	var mu sync.Mutex
	var crashes []crash
	steps, ops := -1, 0
	mem := vfs.NewMem()
	fs := vfs.Inject(mem, func(op vfs.Op, name string, _ int64, _ int) error {
		mu.Lock()
		defer mu.Unlock()
		if !op.Changes() || steps < 0 {
			return nil
		}
		if ops++; ops%every == 0 {
			crashes = append(crashes, crash{steps, fmt.Sprint(op, " ", name), mem.CrashClone(vfs.CrashOptions{})})
		}
		return nil
	})
	k := openCluster(t, fs)
	for i, s := range script {
		mu.Lock()
		steps = i
		mu.Unlock()
		if err := s.do(testContext(t), k.c); err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
	}
	mu.Lock()
	steps = -1
	mu.Unlock()
	k.close()
	t.Logf("%d operations, %d crashes", ops, len(crashes))
	for i, c := range crashes {
		where := fmt.Sprintf("crash %d, during %q before %s", i, script[c.steps].name, c.op)
		again, err := tryOpenCluster(t, c.fs)
		if err != nil {
			t.Errorf("%s: %v", where, err)
			continue
		}
		if got := again.state(); got != scriptStates[c.steps] && got != scriptStates[c.steps+1] {
			t.Errorf("%s: topics are %q, want %q or %q", where, got, scriptStates[c.steps], scriptStates[c.steps+1])
		}
		again.checkWhole()
		taken := map[uint64]bool{}
		for _, name := range folders(t, c.fs) {
			var k segment.Key
			if _, err := fmt.Sscanf(name, "%d-%d", &k.Shard, &k.Replica); err == nil {
				taken[k.Shard] = true
			}
		}
		if s := again.create("new", 1, nil); taken[s.Partitions[0].Shard] {
			t.Errorf("%s: shard %d, whose folder is there, was given to another topic", where, s.Partitions[0].Shard)
		}
		again.close()
		if t.Failed() {
			return
		}
	}
}

// Each operation fails once. What is answered with an error is not there in part, and after a restart goes through.
func TestTopicChangesWithFaults(t *testing.T) {
	t.Parallel() // it waits, mostly
	every := 11
	if os.Getenv("BILLET_SLOW") != "" {
		every = 1
	}
	for _, kind := range []struct {
		name string
		ops  []vfs.Op
		err  error
	}{
		{"io", []vfs.Op{vfs.OpWrite, vfs.OpSync, vfs.OpSyncDir}, errors.New("EIO")},
		{"names", []vfs.Op{vfs.OpCreate, vfs.OpOpen, vfs.OpRename, vfs.OpRemove, vfs.OpMkdir, vfs.OpList, vfs.OpRead}, errors.New("EIO")},
		{"full", []vfs.Op{vfs.OpWrite, vfs.OpCreate, vfs.OpMkdir, vfs.OpPreallocate}, errNoSpace},
	} {
		t.Run(kind.name, func(t *testing.T) {
			for i := 1; topicFaultRun(t, i, kind.ops, kind.err) && !t.Failed(); i += every {
			}
		})
	}
}

// topicFaultRun runs the script with the i-th operation failing; false when there were fewer.
func topicFaultRun(t *testing.T, i int, ops []vfs.Op, cause error) bool {
	mem := vfs.NewMem()
	trigger := vfs.FailNth(i, vfs.OfKind(ops...), cause)
	var mu sync.Mutex
	armed := false
	k := openCluster(t, vfs.Inject(mem, func(op vfs.Op, name string, off int64, n int) error {
		mu.Lock()
		defer mu.Unlock()
		if !armed {
			return nil
		}
		return trigger.Fault(op, name, off, n)
	}))
	mu.Lock()
	armed = true
	mu.Unlock()
	done := 0
	var err error
	for ; done < len(script); done++ {
		ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
		err = script[done].do(ctx, k.c)
		cancel()
		if err != nil {
			break
		}
	}
	mu.Lock()
	armed = false
	mu.Unlock()
	if err != nil {
		if !trigger.Fired() {
			t.Fatalf("failure %d: %s: %v", i, script[done].name, err)
		}
		again := &testCluster{testNode: k.testNode, c: k.c}
		again.settled()
		for _, s := range k.c.Topics() {
			if _, err := k.c.Partition(s.Name, int32(len(s.Partitions)-1)); err != nil {
				t.Errorf("failure %d in %s: half a topic: %v", i, script[done].name, err)
			}
		}
	}
	k.c.Close()
	_ = k.host.Close(testContext(t)) // may report the fault
	again := openCluster(t, mem)
	got := again.state()
	if got != scriptStates[done] && (err == nil || got != scriptStates[done+1]) {
		t.Errorf("failure %d: after %d steps (%v) topics are %q", i, done, err, got)
	}
	again.checkWhole()
	if err != nil && got == scriptStates[done] {
		if err := script[done].do(testContext(t), again.c); err != nil {
			t.Errorf("failure %d: %s again: %v", i, script[done].name, err)
		}
		again.checkWhole()
	}
	again.close()
	return trigger.Fired()
}
