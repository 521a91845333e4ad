package replication

import (
	"fmt"
	"math"
	"sort"
	"strconv"
	"strings"
	"time"
)

// Fsync is when an acknowledged record is durable.
type Fsync int

// The fsync policies.
const (
	FsyncCommit   Fsync = iota // before it is acknowledged
	FsyncInterval              // within flush.ms after it was acknowledged
)

// String is the policy's name in billet.fsync.
func (f Fsync) String() string {
	if f == FsyncInterval {
		return "interval"
	}
	return "commit"
}

// Settings are a topic's settings, parsed.
type Settings struct {
	Fsync              Fsync
	FlushInterval      time.Duration
	SegmentBytes       int64
	SegmentAge         time.Duration
	RetentionAge       time.Duration // negative: no limit
	RetentionBytes     int64         // per partition; negative: no limit
	IndexIntervalBytes int
	MaxMessageBytes    int // of one record batch
	LogAppendTime      bool
	TimestampBeforeMax time.Duration // negative: no limit
	TimestampAfterMax  time.Duration
	MinInsyncReplicas  int // for acks=all
}

// SettingType is the kind of value that a setting has, as Kafka tells them apart.
type SettingType uint8

// The types of settings.
const (
	SettingString SettingType = iota
	SettingBoolean
	SettingInt
	SettingLong
	SettingDouble
	SettingList // of values with commas between them
)

// setting is one entry of the table of topic settings: Kafka's name where Kafka has one.
type setting struct {
	name       string
	kind       SettingType
	value, doc string
	set        func(*Settings, string) error
}

// fixed makes a setting that Kafka has and of which this program does only what its default says: nothing else is taken, so that nobody relies on
// what does not happen.
func fixed(name string, kind SettingType, value, doc string) setting {
	return setting{name, kind, value, doc, func(_ *Settings, v string) error {
		if v == value {
			return nil
		}
		if value == "" {
			return fmt.Errorf("must be empty, no other value is supported: %s", doc)
		}
		return fmt.Errorf("must be %s, no other value is supported: %s", value, doc)
	}}
}

const unlimited = "9223372036854775807"

// settingsTable lists every topic setting with its default. Names, units and defaults are Kafka's where Kafka has the setting; segment.bytes
// is smaller than Kafka's 1 GiB since small machines are expected. Those that are fixed are there for tools that look for them.
var settingsTable = []setting{
	{"billet.fsync", SettingString, "commit", "commit: durable before it is acknowledged; interval: within flush.ms after", func(s *Settings, v string) error {
		return oneOf(v, map[string]func(){"commit": func() { s.Fsync = FsyncCommit }, "interval": func() { s.Fsync = FsyncInterval }})
	}},
	fixed("cleanup.policy", SettingList, "delete", "how old records go: by retention. Compaction is not there yet"),
	fixed("compression.gzip.level", SettingInt, "-1", "of no effect: batches are kept as the producer sent them"),
	fixed("compression.lz4.level", SettingInt, "9", "of no effect: batches are kept as the producer sent them"),
	fixed("compression.type", SettingString, "producer", "batches are kept as the producer sent them"),
	fixed("compression.zstd.level", SettingInt, "3", "of no effect: batches are kept as the producer sent them"),
	fixed("delete.retention.ms", SettingLong, "86400000", "how long a compacted topic keeps the marks of deleted keys: of no effect without compaction"),
	fixed("file.delete.delay.ms", SettingLong, "60000", "of no effect: files are deleted when no reader has them any more"),
	fixed("flush.messages", SettingLong, unlimited, "records after which the disk is synced: billet.fsync and flush.ms say when that is"),
	{"flush.ms", SettingLong, "1000", "under billet.fsync=interval, the age at most of an acknowledged record that is not durable", func(s *Settings, v string) error {
		return millis(v, flushMillisMin, 600_000, &s.FlushInterval)
	}},
	fixed("follower.replication.throttled.replicas", SettingList, "", "replicas whose copying is throttled: Cluster.CatchupBytesPerSecond does so for the node"),
	{"index.interval.bytes", SettingInt, "4096", "bytes of log between two index entries", func(s *Settings, v string) error {
		return number(v, 512, 1<<20, func(n int64) { s.IndexIntervalBytes = int(n) })
	}},
	fixed("leader.replication.throttled.replicas", SettingList, "", "replicas from which copying is throttled: Cluster.CatchupBytesPerSecond does so for the node"),
	fixed("local.retention.bytes", SettingLong, "-2", "of no effect without remote storage"),
	fixed("local.retention.ms", SettingLong, "-2", "of no effect without remote storage"),
	fixed("max.compaction.lag.ms", SettingLong, unlimited, "of no effect without compaction"),
	{"max.message.bytes", SettingInt, "1048588", "size of a record batch at most", func(s *Settings, v string) error {
		return number(v, 1024, maxMessageBytesMax, func(n int64) { s.MaxMessageBytes = int(n) })
	}},
	{"message.timestamp.after.max.ms", SettingLong, "3600000", "how far ahead of the clock a record's timestamp may be", func(s *Settings, v string) error {
		return millis(v, 0, math.MaxInt64, &s.TimestampAfterMax)
	}},
	{"message.timestamp.before.max.ms", SettingLong, unlimited, "how far behind the clock a record's timestamp may be", func(s *Settings, v string) error {
		return millis(v, 0, math.MaxInt64, &s.TimestampBeforeMax)
	}},
	{"message.timestamp.type", SettingString, "CreateTime", "CreateTime: the producer's; LogAppendTime: the leader's clock", func(s *Settings, v string) error {
		return oneOf(v, map[string]func(){"CreateTime": func() { s.LogAppendTime = false }, "LogAppendTime": func() { s.LogAppendTime = true }})
	}},
	fixed("min.cleanable.dirty.ratio", SettingDouble, "0.5", "of no effect without compaction"),
	fixed("min.compaction.lag.ms", SettingLong, "0", "of no effect without compaction"),
	{"min.insync.replicas", SettingInt, "1", "replicas that must be in sync for acks=all, and have a batch before it is answered", func(s *Settings, v string) error {
		return number(v, 1, minInsyncMax, func(n int64) { s.MinInsyncReplicas = int(n) })
	}},
	fixed("preallocate", SettingBoolean, "false", "of no effect: the node decides how it makes files"),
	fixed("remote.copy.disable", SettingBoolean, "false", "of no effect without remote storage"),
	fixed("remote.log.delete.on.disable", SettingBoolean, "false", "of no effect without remote storage"),
	fixed("remote.storage.enable", SettingBoolean, "false", "records are stored on the nodes only"),
	{"retention.bytes", SettingLong, "-1", "bytes kept per partition; -1: no limit", func(s *Settings, v string) error {
		return number(v, -1, math.MaxInt64, func(n int64) { s.RetentionBytes = n })
	}},
	{"retention.ms", SettingLong, "604800000", "how long records are kept; -1: for ever", func(s *Settings, v string) error {
		return millis(v, -1, math.MaxInt64, &s.RetentionAge)
	}},
	{"segment.bytes", SettingInt, "268435456", "size at which a segment is closed and a new one begun", func(s *Settings, v string) error {
		return number(v, segmentBytesMin, segmentBytesMax, func(n int64) { s.SegmentBytes = n })
	}},
	fixed("segment.index.bytes", SettingInt, "10485760", "of no effect: an index is as large as its segment needs"),
	fixed("segment.jitter.ms", SettingLong, "0", "of no effect: segments are closed when segment.ms says"),
	{"segment.ms", SettingLong, "604800000", "age of a segment's first record at which a new one is begun, however small it is", func(s *Settings, v string) error {
		return millis(v, 1, math.MaxInt64, &s.SegmentAge)
	}},
	fixed("unclean.leader.election.enable", SettingBoolean, "false", "only a replica that has all acknowledged records is elected"),
}

