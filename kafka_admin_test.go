package billet

import (
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	wirekerr "github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/internal/kerr"
)

// openKafkaAdmin opens a log with a listener and a client that asks it.
func openKafkaAdmin(t *testing.T, config Config) (*Log, *kgo.Client) {
	t.Helper()
	config.Dir, config.Kafka.Addr = t.TempDir(), "127.0.0.1:0"
	log, err := Open(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	})
	client, err := kgo.NewClient(kgo.SeedBrokers(log.KafkaAddr()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return log, client
}

// askKafka sends a request to the client's only node.
func askKafka[R kmsg.Response](t *testing.T, client *kgo.Client, q kmsg.Request) R {
	t.Helper()
	r, err := client.SeedBrokers()[0].Request(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	return r.(R)
}

func newKafkaTopic(name string, partitions int32, replicas int16, config ...string) kmsg.CreateTopicsRequestTopic {
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = name, partitions, replicas
	for i := 0; i < len(config); i += 2 {
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		c.Name, c.Value = config[i], &config[i+1]
		t.Configs = append(t.Configs, c)
	}
	return t
}

func TestKafkaCreateAndDeleteTopics(t *testing.T) {
	log, client := openKafkaAdmin(t, Config{Kafka: Kafka{DefaultPartitions: 2}, TopicDefaults: map[string]string{"segment.ms": "60000"}})
	long := make([]byte, 250)
	for i := range long {
		long[i] = 'x'
	}
	for _, c := range []struct {
		topic kmsg.CreateTopicsRequestTopic
		code  int16
	}{
		{newKafkaTopic("a.b", -1, -1, "retention.ms", "5000"), 0},
		{newKafkaTopic("a.b", 1, 1), kerr.TOPIC_ALREADY_EXISTS},
		{newKafkaTopic("a_b", 1, 1), kerr.INVALID_TOPIC_EXCEPTION},
		{newKafkaTopic("", 1, 1), kerr.INVALID_TOPIC_EXCEPTION},
		{newKafkaTopic("..", 1, 1), kerr.INVALID_TOPIC_EXCEPTION},
		{newKafkaTopic("a b", 1, 1), kerr.INVALID_TOPIC_EXCEPTION},
		{newKafkaTopic(string(long), 1, 1), kerr.INVALID_TOPIC_EXCEPTION},
		{newKafkaTopic(string(long[1:]), 1, 1), 0},
		{newKafkaTopic("__consumer_offsets", 1, 1), kerr.INVALID_TOPIC_EXCEPTION},
		{newKafkaTopic("__heartbeat", 1, 1), 0},
		{newKafkaTopic("p", 0, 1), kerr.INVALID_PARTITIONS},
		{newKafkaTopic("p", -2, 1), kerr.INVALID_PARTITIONS},
		{newKafkaTopic("p", 10_001, 1), kerr.INVALID_PARTITIONS},
		{newKafkaTopic("p", 1, 0), kerr.INVALID_REPLICATION_FACTOR},
		{newKafkaTopic("p", 1, 2), kerr.INVALID_REPLICATION_FACTOR},
		{newKafkaTopic("p", 1, 1, "no.such.key", "1"), kerr.INVALID_CONFIG},
		{newKafkaTopic("p", 1, 1, "retention.ms", "soon"), kerr.INVALID_CONFIG},
		{newKafkaTopic("p", 1, 1, "cleanup.policy", "compact"), kerr.INVALID_CONFIG},
	} {
		for _, only := range []bool{true, false} {
			q := kmsg.NewPtrCreateTopicsRequest()
			q.Topics, q.ValidateOnly = append(q.Topics, c.topic), only
			got := askKafka[*kmsg.CreateTopicsResponse](t, client, q).Topics[0]
			if got.ErrorCode != c.code {
				t.Errorf("%.20q: code %d, want %d: %v", c.topic.Topic, got.ErrorCode, c.code, got.ErrorMessage)
			}
			if (got.ErrorMessage == nil) != (c.code == 0) {
				t.Errorf("%.20q: code %d with the message %v", c.topic.Topic, c.code, got.ErrorMessage)
			}
		}
	}
	info, err := log.Topic(t.Context(), "a.b")
	if err != nil || len(info.Partitions) != 2 {
		t.Fatalf("%+v %v", info, err)
	}
	set := map[string]string{}
	for _, s := range info.Config {
		if s.Source == SourceTopic {
			set[s.Name] = s.Value
		}
	}
	if len(set) != 2 || set["retention.ms"] != "5000" || set["segment.ms"] != "60000" {
		t.Errorf("settings %v", set)
	}
	if err := log.DeleteTopic(t.Context(), "__heartbeat"); err != nil {
		t.Error(err)
	}
	q := kmsg.NewPtrDeleteTopicsRequest()
	for _, name := range []string{"a.b", "a.b2", "__cluster_metadata"} {
		q.TopicNames = append(q.TopicNames, name)
		q.Topics = append(q.Topics, kmsg.DeleteTopicsRequestTopic{Topic: kmsg.StringPtr(name)})
	}
	for i, got := range askKafka[*kmsg.DeleteTopicsResponse](t, client, q).Topics {
		if want := []int16{0, kerr.UNKNOWN_TOPIC_OR_PARTITION, kerr.UNKNOWN_TOPIC_OR_PARTITION}[i]; got.ErrorCode != want {
			t.Errorf("%s: code %d, want %d", *got.Topic, got.ErrorCode, want)
		}
	}
	if _, err := log.Topic(t.Context(), "a.b"); err == nil {
		t.Error("the topic is still there")
	}
}

func TestKafkaAssignments(t *testing.T) {
	_, client := openKafkaAdmin(t, Config{NodeID: 4})
	assign := func(name string, nodes ...[]int32) kmsg.CreateTopicsRequestTopic {
		topic := newKafkaTopic(name, -1, -1)
		for i, on := range nodes {
			topic.ReplicaAssignment = append(topic.ReplicaAssignment, kmsg.CreateTopicsRequestTopicReplicaAssignment{Partition: int32(i), Replicas: on})
		}
		return topic
	}
	gap := assign("gap", []int32{4}, []int32{4})
	gap.ReplicaAssignment[1].Partition = 2
	twice := assign("twice", []int32{4}, []int32{4})
	twice.ReplicaAssignment[1].Partition = 0
	counted := assign("counted", []int32{4})
	counted.NumPartitions = 1
	factored := assign("factored", []int32{4})
	factored.ReplicationFactor = 1
	for _, c := range []struct {
		topic kmsg.CreateTopicsRequestTopic
		code  int16
	}{
		{assign("good", []int32{4}, []int32{4}, []int32{4}), 0},
		{assign("unknown", []int32{4}, []int32{5}), kerr.INVALID_REPLICA_ASSIGNMENT},
		{assign("negative", []int32{-4}), kerr.INVALID_REPLICA_ASSIGNMENT},
		{assign("same", []int32{4, 4}), kerr.INVALID_REPLICA_ASSIGNMENT},
		{assign("uneven", []int32{4}, []int32{4, 5}), kerr.INVALID_REPLICA_ASSIGNMENT},
		{assign("none", []int32{}), kerr.INVALID_REPLICA_ASSIGNMENT},
		{gap, kerr.INVALID_REPLICA_ASSIGNMENT},
		{twice, kerr.INVALID_REPLICA_ASSIGNMENT},
		{counted, kerr.INVALID_REQUEST},
		{factored, kerr.INVALID_REQUEST},
	} {
		q := kmsg.NewPtrCreateTopicsRequest()
		q.Topics = append(q.Topics, c.topic)
		got := askKafka[*kmsg.CreateTopicsResponse](t, client, q).Topics[0]
		if got.ErrorCode != c.code || c.code == 0 && (got.NumPartitions != 3 || got.ReplicationFactor != 1) {
			t.Errorf("%s: %+v, want code %d", c.topic.Topic, got, c.code)
		}
	}
	more := kmsg.NewPtrCreatePartitionsRequest()
	more.Topics = []kmsg.CreatePartitionsRequestTopic{{Topic: "good", Count: 4, Assignment: []kmsg.CreatePartitionsRequestTopicAssignment{{Replicas: []int32{5}}}}}
	if got := askKafka[*kmsg.CreatePartitionsResponse](t, client, more).Topics[0]; got.ErrorCode != kerr.INVALID_REPLICA_ASSIGNMENT {
		t.Errorf("more on a node that is not there: %+v", got)
	}
	more.Topics[0].Assignment[0].Replicas = []int32{4}
	if got := askKafka[*kmsg.CreatePartitionsResponse](t, client, more).Topics[0]; got.ErrorCode != 0 {
		t.Errorf("more: %+v", got)
	}
}

// kadm, which tools are made with, changes topics and finds them as they are.
func TestKafkaAdminClient(t *testing.T) {
	log, client := openKafkaAdmin(t, Config{TopicDefaults: map[string]string{"segment.ms": "60000"}})
	adm := kadm.NewClient(client)
	ctx := t.Context()
	if _, err := adm.CreateTopic(ctx, 1, -1, map[string]*string{"retention.ms": kadm.StringPtr("5000")}, "a"); err != nil {
		t.Fatal(err)
	}
	more, err := adm.UpdatePartitions(ctx, 3, "a", "none")
	if err != nil || more["a"].Err != nil || more["none"].Err == nil {
		t.Fatalf("%+v %v", more, err)
	}
	if info, err := log.Topic(ctx, "a"); err != nil || len(info.Partitions) != 3 {
		t.Fatalf("%+v %v", info, err)
	}
	altered, err := adm.AlterTopicConfigs(ctx, []kadm.AlterConfig{
		{Op: kadm.SetConfig, Name: "retention.bytes", Value: kadm.StringPtr("1000000")}, {Op: kadm.DeleteConfig, Name: "retention.ms"},
		{Op: kadm.AppendConfig, Name: "cleanup.policy", Value: kadm.StringPtr("delete")},
	}, "a")
	if err != nil || altered[0].Err != nil {
		t.Fatalf("%+v %v", altered, err)
	}
	refused, err := adm.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.AppendConfig, Name: "cleanup.policy", Value: kadm.StringPtr("compact")}}, "a")
	if err != nil || !errors.Is(refused[0].Err, wirekerr.InvalidConfig) {
		t.Errorf("%+v %v", refused, err)
	}
	described, err := adm.DescribeTopicConfigs(ctx, "a")
	if err != nil || described[0].Err != nil {
		t.Fatalf("%+v %v", described, err)
	}
	have := map[string]kadm.Config{}
	for _, c := range described[0].Configs {
		have[c.Key] = c
	}
	for name, value := range map[string]string{"retention.bytes": "1000000", "segment.ms": "60000", "cleanup.policy": "delete"} {
		if c := have[name]; c.MaybeValue() != value || c.Source != kmsg.ConfigSourceDynamicTopicConfig {
			t.Errorf("%s is %+v", name, c)
		}
	}
	if c := have["retention.ms"]; c.MaybeValue() != "604800000" || c.Source != kmsg.ConfigSourceDefaultConfig {
		t.Errorf("retention.ms is %+v", c)
	}
	for _, s := range Settings() {
		if c, ok := have[s.Name]; !ok || c.Sensitive || c.Value == nil {
			t.Errorf("%s is %+v", s.Name, c)
		}
	}
	node, err := adm.DescribeBrokerConfigs(ctx, 1)
	if err != nil || len(node) != 1 || node[0].Err != nil {
		t.Fatalf("%+v %v", node, err)
	}
	have = map[string]kadm.Config{}
	for _, c := range node[0].Configs {
		have[c.Key] = c
	}
	for name, value := range map[string]string{"node.id": "1", "log.roll.ms": "60000", "log.retention.ms": "604800000", "message.max.bytes": "1048588", "num.partitions": "1",
		"advertised.listeners": "CLIENT://" + log.KafkaAddr(), "auto.create.topics.enable": "false", "delete.topic.enable": "true",
		"offsets.retention.minutes": "10080", "group.initial.rebalance.delay.ms": "3000"} {
		if c := have[name]; c.MaybeValue() != value {
			t.Errorf("%s is %q, want %q", name, c.MaybeValue(), value)
		}
	}
}

