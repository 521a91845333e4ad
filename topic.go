package billet

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/billetlog/billet/replication"
)

// Fsync is a topic's policy for when records reach the disk.
type Fsync string

const (
	// FsyncDefault is the Log's default, which is FsyncCommit unless
	// Config.TopicDefaults say otherwise.
	FsyncDefault Fsync = ""
	// FsyncCommit: a record is acknowledged, and seen by consumers, when it is
	// durable.
	FsyncCommit Fsync = "commit"
	// FsyncInterval: a record is acknowledged when the operating system has it,
	// and durable within the topic's flush.ms, which is 1 s by default. A crash
	// of the process loses nothing, a crash of the machine can lose that much;
	// it is reported as EventUnsyncedLost.
	FsyncInterval Fsync = "interval"
)

// Topic describes a topic to create.
type Topic struct {
	// Name has 1 to 249 of the characters a-z A-Z 0-9 . _ - and is neither "."
	// nor "..". Names that begin with "__" are reserved. Two names must not
	// differ only in '.' and '_'.
	Name string
	// Partitions is the number of partitions. Default 1; at most 10,000. It can
	// grow later, which changes where keys go, and never shrink.
	Partitions int
	// Replicas is on how many nodes each partition is. Default 0: three, or as
	// many as there are nodes when they are fewer. AlterTopic changes it.
	Replicas int
	// Retention is how long records are kept: retention.ms. Default 0: the
	// default of the setting, 7 days. Negative: for ever.
	Retention time.Duration
	// RetentionBytes is how many bytes of a partition are kept:
	// retention.bytes. Default 0: no bound, as if negative.
	RetentionBytes int64
	// Fsync is when records reach the disk: billet.fsync.
	Fsync Fsync
	// Config has further settings by Kafka's names; see Settings. A setting
	// that is also given by a field above must have the same value.
	Config map[string]string
}

// Alter changes settings of a topic.
type Alter struct {
	// Set gives settings new values.
	Set map[string]string
	// Unset returns settings to their defaults.
	Unset []string
	// Replicas, unless 0, is on how many nodes each partition is to be. Replicas
	// are made and removed while producers and consumers go on; AlterTopic does
	// not wait for it.
	Replicas int
}

// TopicInfo describes a topic.
type TopicInfo struct {
	Name string
	// ID is another one for each topic that ever had the name.
	ID string
	// Internal topics belong to billet itself.
	Internal bool
	// Config has every setting with its value and where that comes from,
	// sorted by name.
	Config []TopicSetting
	// Partitions has one entry for each partition, in order.
	Partitions []PartitionInfo
}

// TopicSetting is one setting of a topic.
type TopicSetting struct {
	Name, Value string
	// Source is where the value comes from.
	Source SettingSource
}

// SettingSource says where a setting's value comes from.
type SettingSource string

const (
	// SourceTopic: the topic was created with it or altered to it.
	SourceTopic SettingSource = "topic"
	// SourceDefault: built in.
	SourceDefault SettingSource = "default"
)

// PartitionInfo describes a partition at one moment.
type PartitionInfo struct {
	Partition int32
	// Start is the first offset that can be read.
	Start int64
	// HighWatermark is the offset up to which records can be read.
	HighWatermark int64
	// End is the offset the next record gets; what is between HighWatermark
	// and End is not acknowledged yet.
	End int64
	// Bytes is the size of the log on disk.
	Bytes int64
	// Unsynced is the age of the oldest record that is acknowledged and not yet
	// durable; 0 when there is none, as always under fsync=commit. A crash of
	// the machine now would lose records of that age at most.
	Unsynced time.Duration
	// Leader is the id of the node that takes records, or -1 while none is known.
	// LeaderEpoch grows with every change of it.
	Leader      int32
	LeaderEpoch int32
	// Replicas are the partition's copies, the preferred leader first.
	Replicas []ReplicaInfo
	State    PartitionState
	// Err is why nobody takes records, if that is known.
	Err error
}

// ReplicaInfo is one copy of a partition.
type ReplicaInfo struct {
	// Node is the id of the node that has it.
	Node int32
	// Role says what the copy is for.
	Role string
	// Leader tells whether it leads, InSync whether the leader says that it has
	// all it should have.
	Leader, InSync bool
}

// PartitionState says what a partition does at present.
type PartitionState string

// The states of a partition on this node.
const (
	StateLeader      PartitionState = "leader"      // takes records
	StateFollower    PartitionState = "follower"    // another node takes them
	StateStarting    PartitionState = "starting"    // does not yet
	StateOffline     PartitionState = "offline"     // no node has been known to take them for some seconds
	StateFailed      PartitionState = "failed"      // takes no more records, see ErrPartitionFailed
	StateQuarantined PartitionState = "quarantined" // is not served, see ErrQuarantined
	StateClosed      PartitionState = "closed"      // the Log is closed or the topic deleted
)

