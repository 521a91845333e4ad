package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/billetlog/billet"
)

const (
	topic      = "events"
	partitions = 8
	replicas   = 3
)

// lookEvery is how often the state of the cluster is looked at.
const lookEvery = 50 * time.Millisecond

// until looks again and again whether something is so.
func until(ctx context.Context, what string, look func() (bool, error)) error {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		ok, err := look()
		if ok || err != nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("waiting until %s: %w", what, context.Cause(ctx))
		}
	}
}

// createTopic waits for enough nodes and creates the topic, unless it is there.
func createTopic(ctx context.Context, log *billet.Log) error {
	return until(ctx, fmt.Sprintf("%d nodes are up and topic %q is there", replicas, topic), func() (bool, error) {
		err := log.CreateTopic(ctx, billet.Topic{
			Name: topic, Partitions: partitions, Replicas: replicas,
			// An acknowledged record is on the disks of two nodes at least.
			Config: map[string]string{"min.insync.replicas": "2"},
		})
		switch {
		case errors.Is(err, billet.ErrTopicExists):
			return true, nil
		case errors.Is(err, billet.ErrNotEnoughNodes):
			return false, nil
		}
		return err == nil, err
	})
}

// awaitTopic waits until the topic is there and all its partitions have a leader.
func awaitTopic(ctx context.Context, log *billet.Log) error {
	return until(ctx, fmt.Sprintf("topic %q has leaders", topic), func() (bool, error) {
		at, err := lookAt(ctx, log)
		return len(at) > 0 && !slices.ContainsFunc(at, func(p billet.PartitionInfo) bool { return p.Leader < 0 }), err
	})
}

// layout is where partitions are led and which replicas are in sync.
type layout []billet.PartitionInfo

// lookAt tells the topic's layout as a node knows it: an empty one while there is
// no topic.
func lookAt(ctx context.Context, log *billet.Log) (layout, error) {
	info, err := log.Topic(ctx, topic)
	if errors.Is(err, billet.ErrUnknownTopic) {
		return nil, nil
	}
	return info.Partitions, err
}

// leads lists the partitions that a node leads.
func (l layout) leads(node int32) []int32 {
	var led []int32
	for _, p := range l {
		if p.Leader == node {
			led = append(led, p.Partition)
		}
	}
	return led
}

// inSync tells on how many partitions a node has a replica that is in sync.
func (l layout) inSync(node int32) int {
	n := 0
	for _, p := range l {
		if slices.ContainsFunc(p.Replicas, func(r billet.ReplicaInfo) bool { return r.Node == node && r.InSync }) {
			n++
		}
	}
	return n
}

// most is the node that leads most partitions.
func (l layout) most() int32 {
	var best int32
	for _, p := range l {
		if p.Leader > 0 && (best == 0 || len(l.leads(p.Leader)) > len(l.leads(best))) {
			best = p.Leader
		}
	}
	return best
}

// String tells who leads what.
func (l layout) String() string {
	if len(l) == 0 {
		return fmt.Sprintf("no topic %q yet", topic)
	}
	var nodes []int32
	for _, p := range l {
		if !slices.Contains(nodes, p.Leader) {
			nodes = append(nodes, p.Leader)
		}
	}
	slices.Sort(nodes)
	var parts []string
	for _, n := range nodes {
		who := fmt.Sprintf("node %d", n)
		if n < 0 {
			who = "nobody"
		}
		parts = append(parts, fmt.Sprintf("%s leads %s", who, strings.Trim(fmt.Sprint(l.leads(n)), "[]")))
	}
	return strings.Join(parts, "; ")
}
