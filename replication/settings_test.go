package replication

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// settingCase is one setting: what is accepted at both ends, what is just beyond, and what the parsed value then is.
type settingCase struct {
	name     string
	fallback any
	good     map[string]any
	bad      []string
	get      func(*Settings) any
}

const forEver = time.Duration(-1)

var settingCases = []settingCase{
	{"billet.fsync", FsyncCommit, map[string]any{"commit": FsyncCommit, "interval": FsyncInterval}, []string{"Commit", "never"},
		func(s *Settings) any { return s.Fsync }},
	{"flush.ms", time.Second, map[string]any{fmt.Sprint(flushMillisMin): flushMillisMin * time.Millisecond, "600000": 10 * time.Minute},
		[]string{fmt.Sprint(flushMillisMin - 1), "600001", "-1"}, func(s *Settings) any { return s.FlushInterval }},
	{"index.interval.bytes", 4096, map[string]any{"512": 512, "1048576": 1 << 20}, []string{"511", "1048577"},
		func(s *Settings) any { return s.IndexIntervalBytes }},
	{"max.message.bytes", 1048588, map[string]any{"1024": 1024, "33554432": 32 << 20}, []string{"1023", "33554433"},
		func(s *Settings) any { return s.MaxMessageBytes }},
	{"message.timestamp.after.max.ms", time.Hour, map[string]any{"0": time.Duration(0), unlimited: forEver}, []string{"-1", "9223372036854775808"},
		func(s *Settings) any { return s.TimestampAfterMax }},
	{"message.timestamp.before.max.ms", forEver, map[string]any{"0": time.Duration(0), unlimited: forEver}, []string{"-1", "9223372036854775808"},
		func(s *Settings) any { return s.TimestampBeforeMax }},
	{"message.timestamp.type", false, map[string]any{"CreateTime": false, "LogAppendTime": true}, []string{"createtime", "NoTimestampType"},
		func(s *Settings) any { return s.LogAppendTime }},
	{"min.insync.replicas", 1, map[string]any{"1": 1, "32768": 32768}, []string{"0", "-1", "32769", "all"}, func(s *Settings) any { return s.MinInsyncReplicas }},
	{"retention.bytes", int64(-1), map[string]any{"-1": int64(-1), "0": int64(0), unlimited: int64(1<<63 - 1)}, []string{"-2", "9223372036854775808"},
		func(s *Settings) any { return s.RetentionBytes }},
	{"retention.ms", 168 * time.Hour, map[string]any{"-1": forEver, "0": time.Duration(0), "9223372036854": 9223372036854 * time.Millisecond, "9223372036855": forEver, unlimited: forEver},
		[]string{"-2", "9223372036854775808"}, func(s *Settings) any { return s.RetentionAge }},
	{"segment.bytes", int64(256 << 20), map[string]any{"65536": int64(64 << 10), "1073741824": int64(1 << 30)}, []string{"65535", "1073741825"},
		func(s *Settings) any { return s.SegmentBytes }},
	{"segment.ms", 168 * time.Hour, map[string]any{"1": time.Millisecond}, []string{"0", "-1", "9223372036854775808"},
		func(s *Settings) any { return s.SegmentAge }},
}

// fixedCases are the settings of Kafka that have one value here.
var fixedCases = map[string]string{
	"cleanup.policy":                          "delete",
	"compression.gzip.level":                  "-1",
	"compression.lz4.level":                   "9",
	"compression.type":                        "producer",
	"compression.zstd.level":                  "3",
	"delete.retention.ms":                     "86400000",
	"file.delete.delay.ms":                    "60000",
	"flush.messages":                          unlimited,
	"follower.replication.throttled.replicas": "",
	"leader.replication.throttled.replicas":   "",
	"local.retention.bytes":                   "-2",
	"local.retention.ms":                      "-2",
	"max.compaction.lag.ms":                   unlimited,
	"min.cleanable.dirty.ratio":               "0.5",
	"min.compaction.lag.ms":                   "0",
	"preallocate":                             "false",
	"remote.copy.disable":                     "false",
	"remote.log.delete.on.disable":            "false",
	"remote.storage.enable":                   "false",
	"segment.index.bytes":                     "10485760",
	"segment.jitter.ms":                       "0",
	"unclean.leader.election.enable":          "false",
}