// maxPartitions bounds the partitions of one topic.
const maxPartitions = replication.MaxPartitions

// config returns the topic's settings in one map, or an ErrInvalidConfig.
func (t *Topic) config() (map[string]string, error) {
	config := maps.Clone(t.Config)
	if config == nil {
		config = map[string]string{}
	}
	set := func(field, name, value string) error {
		if have, ok := config[name]; ok && have != value {
			return fmt.Errorf("%w: %s says %s, Config[%q] says %s", ErrInvalidConfig, field, value, name, have)
		}
		config[name] = value
		return nil
	}
	if t.Retention != 0 {
		ms := int64(-1)
		if t.Retention > 0 {
			ms = max(t.Retention.Milliseconds(), 1)
		}
		if err := set("Retention", settingRetention, strconv.FormatInt(ms, 10)); err != nil {
			return nil, err
		}
	}
	if t.RetentionBytes != 0 {
		if err := set("RetentionBytes", settingRetentionBytes, strconv.FormatInt(max(t.RetentionBytes, -1), 10)); err != nil {
			return nil, err
		}
	}
	if t.Fsync != FsyncDefault {
		if err := set("Fsync", settingFsync, string(t.Fsync)); err != nil {
			return nil, err
		}
	}
	return config, validateSettings(config)
}

// CreateTopic creates a topic. When it returns nil the topic is there for good;
// its partitions may take a moment to take records, which produce waits for.
//
// Errors: ErrTopicExists, ErrInvalidTopic, ErrInvalidConfig, ErrDiskFull,
// ErrClosed, ctx's own. A call whose ctx ends, here and with the other changes of
// topics, returns an ErrAmbiguous besides: the change goes on and will be made,
// unless the Log is closed or the disk fails before.
func (l *Log) CreateTopic(ctx context.Context, t Topic) error {
	if err := l.check(ctx); err != nil {
		return err
	}
	setDefault(&t.Partitions, 1)
	if err := validateTopicName(t.Name); err != nil {
		return fmt.Errorf("billet: create topic %q: %w", t.Name, err)
	}
	if t.Partitions < 1 || t.Partitions > maxPartitions {
		return fmt.Errorf("billet: create topic %q: %w: %d partitions, allowed is 1 to %d",
			t.Name, ErrInvalidTopic, t.Partitions, maxPartitions)
	}
	config, err := t.config()
	if err != nil {
		return fmt.Errorf("billet: create topic %q: %w", t.Name, err)
	}
	for _, other := range l.catalog.Topics() {
		if namesCollide(t.Name, other.Name) {
			return fmt.Errorf("billet: create topic %q: %w as %q: choose another name or delete that one", t.Name, ErrTopicExists, other.Name)
		}
	}
	config = withDefaults(config, l.config.TopicDefaults)
	if err := l.catalog.CreateTopic(ctx, t.Name, t.Partitions, t.Replicas, config); err != nil {
		return fmt.Errorf("billet: create topic %q: %w", t.Name, wrapSeam(err))
	}
	return nil
}

// DeleteTopic deletes a topic and its records. A topic of the same name that is
// created later is another one and starts at offset 0.
//
// Errors: ErrUnknownTopic, ErrInvalidTopic for internal topics, ErrClosed, ctx's
// own.
func (l *Log) DeleteTopic(ctx context.Context, name string) error {
	if err := l.check(ctx); err != nil {
		return err
	}
	if l.isInternal(name) {
		return fmt.Errorf("billet: delete topic %q: %w: it is internal, leave it", name, ErrInvalidTopic)
	}
	if err := l.catalog.DeleteTopic(ctx, name); err != nil {
		return fmt.Errorf("billet: delete topic %q: %w", name, wrapSeam(err))
	}
	return nil
}

// isInternal says whether a topic is billet's own. Kafka clients make others whose names
// are reserved here.
func (l *Log) isInternal(name string) bool {
	t, ok := l.catalog.Topic(name)
	return ok && t.Internal
}

