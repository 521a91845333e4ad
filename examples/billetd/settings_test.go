package main

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/billetlog/billet"
)

// fields lists the paths of all fields that can be set.
func fields(t reflect.Type, above string) (out []string) {
	for i := range t.NumField() {
		f := t.Field(i)
		switch {
		case f.Anonymous:
			out = append(out, fields(f.Type, above)...)
		case f.Type.Kind() == reflect.Struct:
			out = append(out, fields(f.Type, above+f.Name+".")...)
		default:
			out = append(out, above+f.Name)
		}
	}
	return out
}

// Every field of the library's Config is a setting, and every setting a field.
func TestSettingsAreComplete(t *testing.T) {
	want := slices.DeleteFunc(fields(reflect.TypeFor[options](), ""), func(f string) bool { return slices.Contains(inCode(), f) })
	var have, names []string
	for _, s := range settings() {
		have, names = append(have, s.field), append(names, s.name)
		if s.doc == "" || (s.kind == "") != (field(&options{}, s.field).Kind() == reflect.Bool) {
			t.Errorf("%+v", s)
		}
	}
	slices.Sort(want)
	slices.Sort(have)
	if !slices.Equal(have, want) {
		for _, f := range want {
			if !slices.Contains(have, f) {
				t.Errorf("%s cannot be set", f)
			}
		}
		t.Errorf("settings are of %v", have)
	}
	slices.Sort(names)
	if len(slices.Compact(names)) != len(have) {
		t.Error("two settings have one name")
	}
	for _, k := range kafkaNames() {
		if !slices.Contains(names, k.setting) {
			t.Errorf("%s stands for %s, which is not there", k.name, k.setting)
		}
	}
	for kafka, topic := range topicNames() {
		if !slices.ContainsFunc(billet.Settings(), func(s billet.Setting) bool { return s.Name == topic }) {
			t.Errorf("%s stands for %s, which is not there", kafka, topic)
		}
	}
}

func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "billetd.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestPrecedence(t *testing.T) {
	path := writeFile(t, "id: 2\ndir: file\nrack: file\nlog-level: warn\n")
	o, err := parse([]string{"-config", path, "-dir", "flag"}, []string{"BILLET_DIR=variable", "BILLET_RACK=variable", "OTHER=x"})
	if err != nil {
		t.Fatal(err)
	}
	if o.Dir != "flag" || o.Cluster.Rack != "variable" || o.NodeID != 2 || o.LogLevel != "warn" || o.Kafka.Addr != "127.0.0.1:9092" || o.HTTP != "127.0.0.1:9644" {
		t.Errorf("%+v", o)
	}
	if o, err = parse([]string{"-kafka", "", "-http="}, []string{"BILLET_CONFIG=" + path}); err != nil || o.Kafka.Addr != "" || o.HTTP != "" || o.Dir != "file" {
		t.Errorf("%+v %v", o, err)
	}
}

