package billet

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/billetlog/billet/replication"
)

func TestTopicNames(t *testing.T) {
	good := regexp.MustCompile(`^[a-zA-Z0-9._-]{1,249}$`)
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.OneOf(
			rapid.StringMatching(`[a-zA-Z0-9._-]{0,260}`), rapid.String(),
			rapid.SampledFrom([]string{"", ".", "..", "...", "__x", "_x", "x__", "ä", "a b", "a/b", "a\x00"}),
		).Draw(t, "name")
		want := good.MatchString(name) && name != "." && name != ".." && !strings.HasPrefix(name, "__")
		err := validateTopicName(name)
		if (err == nil) != want || err != nil && !errors.Is(err, ErrInvalidTopic) {
			t.Fatalf("%q: %v", name, err)
		}
	})
}

func TestTopicNamesCollide(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{{"a", "a", true}, {"a.b", "a_b", true}, {"a.b_c", "a_b.c", true}, {"a-b", "a_b", false}, {"a", "ab", false}} {
		if got := namesCollide(c.a, c.b); got != c.want {
			t.Errorf("%q and %q: %v", c.a, c.b, got)
		}
	}
}

func TestLogTopics(t *testing.T) {
	ctx := testContext(t)
	cat := newFakeCatalog()
	l := newFakeTestLog(t, cat)
	l.config.TopicDefaults = map[string]string{"segment.bytes": "1048576", "billet.fsync": "interval"}
	topic := Topic{Name: "a.b", Partitions: 3, Retention: time.Hour, RetentionBytes: 1 << 20, Fsync: FsyncCommit,
		Config: map[string]string{"max.message.bytes": "2048"}}
	if err := l.CreateTopic(ctx, topic); err != nil {
		t.Fatal(err)
	}
	info, err := l.Topic(ctx, "a.b")
	if err != nil || len(info.Partitions) != 3 || info.Partitions[0].State != StateLeader || info.Partitions[0].Leader != 1 {
		t.Fatalf("%+v, %v", info, err)
	}
	want := map[string]string{"retention.ms": "3600000", "retention.bytes": "1048576", "billet.fsync": "commit",
		"max.message.bytes": "2048", "segment.bytes": "1048576"}
	for _, s := range info.Config {
		if w, ok := want[s.Name]; ok && (s.Value != w || s.Source != SourceTopic) || !ok && s.Source != SourceDefault {
			t.Errorf("%+v, want %q", s, w)
		}
	}
	if len(info.Config) != len(Settings()) {
		t.Errorf("%d settings of %d", len(info.Config), len(Settings()))
	}
	if err := l.AlterTopic(ctx, "a.b", Alter{Set: map[string]string{"retention.ms": "5"}, Unset: []string{"billet.fsync"}}); err != nil {
		t.Fatal(err)
	}
	if err := l.AddPartitions(ctx, "a.b", 5); err != nil {
		t.Fatal(err)
	}
	if all, err := l.Topics(ctx); err != nil || len(all) != 1 || len(all[0].Partitions) != 5 {
		t.Fatalf("%+v, %v", all, err)
	}
	if m := l.Metrics(); len(m.Topics) != 1 || len(m.Topics[0].Partitions) != 5 {
		t.Fatalf("%+v", m)
	}
	if err := l.DeleteTopic(ctx, "a.b"); err != nil {
		t.Fatal(err)
	}
}

func TestLogTopicErrors(t *testing.T) {
	ctx := testContext(t)
	cat := newFakeCatalog()
	l := newFakeTestLog(t, cat)
	cat.topic("a.b", 2, 1<<20)
	cat.topic("__internal", 1, 1<<20)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	for name, c := range map[string]struct{ err, want error }{
		"exists":         {l.CreateTopic(ctx, Topic{Name: "a.b"}), ErrTopicExists},
		"collides":       {l.CreateTopic(ctx, Topic{Name: "a_b"}), ErrTopicExists},
		"name":           {l.CreateTopic(ctx, Topic{Name: "a b"}), ErrInvalidTopic},
		"reserved":       {l.CreateTopic(ctx, Topic{Name: "__x"}), ErrInvalidTopic},
		"partitions":     {l.CreateTopic(ctx, Topic{Name: "c", Partitions: -1}), ErrInvalidTopic},
		"too many":       {l.CreateTopic(ctx, Topic{Name: "c", Partitions: 10_001}), ErrInvalidTopic},
		"setting":        {l.CreateTopic(ctx, Topic{Name: "c", Config: map[string]string{"no.such": "1"}}), ErrInvalidConfig},
		"value":          {l.CreateTopic(ctx, Topic{Name: "c", Config: map[string]string{"retention.ms": "soon"}}), ErrInvalidConfig},
		"compact":        {l.CreateTopic(ctx, Topic{Name: "c", Config: map[string]string{"cleanup.policy": "compact"}}), ErrInvalidConfig},
		"fsync":          {l.CreateTopic(ctx, Topic{Name: "c", Fsync: "sometimes"}), ErrInvalidConfig},
		"contradiction":  {l.CreateTopic(ctx, Topic{Name: "c", Fsync: FsyncCommit, Config: map[string]string{"billet.fsync": "interval"}}), ErrInvalidConfig},
		"ended":          {l.CreateTopic(ended, Topic{Name: "c"}), context.Canceled},
		"delete":         {l.DeleteTopic(ctx, "none"), ErrUnknownTopic},
		"delete own":     {l.DeleteTopic(ctx, "__internal"), ErrInvalidTopic},
		"delete ended":   {l.DeleteTopic(ended, "a.b"), context.Canceled},
		"add none":       {l.AddPartitions(ctx, "none", 3), ErrUnknownTopic},
		"add fewer":      {l.AddPartitions(ctx, "a.b", 2), ErrInvalidTopic},
		"add own":        {l.AddPartitions(ctx, "__internal", 2), ErrInvalidTopic},
		"add ended":      {l.AddPartitions(ended, "a.b", 3), context.Canceled},
		"alter none":     {l.AlterTopic(ctx, "none", Alter{}), ErrUnknownTopic},
		"alter value":    {l.AlterTopic(ctx, "a.b", Alter{Set: map[string]string{"segment.bytes": "0"}}), ErrInvalidConfig},
		"unset":          {l.AlterTopic(ctx, "a.b", Alter{Unset: []string{"no.such"}}), ErrInvalidConfig},
		"set and unset":  {l.AlterTopic(ctx, "a.b", Alter{Set: map[string]string{"flush.ms": "10"}, Unset: []string{"flush.ms"}}), ErrInvalidConfig},
		"alter own":      {l.AlterTopic(ctx, "__internal", Alter{}), ErrInvalidTopic},
		"alter ended":    {l.AlterTopic(ended, "a.b", Alter{}), context.Canceled},
		"describe":       {second(l.Topic(ctx, "none")), ErrUnknownTopic},
		"describe ended": {second(l.Topic(ended, "a.b")), context.Canceled},
		"topics ended":   {second(l.Topics(ended)), context.Canceled},
		"partition":      {second(l.Partition(ctx, "a.b", 2)), ErrUnknownTopic},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("%s: %v, want %v", name, c.err, c.want)
		}
	}
	cat.mu.err = replication.ErrDiskFull
	if err := l.CreateTopic(ctx, Topic{Name: "d"}); !errors.Is(err, ErrDiskFull) || !Retriable(err) {
		t.Errorf("full disk: %v", err)
	}
}
