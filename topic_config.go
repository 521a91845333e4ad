package billet

import (
	"fmt"
	"maps"
	"strings"

	"github.com/billetlog/billet/replication"
)

// Setting describes a setting of topics: one of Kafka's, or of billet's own.
type Setting struct {
	Name, Default string
	// Doc is one line for people.
	Doc string
}

// Settings returns all settings that topics have, sorted by name.
func Settings() []Setting {
	known := replication.KnownSettings()
	out := make([]Setting, 0, len(known))
	for _, s := range known {
		out = append(out, Setting{Name: s.Name, Default: s.Default, Doc: s.Doc})
	}
	return out
}

// The settings that fields of Topic stand for.
const (
	settingFsync          = "billet.fsync"
	settingRetention      = "retention.ms"
	settingRetentionBytes = "retention.bytes"
)

// validateSettings returns an ErrInvalidConfig unless all names and values are
// good.
func validateSettings(config map[string]string) error {
	_, err := replication.ParseSettings(config)
	return wrapSeam(err)
}

// withDefaults returns config and, for what it does not name, defaults.
func withDefaults(config, defaults map[string]string) map[string]string {
	out := maps.Clone(defaults)
	if out == nil {
		out = map[string]string{}
	}
	maps.Copy(out, config)
	return out
}

// effectiveSettings returns all settings with their values.
func effectiveSettings(config map[string]string) []TopicSetting {
	known := replication.KnownSettings()
	out := make([]TopicSetting, 0, len(known))
	for _, s := range known {
		t := TopicSetting{Name: s.Name, Value: s.Default, Source: SourceDefault}
		if v, ok := config[s.Name]; ok {
			t.Value, t.Source = v, SourceTopic
		}
		out = append(out, t)
	}
	return out
}

func isSetting(name string) bool {
	for _, s := range replication.KnownSettings() {
		if s.Name == name {
			return true
		}
	}
	return false
}

// maxTopicName is Kafka's bound, in bytes.
const maxTopicName = 249

// validateTopicName returns an ErrInvalidTopic unless users may create a topic of
// this name.
func validateTopicName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: the name is empty, allowed are 1 to %d characters", ErrInvalidTopic, maxTopicName)
	case len(name) > maxTopicName:
		return fmt.Errorf("%w: the name has %d characters, allowed are up to %d", ErrInvalidTopic, len(name), maxTopicName)
	case name == "." || name == "..":
		return fmt.Errorf("%w: the name %q cannot be: choose another one", ErrInvalidTopic, name)
	case isReserved(name):
		return fmt.Errorf(`%w: names that begin with "__" are reserved: choose another one`, ErrInvalidTopic)
	}
	for i := range len(name) {
		c := name[i]
		ok := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
			c == '.' || c == '_' || c == '-'
		if !ok {
			return fmt.Errorf("%w: the name has %q at byte %d, allowed are a-z A-Z 0-9 . _ -", ErrInvalidTopic, c, i)
		}
	}
	return nil
}

func isReserved(name string) bool { return strings.HasPrefix(name, "__") }

// namesCollide tells whether two names cannot both be: tools that turn '.' into
// '_' would take one for the other.
func namesCollide(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	return strings.ReplaceAll(a, ".", "_") == strings.ReplaceAll(b, ".", "_")
}