// AddPartitions makes the topic have total partitions. Keys go elsewhere from
// then on, since a key's partition depends on the number of partitions.
//
// Errors: ErrUnknownTopic; ErrInvalidTopic when total is not above the present
// number, or beyond 10,000; ErrClosed; ctx's own.
func (l *Log) AddPartitions(ctx context.Context, name string, total int) error {
	if err := l.check(ctx); err != nil {
		return err
	}
	state, ok := l.catalog.Topic(name)
	if !ok {
		return fmt.Errorf("billet: add partitions to %q: %w: %s", name, ErrUnknownTopic, adviceUnknownTopic)
	}
	if state.Internal || total <= state.Partitions || total > maxPartitions {
		return fmt.Errorf("billet: add partitions to %q: %w: %d of %d, allowed is more, up to %d, and no internal topic",
			name, ErrInvalidTopic, total, state.Partitions, maxPartitions)
	}
	if err := l.catalog.AddPartitions(ctx, name, total); err != nil {
		return fmt.Errorf("billet: add partitions to %q: %w", name, wrapSeam(err))
	}
	return nil
}

// AlterTopic changes settings, which hold at once for records to come and with
// the next check for retention.
//
// Errors: ErrUnknownTopic, ErrInvalidConfig, ErrNotEnoughNodes, ErrClosed, ctx's
// own.
func (l *Log) AlterTopic(ctx context.Context, name string, alter Alter) error {
	if err := l.check(ctx); err != nil {
		return err
	}
	err := validateSettings(alter.Set)
	for _, key := range alter.Unset {
		if _, both := alter.Set[key]; err == nil && both {
			err = fmt.Errorf("%w: %q is both set and unset", ErrInvalidConfig, key)
		}
		if err == nil && !isSetting(key) {
			err = fmt.Errorf("%w: no setting %q", ErrInvalidConfig, key)
		}
	}
	if err != nil {
		return fmt.Errorf("billet: alter topic %q: %w", name, err)
	}
	if l.isInternal(name) {
		return fmt.Errorf("billet: alter topic %q: %w: it is internal, leave it", name, ErrInvalidTopic)
	}
	if len(alter.Set)+len(alter.Unset) > 0 || alter.Replicas == 0 {
		err = l.catalog.AlterTopic(ctx, name, alter.Set, alter.Unset)
	}
	if err == nil && alter.Replicas != 0 {
		err = l.cluster.SetReplicas(ctx, name, alter.Replicas)
	}
	if err != nil {
		return fmt.Errorf("billet: alter topic %q: %w", name, wrapSeam(err))
	}
	return nil
}

// Topics describes all topics, sorted by name, internal ones included. Of a
// partition whose leader does not answer within a second it tells what was heard
// of it last. Errors:
// ErrClosed, ctx's own.
func (l *Log) Topics(ctx context.Context) ([]TopicInfo, error) {
	if err := l.check(ctx); err != nil {
		return nil, err
	}
	states := l.catalog.Topics()
	l.refresh(ctx, states...)
	infos := make([]TopicInfo, 0, len(states))
	for _, state := range states {
		infos = append(infos, l.describe(state))
	}
	return infos, nil
}

// Topic describes one topic. Errors: ErrUnknownTopic, ErrClosed, ctx's own.
func (l *Log) Topic(ctx context.Context, name string) (TopicInfo, error) {
	if err := l.check(ctx); err != nil {
		return TopicInfo{}, err
	}
	state, ok := l.catalog.Topic(name)
	if !ok {
		return TopicInfo{}, fmt.Errorf("billet: topic %q: %w: %s", name, ErrUnknownTopic, adviceUnknownTopic)
	}
	l.refresh(ctx, state)
	return l.describe(state), nil
}

func (l *Log) describe(state topicState) TopicInfo {
	info := TopicInfo{Name: state.Name, ID: state.ID, Internal: state.Internal,
		Config:     effectiveSettings(state.Config),
		Partitions: make([]PartitionInfo, state.Partitions)}
	for n := range info.Partitions {
		info.Partitions[n] = l.describePartition(state.Name, int32(n))
	}
	return info
}

func (l *Log) describePartition(topic string, n int32) PartitionInfo {
	info := PartitionInfo{Partition: n, Leader: -1, State: StateStarting}
	log, err := l.catalog.Partition(topic, n)
	if err != nil {
		info.Err = wrapSeam(err)
		return info
	}
	at := log.Info()
	info.Start, info.HighWatermark, info.End = at.Start, at.HighWatermark, at.End
	info.Bytes, info.Unsynced = at.Size, at.Unsynced
	info.State, info.Err = partitionState(&at), wrapSeam(at.Cause)
	if at.Leader > 0 {
		info.Leader, info.LeaderEpoch = at.Leader, at.Epoch
	}
	for _, r := range at.Replicas {
		info.Replicas = append(info.Replicas, ReplicaInfo{Node: r.Node, Role: r.Role.String(), Leader: r.Leader, InSync: r.InSync})
	}
	return info
}