func TestFile(t *testing.T) {
	path := writeFile(t, `
# all kinds of values
id: 3
listen: 127.0.0.1:7800
join: [127.0.0.1:7801, "127.0.0.1:7802"]
bootstrap: 1,2,3
gossip-key: 000102030405060708090a0b0c0d0e0f
journal-bytes: 2MiB
disk-reserve: -1
open-timeout: 90s
topic-defaults: {retention.ms: 1000, billet.fsync: interval}
kafka-authorize: true
kafka-sasl: [PLAIN]
kafka-listeners:
  - name: OUTSIDE
    addr: 127.0.0.1:9093
    sasl: [PLAIN, SCRAM-SHA-256]
    tls: {cert-file: a.pem, key-file: b.pem}
`)
	o, err := parse([]string{"-config=" + path}, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := billet.KafkaListener{Name: "OUTSIDE", Addr: "127.0.0.1:9093", SASL: []string{"PLAIN", "SCRAM-SHA-256"}, TLS: billet.KafkaTLS{CertFile: "a.pem", KeyFile: "b.pem"}}
	if !reflect.DeepEqual(o.Kafka.Listeners, []billet.KafkaListener{want}) || !slices.Equal(o.Kafka.SASL, []string{"PLAIN"}) || !o.Kafka.Authorize {
		t.Errorf("%+v", o.Kafka)
	}
	if c := o.Cluster; !slices.Equal(c.Join, []string{"127.0.0.1:7801", "127.0.0.1:7802"}) || !slices.Equal(c.Bootstrap, []int32{1, 2, 3}) || len(c.GossipKey) != 16 || c.GossipKey[15] != 15 {
		t.Errorf("%+v", c)
	}
	if o.JournalBytes != 2<<20 || o.DiskReserve != -1 || o.OpenTimeout != 90*time.Second || o.TopicDefaults["retention.ms"] != "1000" || o.TopicDefaults["billet.fsync"] != "interval" {
		t.Errorf("%+v", o.Config)
	}
	flags := []string{"-kafka-listeners", "[{name: OUTSIDE, addr: '127.0.0.1:9093', sasl: [PLAIN, SCRAM-SHA-256], tls: {cert-file: a.pem, key-file: b.pem}}]"}
	if o, err = parse(flags, nil); err != nil || !reflect.DeepEqual(o.Kafka.Listeners, []billet.KafkaListener{want}) {
		t.Errorf("by a flag: %+v %v", o, err)
	}
}

func TestBadSettings(t *testing.T) {
	for _, c := range []struct {
		file string
		args []string
		want string
	}{
		{"id: 1\nids: 2\n", nil, `line 2: there is no setting "ids"`},
		{"id: 1\nid: 2\n", nil, `"id" is given twice`},
		{"id: x\n", nil, `line 1: id: "x" is no whole number`},
		{"id: 3000000000\n", nil, "too large"},
		{"id: [1]\n", nil, "line 1: id:"},
		{"- id\n", nil, "there must be names and values"},
		{"id: {\n", nil, "yaml"},
		{"config: x\n", nil, `no setting "config"`},
		{"open-timeout: 5\n", nil, "is no time"},
		{"kafka-authorize: maybe\n", nil, "neither true nor false"},
		{"gossip-key: xyz\n", nil, "hexadecimal"},
		{"kafka-listeners: [{name: A, adr: x}]\n", nil, `"adr" is not known`},
		{"topic-defaults: {retention: 1}\n", nil, `"retention"`},
		{"", []string{"-id", "0x"}, `-id: "0x"`},
		{"", []string{"-journal-bytes", "99999999999GiB"}, "too large"},
		{"", []string{"-journal-bytes", "1"}, "-journal-bytes is 1"},
		{"", []string{"-no-such"}, "no-such"},
		{"", []string{"-topic-defaults", "retention.ms"}, "name=value"},
		{"", []string{"word"}, "neither a flag"},
		{"", []string{"no.such.setting=1"}, `no setting "no.such.setting"`},
		{"", []string{"num.partitions=many"}, "num.partitions"},
		{"", []string{"cleanup.policy=compact"}, "must be delete"},
		{"", []string{"-kafka", "0.0.0.0:9092"}, "-kafka-allow-anonymous"},
		{"", []string{"-config", "/no/such/file"}, "no/such/file"},
	} {
		args := c.args
		if c.file != "" {
			args = append(args, "-config", writeFile(t, c.file))
		}
		if _, err := parse(args, nil); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q %q: %v, want %q", c.file, c.args, err, c.want)
		}
	}
	if _, err := parse(nil, []string{"BILLET_ID=x"}); err == nil || !strings.Contains(err.Error(), "BILLET_ID") {
		t.Errorf("a variable: %v", err)
	}
	if _, err := parse([]string{"-help"}, nil); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("-help: %v", err)
	}
}

func TestKafkaNames(t *testing.T) {
	o, err := parse([]string{"-dir", "x", "num.partitions=4", "log.retention.ms=5", "auto.create.topics.enable=true", "super.users=User:a;User:b",
		"offsets.retention.minutes=3", "group.initial.rebalance.delay.ms=0", "group.consumer.min.heartbeat.interval.ms=1000", "min.insync.replicas=2", "broker.rack=r"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if o.Kafka.DefaultPartitions != 4 || !o.Kafka.AutoCreateTopics || !slices.Equal(o.Kafka.SuperUsers, []string{"User:a", "User:b"}) || o.Groups.OffsetsRetention != 3*time.Minute {
		t.Errorf("%+v", o)
	}
	if o.TopicDefaults["retention.ms"] != "5" || o.TopicDefaults["min.insync.replicas"] != "2" || o.Groups.InitialRebalanceDelay >= 0 || o.Cluster.Rack != "r" {
		t.Errorf("%+v", o)
	}
}

func TestKebab(t *testing.T) {
	for name, want := range map[string]string{"Name": "name", "ClientCAFile": "client-ca-file", "TLS": "tls", "SASL": "sasl", "CertFile": "cert-file"} {
		if got := kebab(name); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}
