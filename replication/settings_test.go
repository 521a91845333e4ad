package replication

import (
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
	{"cleanup.policy", nil, map[string]any{"delete": nil}, []string{"compact", "delete,compact"}, func(*Settings) any { return nil }},
	{"compression.type", nil, map[string]any{"producer": nil}, []string{"gzip", "none"}, func(*Settings) any { return nil }},
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

func TestSettings(t *testing.T) {
	known := KnownSettings()
	if len(known) != len(settingCases) {
		t.Fatalf("%d settings are known, %d are tested", len(known), len(settingCases))
	}
	for i, c := range settingCases {
		if known[i].Name != c.name || known[i].Doc == "" {
			t.Fatalf("setting %d is %q, want %q with a description", i, known[i].Name, c.name)
		}
		s, err := ParseSettings(nil)
		if err != nil || c.get(&s) != c.fallback {
			t.Errorf("%s: default is %v, want %v (%v)", c.name, c.get(&s), c.fallback, err)
		}
		if s, err = ParseSettings(map[string]string{c.name: known[i].Default}); err != nil || c.get(&s) != c.fallback {
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
	for _, name := range []string{"retention", "", "Retention.ms", "flush.messages"} {
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
