package kafka

import (
	"context"
	"encoding/binary"
	"io"
	"maps"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/internal/kerr"
)

// adminBroker is a broker of topics in memory. What it does not have is not called.
type adminBroker struct {
	Broker
	mu struct {
		sync.Mutex
		topics map[string]Topic
		config map[string]map[string]string
		next   byte
		moves  []Reassignment
	}
	hold chan struct{} // CreateTopic of "slow" waits for it
}

func newAdminBroker() *adminBroker {
	b := &adminBroker{hold: make(chan struct{})}
	b.mu.topics, b.mu.config = map[string]Topic{}, map[string]map[string]string{}
	return b
}

func (b *adminBroker) Self() int32       { return 7 }
func (b *adminBroker) ClusterID() string { return "cluster" }
func (b *adminBroker) Controller() int32 { return 7 }
func (b *adminBroker) Nodes(string) []Node {
	return []Node{{ID: 7, Host: "seven", Port: 1, Rack: "r"}, {ID: 8, Host: "eight", Port: 2}}
}

func (b *adminBroker) Topics() []Topic {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []Topic
	for _, name := range slices.Sorted(maps.Keys(b.mu.topics)) {
		out = append(out, b.mu.topics[name])
	}
	return out
}

func (b *adminBroker) Topic(name string) (Topic, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t, ok := b.mu.topics[name]
	return t, ok
}

func (b *adminBroker) TopicName(id TopicID) (string, bool) {
	for _, t := range b.Topics() {
		if t.ID == id {
			return t.Name, true
		}
	}
	return "", false
}

func (b *adminBroker) CreateTopic(ctx context.Context, n NewTopic, validateOnly bool) (Topic, error) {
	if n.Name == "slow" {
		select {
		case <-b.hold:
		case <-ctx.Done():
			return Topic{}, ctx.Err()
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.mu.topics[n.Name]; ok {
		return Topic{}, kerr.Errorf(kerr.TOPIC_ALREADY_EXISTS, "exists")
	}
	t := Topic{Name: n.Name}
	if n.Replicas == -1 || n.ClampReplicas {
		n.Replicas = 1
	}
	for range n.Partitions {
		t.Partitions = append(t.Partitions, PartitionState{Leader: 7, Replicas: make([]int32, n.Replicas)})
	}
	if !validateOnly {
		b.mu.next++
		t.ID = TopicID{b.mu.next}
		b.mu.topics[t.Name], b.mu.config[t.Name] = t, n.Config
	}
	return t, nil
}

func (b *adminBroker) DeleteTopic(_ context.Context, name string, id TopicID) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if t, ok := b.mu.topics[name]; !ok || t.ID != id {
		return kerr.Errorf(kerr.UNKNOWN_TOPIC_ID, "gone")
	}
	delete(b.mu.topics, name)
	return nil
}

func (b *adminBroker) AddPartitions(_ context.Context, name string, total int, nodes [][]int32, validateOnly bool) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	t, ok := b.mu.topics[name]
	if !ok {
		return kerr.Errorf(kerr.UNKNOWN_TOPIC_OR_PARTITION, "none")
	}
	for len(t.Partitions) < total {
		p := PartitionState{Leader: 7, Replicas: []int32{7}}
		if nodes != nil {
			p.Replicas, nodes = nodes[0], nodes[1:]
		}
		t.Partitions = append(slices.Clone(t.Partitions), p)
	}
	if !validateOnly {
		b.mu.topics[name] = t
	}
	return nil
}

func (b *adminBroker) TopicConfig(name string) ([]ConfigEntry, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.mu.topics[name]; !ok {
		return nil, kerr.Errorf(kerr.UNKNOWN_TOPIC_OR_PARTITION, "none")
	}
	return adminEntries(b.mu.config[name]), nil
}

func (b *adminBroker) AlterTopic(_ context.Context, name string, set map[string]string, unset []string, validateOnly bool) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	config := maps.Clone(b.mu.config[name])
	for _, k := range unset {
		delete(config, k)
	}
	for k, v := range set {
		if k == "bad" {
			return kerr.Errorf(kerr.INVALID_CONFIG, "bad")
		}
		config[k] = v
	}
	if !validateOnly {
		b.mu.config[name] = config
	}
	return nil
}

func (b *adminBroker) Reassign(_ context.Context, topic string, number int32, nodes []int32) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if t, ok := b.mu.topics[topic]; !ok || int(number) >= len(t.Partitions) {
		return kerr.Errorf(kerr.UNKNOWN_TOPIC_OR_PARTITION, "none")
	}
	i := slices.IndexFunc(b.mu.moves, func(r Reassignment) bool { return r.Topic == topic && r.Partition == number })
	switch {
	case nodes == nil && i < 0:
		return kerr.Errorf(kerr.NO_REASSIGNMENT_IN_PROGRESS, "none")
	case nodes == nil:
		b.mu.moves = slices.Delete(b.mu.moves, i, i+1)
	default:
		b.mu.moves = append(b.mu.moves, Reassignment{Topic: topic, Partition: number, Replicas: append(nodes, 7), Adding: nodes, Removing: []int32{7}})
	}
	return nil
}