const (
	maxMessageBytesMax = 32 << 20
	segmentBytesMin    = 64 << 10
	segmentBytesMax    = 1 << 30
	flushMillisMin     = 40      // the keeper looks every keeperTick
	minInsyncMax       = 1 << 15 // any count of replicas that can be
)

// SettingInfo describes a topic setting.
type SettingInfo struct {
	Name, Default, Doc string
	Type               SettingType
}

// KnownSettings lists the topic settings, by name.
func KnownSettings() []SettingInfo {
	out := make([]SettingInfo, len(settingsTable))
	for i, s := range settingsTable {
		out[i] = SettingInfo{s.name, s.value, s.doc, s.kind}
	}
	return out
}

// ParseSettings reads a topic's settings; what config does not name has its default. An unknown name or a bad value is ErrInvalidConfig.
func ParseSettings(config map[string]string) (Settings, error) {
	var s Settings
	known := make(map[string]bool, len(settingsTable))
	for _, t := range settingsTable {
		known[t.name] = true
		v, ok := config[t.name]
		if !ok {
			v = t.value
		}
		if err := t.set(&s, v); err != nil {
			return Settings{}, fmt.Errorf("%w: %s=%q: %w", ErrInvalidConfig, t.name, v, err)
		}
	}
	for name := range config {
		if !known[name] {
			return Settings{}, fmt.Errorf("%w: %q is not known; known are %s", ErrInvalidConfig, name, strings.Join(settingNames(), ", "))
		}
	}
	// Time-based retention works on closed segments: one must not stay open longer than its records may live.
	if s.RetentionAge >= 0 && (s.SegmentAge < 0 || s.SegmentAge > s.RetentionAge) {
		s.SegmentAge = max(s.RetentionAge, time.Millisecond)
	}
	return s, nil
}

func settingNames() []string {
	names := make([]string, len(settingsTable))
	for i, t := range settingsTable {
		names[i] = t.name
	}
	sort.Strings(names)
	return names
}

func oneOf(v string, choices map[string]func()) error {
	if set, ok := choices[v]; ok {
		set()
		return nil
	}
	names := make([]string, 0, len(choices))
	for n := range choices {
		names = append(names, n)
	}
	sort.Strings(names)
	return fmt.Errorf("must be %s", strings.Join(names, " or "))
}

func number(v string, low, high int64, set func(int64)) error {
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil || n < low || n > high {
		return fmt.Errorf("must be a whole number from %d to %d", low, high)
	}
	set(n)
	return nil
}

// millis reads a duration in milliseconds; what does not fit a Duration (some 292 years) is no limit, as is -1.
func millis(v string, low, high int64, d *time.Duration) error {
	return number(v, low, high, func(n int64) {
		switch {
		case n < 0 || n > math.MaxInt64/int64(time.Millisecond):
			*d = -1
		default:
			*d = time.Duration(n) * time.Millisecond
		}
	})
}