// Where records are, and where they shall be.
func TestKafkaReplicas(t *testing.T) {
	log, client := openKafkaAdmin(t, Config{})
	ctx := t.Context()
	adm := kadm.NewClient(client)
	if _, err := adm.CreateTopic(ctx, 2, 1, nil, "a"); err != nil {
		t.Fatal(err)
	}
	dirs, err := adm.DescribeAllLogDirs(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	dirs.Each(func(d kadm.DescribedLogDir) {
		d.Topics.Each(func(p kadm.DescribedLogDirPartition) {
			if p.Topic == "a" && p.Size > 0 && p.OffsetLag == 0 {
				found++
			} else {
				t.Errorf("%+v", p)
			}
		})
		if d.Dir != log.config.Dir {
			t.Errorf("the directory is %q", d.Dir)
		}
	})
	if found != 2 {
		t.Errorf("%d partitions are in the directory", found)
	}
	var move kadm.AlterPartitionAssignmentsReq
	move.Assign("a", 0, []int32{9})
	move.Assign("none", 0, []int32{1})
	move.CancelAssign("a", 1)
	moved, err := adm.AlterPartitionAssignments(ctx, move)
	if err != nil {
		t.Fatal(err)
	}
	for topic, want := range map[string]map[int32]error{"a": {0: wirekerr.InvalidReplicaAssignment, 1: wirekerr.NoReassignmentInProgress}, "none": {0: wirekerr.UnknownTopicOrPartition}} {
		for n, err := range want {
			if got := moved[topic][n].Err; !errors.Is(got, err) {
				t.Errorf("%s-%d: %v, want %v", topic, n, got, err)
			}
		}
	}
	listed, err := adm.ListPartitionReassignments(ctx, nil)
	if err != nil || len(listed) != 0 {
		t.Errorf("%+v %v", listed, err)
	}
	var set kadm.TopicsSet
	set.Add("a", 0)
	set.Add("a", 5)
	elected, err := adm.ElectLeaders(ctx, kadm.ElectPreferredReplica, set)
	if err != nil || !errors.Is(elected["a"][0].Err, wirekerr.ElectionNotNeeded) || !errors.Is(elected["a"][5].Err, wirekerr.UnknownTopicOrPartition) {
		t.Errorf("%+v %v", elected, err)
	}
	if elected, err = adm.ElectLeaders(ctx, kadm.ElectPreferredReplica, nil); err != nil || len(elected) != 0 {
		t.Errorf("all: %+v %v", elected, err)
	}
	q := kmsg.NewPtrDescribeClusterRequest()
	if r := askKafka[*kmsg.DescribeClusterResponse](t, client, q); r.ClusterID != log.ClusterID() || len(r.Brokers) != 1 || r.ControllerID != 1 {
		t.Errorf("%+v", r)
	}
}
