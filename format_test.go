package billet

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"

	"github.com/billetlog/billet/internal/batch"
)

// stranger reads a log's files by what docs/format.md says and nothing else, but for Kafka's record batches.
type stranger struct {
	t   *testing.T
	dir string
}

func (s *stranger) read(name ...string) []byte {
	s.t.Helper()
	b, err := os.ReadFile(filepath.Join(append([]string{s.dir}, name...)...))
	if err != nil {
		s.t.Fatal(err)
	}
	return b
}

func (s *stranger) want(ok bool, format string, args ...any) {
	s.t.Helper()
	if !ok {
		s.t.Fatalf(format, args...)
	}
}

func u16(b []byte, at int) uint16 { return binary.BigEndian.Uint16(b[at:]) }
func u32(b []byte, at int) uint32 { return binary.BigEndian.Uint32(b[at:]) }
func u64(b []byte, at int) uint64 { return binary.BigEndian.Uint64(b[at:]) }

// meta reads the file meta.
func (s *stranger) meta(b []byte) (m struct {
	Format       int
	Cluster, Dir string
	Node         int32
	Formed       bool
}) {
	s.t.Helper()
	line, rest, _ := bytes.Cut(b, []byte("\n"))
	s.want(string(rest) == fmt.Sprintf("%016x\n", xxhash.Sum64(line)), "meta: hash %q", rest)
	if err := json.Unmarshal(line, &m); err != nil {
		s.t.Fatal(err)
	}
	s.want(m.Format == 1, "meta: format %d", m.Format)
	return m
}

// payload takes an image out of its sectors.
func (s *stranger) payload(sectors []byte) []byte {
	s.t.Helper()
	var out []byte
	for ; len(sectors) > 0; sectors = sectors[512:] {
		if u64(sectors, 504) != xxhash.Sum64(sectors[:504]) {
			break // never written, or torn
		}
		out = append(out, sectors[:504]...)
	}
	return out
}

// slot returns the newest image of a slot file.
func (s *stranger) slot(shard, replica uint64) []byte {
	s.t.Helper()
	b := s.read("partitions", fmt.Sprintf("%d-%d", shard, replica), "raft")
	s.want(len(b) == 2*16384, "slot file of %d bytes", len(b))
	var newest []byte
	for _, place := range [][]byte{b[:16384], b[16384:]} {
		p := s.payload(place)
		if len(p) < 152 || len(p) < int(u32(p, 16)) {
			continue
		}
		p = p[:u32(p, 16)]
		if string(p[8:12]) != "blsl" || u32(p, 12) != 1 || u64(p, 0) != xxhash.Sum64(p[8:]) {
			continue
		}
		if newest == nil || u64(p, 24) > u64(newest, 24) {
			newest = p
		}
	}
	s.want(newest != nil, "no image in the slot file of shard %d", shard)
	s.want(u64(newest, 120) == shard && u64(newest, 128) == replica && newest[141] == 1, "slot of %d-%d, clean %d", u64(newest, 120), u64(newest, 128), newest[141])
	at := 152
	boot := string(newest[at : at+int(newest[143])])
	if want, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil {
		s.want(boot == strings.TrimSpace(string(want)), "boot id %q", boot)
	}
	at += len(boot) + int(u32(newest, 144))
	for range newest[142] {
		at += 4 + int(u32(newest, at))
	}
	s.want(at == len(newest), "the slot's parts end at %d of %d", at, len(newest))
	return newest
}

// log returns a partition's batches, of all segments, and its newest checkpoint.
func (s *stranger) log(shard, replica uint64) (batches []batch.Batch, state []byte, segments int) {
	s.t.Helper()
	slot := s.slot(shard, replica)
	folder := filepath.Join("partitions", fmt.Sprintf("%d-%d", shard, replica), fmt.Sprintf("%06d", u64(slot, 32)))
	entries, err := os.ReadDir(filepath.Join(s.dir, folder))
	if err != nil {
		s.t.Fatal(err)
	}
	index, term, next := uint64(0), uint64(0), int64(-1)
	for _, e := range entries { // by name, so in order
		switch filepath.Ext(e.Name()) {
		case ".state":
			state = s.read(folder, e.Name())
		case ".log":
			segments++
			b := s.read(folder, e.Name())
			h := b[28:]
			s.want(b[16] == 0x62 && b[17] == 5 && string(h[:8]) == "BILLETLG" && u32(h, 8) == 1, "%s: no header", e.Name())
			s.want(u64(h, 48) == shard && u64(h, 56) == replica && u64(h, 64) == u64(slot, 32), "%s: of %d-%d generation %d", e.Name(), u64(h, 48), u64(h, 56), u64(h, 64))
			s.want(bytes.Equal(h[16:32], slot[88:104]) && bytes.Equal(h[32:48], slot[104:120]), "%s: cluster and topic", e.Name())
			s.want(fmt.Sprintf("%020d.log", u64(h, 80)) == e.Name(), "%s: base offset %d", e.Name(), u64(h, 80))
			s.want(next < 0 || u64(h, 72) == index && int64(u64(h, 80)) == next && u64(h, 88) == term, "%s: does not follow", e.Name())
			index, next, term = u64(h, 72), int64(u64(h, 80)), u64(h, 88)
			header := true
			for len(b) > 0 {
				f := b[:12+int(u32(b, 8))]
				b = b[len(f):]
				s.want(int64(u64(f, 0)) == next, "index %d: base offset %d where %d was due", index, u64(f, 0), next)
				if f[16] == 2 {
					s.want(uint64(u32(f, 12)) == term, "index %d: term %d in term %d", index, u32(f, 12), term)
					batches = append(batches, batch.Batch(f))
					next += int64(u32(f, 23)) + 1
				} else {
					s.want(f[16] == 0x62 && u64(f, 20) == xxhash.Sum64(slices.Concat(f[:20], f[28:])), "index %d: internal frame", index)
					if f[17] == 2 {
						s.want(uint64(u32(f, 12)) >= term && len(f) == 28, "index %d: no-op", index)
						term = uint64(u32(f, 12))
					}
				}
				if !header {
					index++
				}
				header = false
			}
		}
	}
	s.want(index-1 == u64(slot, 64) && u64(slot, 56) <= index-1, "the log ends at index %d, the slot's mark is %d, its commit %d", index-1, u64(slot, 64), u64(slot, 56))
	return batches, state, segments
}

