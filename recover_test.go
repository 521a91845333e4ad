package billet

import (
	"context"
	"errors"
	"testing"
	"time"
)

// A cluster of one is recovered to itself: nothing is lost, and it takes records again. What is open, or no node's directory, is refused.
func TestRecoverCluster(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	config := Config{Dir: t.TempDir(), JournalBytes: 2 << 20}
	if _, err := RecoverCluster(ctx, config.Dir, 1); !errors.Is(err, ErrForeignDir) {
		t.Errorf("an empty directory: %v", err)
	}
	l, err := Open(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.CreateTopic(ctx, Topic{Name: "t", Partitions: 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Produce(ctx, Record{Topic: "t", Value: []byte("a")}); err != nil {
		t.Fatal(err)
	}
	if _, err := l.RecoverPartition(ctx, "t", 0); !errors.Is(err, ErrMajority) {
		t.Errorf("a partition that works: %v", err)
	}
	if _, err := l.RecoverPartition(ctx, "none", 0); !errors.Is(err, ErrUnknownTopic) {
		t.Errorf("no topic: %v", err)
	}
	if _, err := RecoverCluster(ctx, config.Dir, 1); !errors.Is(err, ErrLocked) {
		t.Errorf("an open node: %v", err)
	}
	id := l.ClusterID()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := RecoverCluster(ctx, config.Dir, 2); !errors.Is(err, ErrForeignDir) {
		t.Errorf("another node's directory: %v", err)
	}
	r, err := RecoverCluster(ctx, config.Dir, 1)
	if err != nil || r.Generation == 0 || r.MetadataEnd == 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	if err := FollowCluster(config.Dir, 1, r.Generation-1); !errors.Is(err, ErrInvalidConfig) {
		t.Errorf("an older generation: %v", err)
	}
	if l, err = Open(config); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}()
	if l.ClusterID() != id {
		t.Error("the cluster has another id")
	}
	at, err := l.Produce(ctx, Record{Topic: "t", Value: []byte("b")})
	if err != nil || at.Offset != 1 {
		t.Errorf("producing afterwards: %+v, %v", at, err)
	}
	if m := l.Metrics(); m.DamagedReplicas != 0 {
		t.Errorf("%d damaged replicas", m.DamagedReplicas)
	}
}