func (b *adminBroker) Reassignments() []Reassignment {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := slices.Clone(b.mu.moves)
	slices.SortFunc(out, func(x, y Reassignment) int { return int(x.Partition - y.Partition) })
	return out
}

func (b *adminBroker) ElectPreferred(_ context.Context, topic string, number int32) error {
	if number == 0 {
		return kerr.Errorf(kerr.ELECTION_NOT_NEEDED, "it leads")
	}
	return nil
}

func (b *adminBroker) LogDirs() []LogDir {
	return []LogDir{{Path: "/data", TotalBytes: 1000, Free: 10, Replicas: []LogDirReplica{
		{Topic: "a", Partition: 0, Bytes: 5}, {Topic: "a", Partition: 1, Bytes: 6, Lag: 2}, {Topic: "b", Partition: 0, Bytes: 7}}}}
}

func (b *adminBroker) NodeConfig() []ConfigEntry {
	return []ConfigEntry{{Name: "node.id", Value: "7", Set: true, Type: kmsg.ConfigTypeInt, Doc: "id", ReadOnly: true},
		{Name: "secret", Value: "x", Set: true, Type: kmsg.ConfigTypePassword, Doc: "hidden", ReadOnly: true, Sensitive: true}}
}

func (b *adminBroker) NewTopicConfig(config map[string]string) []ConfigEntry {
	return adminEntries(config)
}

// adminEntries are two settings, the second of which is a list.
func adminEntries(config map[string]string) []ConfigEntry {
	out := []ConfigEntry{
		{Name: "retention.ms", NodeName: "log.retention.ms", Value: "100", Default: "100", Type: kmsg.ConfigTypeLong, Doc: "how long"},
		{Name: "cleanup.policy", Value: "delete", Default: "delete", Type: kmsg.ConfigTypeList, Doc: "how"},
	}
	for i := range out {
		if v, ok := config[out[i].Name]; ok {
			out[i].Value, out[i].Set = v, true
		}
	}
	return out
}

// serveAdmin starts a server in front of a broker.
func serveAdmin(t *testing.T, b Broker, change ...func(*Options)) *Server {
	t.Helper()
	opts := Options{Broker: b, Listeners: []Listener{{Address: "127.0.0.1:0"}}, DefaultPartitions: 3}
	for _, f := range change {
		f(&opts)
	}
	s, err := Open(opts)
	if err != nil {
		t.Fatal(err)
	}
	s.Serve()
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// askTimeout bounds an answer in tests, far above what it takes.
const askTimeout = time.Minute

// askAdmin sends a request in a version and decodes the answer.
func askAdmin[R kmsg.Response](t *testing.T, s *Server, request kmsg.Request, version int16) R {
	t.Helper()
	c, err := net.Dial("tcp", s.listeners[0].Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if err := c.SetDeadline(time.Now().Add(askTimeout)); err != nil {
		t.Fatal(err)
	}
	request.SetVersion(version)
	frame := binary.BigEndian.AppendUint16(make([]byte, 4), uint16(request.Key()))
	frame = binary.BigEndian.AppendUint16(frame, uint16(version))
	frame = append(frame, 0, 0, 0, 9, 0, 1, 'x')
	if request.IsFlexible() {
		frame = append(frame, 0)
	}
	frame = request.AppendTo(frame)
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
	if _, err := c.Write(frame); err != nil {
		t.Fatal(err)
	}
	head := make([]byte, 8)
	if _, err := io.ReadFull(c, head); err != nil {
		t.Fatalf("%T version %d: %v", request, version, err)
	}
	body := make([]byte, binary.BigEndian.Uint32(head)-4)
	if _, err := io.ReadFull(c, body); err != nil {
		t.Fatal(err)
	}
	response := request.ResponseKind()
	response.SetVersion(version)
	if response.IsFlexible() {
		body = body[1:]
	}
	if err := response.ReadFrom(body); err != nil {
		t.Fatalf("%T version %d: %v", response, version, err)
	}
	return response.(R)
}

// versionsOf calls f with each version of a request that is served.
func versionsOf(t *testing.T, key kmsg.Key, f func(t *testing.T, version int16)) {
	t.Helper()
	entry := newAPITable()[key.Int16()]
	for v := entry.min; v <= entry.max; v++ {
		t.Run(key.Name()+"/"+string(rune('0'+v)), func(t *testing.T) { f(t, v) })
	}
}

// say writes a code with its message.
func say(code int16, message *string) (int16, string) {
	if message == nil {
		return code, ""
	}
	return code, *message
}