// records decodes batches.
func (s *stranger) records(batches []batch.Batch) (keys, values []string) {
	s.t.Helper()
	for _, b := range batches {
		if err := b.CheckCRC(); err != nil {
			s.t.Fatal(err)
		}
		var r batch.Reader
		if err := r.Reset(b, 1<<20); err != nil {
			s.t.Fatal(err)
		}
		for rec := (batch.Record{}); r.Next(&rec); {
			keys, values = append(keys, string(rec.Key)), append(values, string(rec.Value))
		}
	}
	return keys, values
}

// strangeTopic is a topic's record.
type strangeTopic struct {
	V          int
	Kind       string
	Name, ID   string
	Internal   bool
	Deleted    bool
	Created    int64
	Config     map[string]string
	Partitions []struct {
		Shard    uint64
		Replicas []struct {
			Node    int32
			Replica uint64
		}
	}
	Next                     int64
	Node                     int32
	Dir, Mode, Address, Rack string
	Endpoints                []struct {
		Name, Host string
		Port       int32
	}
	EntryKind        string `json:"entry-kind"`
	EntryKey         []byte `json:"entry-key"`
	Value            []byte
	Partition, Start int64
}

func TestFormatAsDocumented(t *testing.T) {
	ctx := testContext(t)
	dir := t.TempDir()
	l := openTest(t, Config{Dir: dir, NodeID: 7, JournalBytes: 1 << 20})
	if err := errors.Join(
		l.CreateTopic(ctx, Topic{Name: "orders", Partitions: 2, Config: map[string]string{"segment.bytes": "65536"}}),
		l.CreateTopic(ctx, Topic{Name: "gone"}), l.DeleteTopic(ctx, "gone"), l.AddPartitions(ctx, "orders", 3),
	); err != nil {
		t.Fatal(err)
	}
	p, err := l.NewProducer(ProducerConfig{Partitioner: ManualPartitioner})
	if err != nil {
		t.Fatal(err)
	}
	const n = 600
	for i := range n {
		r := Record{Topic: "orders", Partition: int32(i % 3), Key: []byte("k"), Value: ledgerValue("w", i/3, 1000)}
		if _, err := p.ProduceSync(ctx, r); err != nil {
			t.Fatal(err)
		}
	}
	identity := p.mu.identity
	info, err := l.Topic(ctx, "orders")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(p.Close(), l.Close()); err != nil {
		t.Fatal(err)
	}

	s := &stranger{t, dir}
	meta := s.meta(s.read("meta"))
	s.want(meta.Node == 7 && meta.Formed && len(meta.Cluster) == 32, "meta: %+v", meta)
	s.want(strings.Contains(string(s.read("LOCK")), fmt.Sprintf("process %d on ", os.Getpid())), "LOCK: %q", s.read("LOCK"))
	journal := s.read("journal")
	half := u64(journal, 48)
	s.want(string(journal[8:16]) == "blltjhdr" && u32(journal, 16) == 1 && u32(journal, 20)&1 == 1 && u64(journal, 0) == xxhash.Sum64(journal[8:4096]) &&
		len(journal) == 8192+2*int(half), "the journal's header")

	batches, _, _ := s.log(1, 4294967296+7)
	keys, values := s.records(batches)
	newest := map[string]strangeTopic{}
	for i := range keys {
		var v strangeTopic
		if err := json.Unmarshal([]byte(values[i]), &v); err != nil {
			t.Fatal(err)
		}
		s.want(v.V == 1 && ((v.Kind == "producer-ids" || v.Kind == "shards") && keys[i] == v.Kind || v.Kind == "node" && keys[i] == "node/7" || v.Kind == "topic" && keys[i] == "topic/"+v.ID), "%s: %s", keys[i], values[i])
		newest[keys[i]] = v
	}
	s.want(newest["producer-ids"].Next > identity.id, "producer ids up to %d", newest["producer-ids"].Next)
	s.want(newest["shards"].Next > 2 && newest["node/7"].Dir == meta.Dir && newest["node/7"].Mode == "active", "shards %+v, node %+v", newest["shards"], newest["node/7"])
	for _, k := range []string{"producer-ids", "shards", "node/7"} {
		delete(newest, k)
	}
	metadata := newest["topic/"+strings.Repeat("0", 32)]
	s.want(metadata.Internal && metadata.Partitions[0].Shard == 1 && metadata.Partitions[0].Replicas[0].Replica == 4294967296+7, "%+v", metadata)
	delete(newest, "topic/"+metadata.ID)
	s.want(len(newest) == 2, "topics: %+v", newest)
	for _, v := range newest {
		s.want(v.Deleted == (v.Name == "gone") && !v.Internal && v.Created > 1e12, "%+v", v)
	}
	topic := newest["topic/"+info.ID]
	s.want(topic.Name == "orders" && topic.Config["segment.bytes"] == "65536" && len(topic.Partitions) == 3, "%+v", topic)
	for i, part := range topic.Partitions {
		s.want(part.Replicas[0].Node == 7, "%+v", part)
		id, _ := hex.DecodeString(info.ID)
		slot := s.slot(part.Shard, part.Replicas[0].Replica)
		s.want(bytes.Equal(slot[104:120], id) && int(u32(slot, 136)) == i && hex.EncodeToString(slot[88:104]) == meta.Cluster, "slot of partition %d", i)
		batches, state, segments := s.log(part.Shard, part.Replicas[0].Replica)
		_, values := s.records(batches)
		s.want(segments > 1 && len(values) == n/3, "%d segments, %d records", segments, len(values))
		for k, v := range values {
			s.want(v == string(ledgerValue("w", k, 1000)), "record %d: %.20q", k, v)
		}
		s.fold(state, batches, identity)
	}
	_, err = os.Stat(filepath.Join(dir, "partitions", "4-4294967303"))
	s.want(errors.Is(err, os.ErrNotExist), "the deleted topic's files: %v", err)

	// The examples on the page.
	page, err := os.ReadFile(filepath.Join("docs", "format.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, example, _ := strings.Cut(string(page), "### meta\n")
	_, example, _ = strings.Cut(example, "```text\n")
	example, _, _ = strings.Cut(example, "```\n")
	s.want(s.meta([]byte(example)).Node == 1, "the page's meta")
	for _, part := range strings.Split(string(page), "```json\n")[1:] {
		text, _, _ := strings.Cut(part, "```")
		d := json.NewDecoder(strings.NewReader(text))
		d.DisallowUnknownFields()
		var v strangeTopic
		if err := d.Decode(&v); err != nil || v.V != 1 {
			t.Errorf("the page's record %s: %v", text, err)
		}
	}
}

// fold reads a checkpoint and holds its payload against the batches.
func (s *stranger) fold(state []byte, batches []batch.Batch, identity producerIdentity) {
	s.t.Helper()
	s.want(string(state[:8]) == "BILLETST" && u32(state, 8) == 1 && u64(state, 96) == xxhash.Sum64(slices.Concat(state[:96], state[104:])), "state")
	p := state[104:]
	s.want(len(p) == int(u32(state, 92)) && p[0] == 2 && u32(p, 17) == 1, "payload of %d bytes", len(p))
	last := batches[len(batches)-1]
	s.want(int64(u64(state, 24)) == last.NextOffset() && int64(u64(p, 1)) == last.MaxTimestamp() && u64(p, 9) == 0, "checkpoint at offset %d", u64(state, 24))
	p = p[21:]
	s.want(int64(u64(p, 0)) == identity.id && int16(u16(p, 8)) == identity.epoch && int64(u64(p, 10)) == last.MaxTimestamp() && p[18] == 16, "producer %d", u64(p, 0))
	p = p[19:]
	var epochs []byte
	for i, b := range batches {
		if i == 0 || b.LeaderEpoch() != batches[i-1].LeaderEpoch() {
			epochs = binary.BigEndian.AppendUint32(epochs, uint32(b.LeaderEpoch()))
			epochs = binary.BigEndian.AppendUint64(epochs, uint64(b.BaseOffset()))
		}
	}
	s.want(len(p) == 16*16+4+len(epochs) && int(u32(p, 16*16)) == len(epochs)/12 && bytes.Equal(p[16*16+4:], epochs), "%d bytes of batches and epochs", len(p))
	for _, b := range batches[len(batches)-16:] {
		s.want(int32(u32(p, 0)) == b.BaseSequence() && int32(u32(p, 4)) == b.LastSequence() && int64(u64(p, 8)) == b.BaseOffset(), "batch at %d", b.BaseOffset())
		p = p[16:]
	}
}