// What is fixed is taken as it is, and nothing else is: neither what Kafka would take, nor what cannot be.
func TestFixedSettings(t *testing.T) {
	for name, value := range fixedCases {
		if _, err := ParseSettings(map[string]string{name: value}); err != nil {
			t.Errorf("%s=%s: %v", name, value, err)
		}
		for _, other := range []string{"1", "compact", "true", "gzip", " ", value + " ", value + value + "0"} {
			_, err := ParseSettings(map[string]string{name: other})
			if !errors.Is(err, ErrInvalidConfig) || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "must be "+cmp.Or(value, "empty")) {
				t.Errorf("%s=%q: %v", name, other, err)
			}
		}
	}
}

func TestSettings(t *testing.T) {
	known := map[string]SettingInfo{}
	last := ""
	for _, k := range KnownSettings() {
		if _, ok := fixedCases[k.Name]; ok && k.Default != fixedCases[k.Name] || k.Doc == "" || k.Name <= last {
			t.Errorf("%+v after %q", k, last)
		}
		known[k.Name], last = k, k.Name
	}
	if len(known) != len(settingCases)+len(fixedCases) {
		t.Fatalf("%d settings are known, %d are tested", len(known), len(settingCases)+len(fixedCases))
	}
	for _, c := range settingCases {
		s, err := ParseSettings(nil)
		if err != nil || c.get(&s) != c.fallback {
			t.Errorf("%s: default is %v, want %v (%v)", c.name, c.get(&s), c.fallback, err)
		}
		if s, err = ParseSettings(map[string]string{c.name: known[c.name].Default}); err != nil || c.get(&s) != c.fallback {
			t.Errorf("%s: the default written out is %v (%v)", c.name, c.get(&s), err)
		}
		for v, want := range c.good {
			if s, err = ParseSettings(map[string]string{c.name: v}); err != nil || c.get(&s) != want {
				t.Errorf("%s=%s: %v (%v), want %v", c.name, v, c.get(&s), err, want)
			}
		}
		for _, v := range append(c.bad, "", " ", "x", "1.5", "0x10", "1e3", " 1", "\x00") {
			_, err := ParseSettings(map[string]string{c.name: v})
			if !errors.Is(err, ErrInvalidConfig) {
				t.Errorf("%s=%q: %v", c.name, v, err)
				continue
			}
			for _, part := range []string{c.name, fmt.Sprintf("%q", v), "must be"} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%s=%q: %q does not say %s", c.name, v, err, part)
				}
			}
		}
	}
}

func TestSettingsUnknown(t *testing.T) {
	for _, name := range []string{"retention", "", "Retention.ms", "flush.records"} {
		_, err := ParseSettings(map[string]string{name: "1"})
		if !errors.Is(err, ErrInvalidConfig) || !strings.Contains(err.Error(), fmt.Sprintf("%q", name)) || !strings.Contains(err.Error(), "segment.bytes") {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// Retention by time works on closed segments, so none stays open longer than its records may live, however large segment.ms is.
func TestSegmentAgeNeverAboveRetention(t *testing.T) {
	for _, segment := range []string{"1", "1000", "604800000", unlimited} {
		for _, retention := range []string{"-1", "0", "1", "600000", "604800000", unlimited} {
			s, err := ParseSettings(map[string]string{"segment.ms": segment, "retention.ms": retention})
			if err != nil {
				t.Fatal(err)
			}
			if s.RetentionAge < 0 {
				continue
			}
			if limit := max(s.RetentionAge, time.Millisecond); s.SegmentAge < 0 || s.SegmentAge > limit {
				t.Errorf("segment.ms=%s retention.ms=%s: a segment stays open for %v, records live for %v", segment, retention, s.SegmentAge, s.RetentionAge)
			}
		}
	}
}
