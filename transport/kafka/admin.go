package kafka

import (
	"context"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/internal/kerr"
)

// NewTopic is a topic to be made.
type NewTopic struct {
	Name string
	// Partitions and Replicas are -1 for the node's defaults.
	Partitions, Replicas int
	// ClampReplicas makes as many replicas as there are nodes that can have one where
	// Replicas asks for more.
	ClampReplicas bool
	// Assignments are the nodes of each partition, the preferred leader first, with
	// counts of -1; nil: the cluster chooses.
	Assignments [][]int32
	// Config has the settings that were given.
	Config map[string]string
}

// ConfigEntry is a setting of a topic or a node.
type ConfigEntry struct {
	Name, Value, Default string
	// NodeName is the name under which nodes have it as a default; "" if none has.
	NodeName string
	// Set says that it was given, for this topic, or for this node at its start.
	Set       bool
	Type      kmsg.ConfigType
	Doc       string
	ReadOnly  bool
	Sensitive bool
}

// LogDir is a directory of this node and what is in it.
type LogDir struct {
	Path             string
	TotalBytes, Free int64           // -1 when not known
	Replicas         []LogDirReplica // by topic and number
}

// LogDirReplica is a replica in a LogDir.
type LogDirReplica struct {
	Topic     string
	Partition int32
	Bytes     int64
	// Lag is how many committed records it lacks.
	Lag int64
}

// Reassignment is a partition that is on its way to other nodes.
type Reassignment struct {
	Topic                      string
	Partition                  int32
	Replicas, Adding, Removing []int32
}

// Admin changes and describes topics and nodes. With validateOnly everything is checked
// and nothing done. Changes return when they are decided and seen on this node; when ctx
// ends before they go on, and are made.
type Admin interface {
	// CreateTopic makes a topic. Errors: INVALID_TOPIC_EXCEPTION, TOPIC_ALREADY_EXISTS,
	// INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR, INVALID_REPLICA_ASSIGNMENT,
	// INVALID_CONFIG.
	CreateTopic(ctx context.Context, t NewTopic, validateOnly bool) (Topic, error)
	// DeleteTopic deletes a topic: that of the name, if it has the id or the id is zero.
	// Errors: UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, INVALID_TOPIC_EXCEPTION when it is internal.
	DeleteTopic(ctx context.Context, name string, id TopicID) error
	// AddPartitions makes a topic have total partitions, the new ones on the given nodes
	// unless that is nil. Errors: UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS,
	// INVALID_REPLICATION_FACTOR, INVALID_REPLICA_ASSIGNMENT.
	AddPartitions(ctx context.Context, name string, total int, assignments [][]int32, validateOnly bool) error
	// AlterTopic gives settings values, or their defaults. Errors:
	// UNKNOWN_TOPIC_OR_PARTITION, INVALID_CONFIG.
	AlterTopic(ctx context.Context, name string, set map[string]string, unset []string, validateOnly bool) error
	// TopicConfig lists the settings of a topic. Errors: UNKNOWN_TOPIC_OR_PARTITION.
	TopicConfig(name string) ([]ConfigEntry, error)
	// Reassign has a partition move to nodes, the first of which is preferred as leader;
	// nil sends one back that is on its way. Errors: UNKNOWN_TOPIC_OR_PARTITION,
	// INVALID_REPLICA_ASSIGNMENT, NO_REASSIGNMENT_IN_PROGRESS.
	Reassign(ctx context.Context, topic string, number int32, nodes []int32) error
	// Reassignments lists the partitions that are on their way, by topic and number.
	Reassignments() []Reassignment
	// ElectPreferred has the preferred replica lead. Errors: UNKNOWN_TOPIC_OR_PARTITION,
	// ELECTION_NOT_NEEDED, PREFERRED_LEADER_NOT_AVAILABLE.
	ElectPreferred(ctx context.Context, topic string, number int32) error
	// LogDirs lists this node's directories.
	LogDirs() []LogDir
	// NodeConfig lists how this node is set up, but for its listeners.
	NodeConfig() []ConfigEntry
	// NewTopicConfig lists the settings that a topic made with config has.
	NewTopicConfig(config map[string]string) []ConfigEntry
}

// clusterName is the name of the cluster in access rules.
const clusterName = "kafka-cluster"

// adminParallel bounds the topics of one request that are worked on at one time.
const adminParallel = 16

// each calls f for 0 to n-1, several at a time, and waits for all.
func each(n int, f func(i int)) {
	var running sync.WaitGroup
	room := make(chan struct{}, adminParallel)
	for i := range n {
		room <- struct{}{}
		running.Go(func() {
			defer func() { <-room }()
			f(i)
		})
	}
	running.Wait()
}

// adminTimeoutMin is how long a change is waited for at least. A client that gives no
// time wants it made nevertheless.
const adminTimeoutMin = time.Second

// alterTimeout bounds changes whose requests do not say how long they may take.
const alterTimeout = 30 * time.Second

// within is the context of a change that is answered in a given time.
func (c *call) within(millis int32) (context.Context, context.CancelFunc) {
	return context.WithTimeout(c.ctx, max(time.Duration(millis)*time.Millisecond, adminTimeoutMin))
}

// repeated tells which of the keys are there more than once.
func repeated[T any, K comparable](list []T, key func(*T) K) map[K]bool {
	count := make(map[K]int, len(list))
	for i := range list {
		count[key(&list[i])]++
	}
	more := map[K]bool{}
	for k, n := range count {
		if n > 1 {
			more[k] = true
		}
	}
	return more
}

// once takes those of a list that have the name of an earlier one out, and tells which
// names those are.
func once[T any](list []T, name func(*T) string) (out []*T, twice map[string]bool) {
	twice = repeated(list, name)
	seen := map[string]bool{}
	for i := range list {
		if n := name(&list[i]); !seen[n] {
			seen[n] = true
			out = append(out, &list[i])
		}
	}
	return out, twice
}

// mayOnTopic says whether the client may do something to a topic, by a rule on topics or
// by one on the cluster.
func (c *call) mayOnTopic(op kmsg.ACLOperation, name string) bool {
	return c.allowed(op, kmsg.ACLResourceTypeCluster, clusterName) || c.allowed(op, kmsg.ACLResourceTypeTopic, name)
}

// notForYou is the answer about a topic that somebody may not touch.
func notForYou() error {
	return kerr.Errorf(kerr.TOPIC_AUTHORIZATION_FAILED, "no access rule allows this on the topic")
}

// topicTwice is the answer about a topic that a request names more than once.
func topicTwice() error {
	return kerr.Errorf(kerr.INVALID_REQUEST, "the topic is named more than once in the request")
}

// notForYouCluster is the answer to what somebody may not do to the cluster.
func notForYouCluster() error {
	return kerr.Errorf(kerr.CLUSTER_AUTHORIZATION_FAILED, "no access rule allows this on the cluster")
}
