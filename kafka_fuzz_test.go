package billet

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// faultLog keeps lines about faults in the node.
type faultLog struct {
	mu     sync.Mutex
	faults []string
}

func (l *faultLog) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("this is a bug")) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.faults = append(l.faults, string(b))
	}
	return len(b), nil
}

func (l *faultLog) all() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.faults, "\n")
}

// kafkaFrame encodes a request.
func kafkaFrame(request kmsg.Request, version int16) []byte {
	request.SetVersion(version)
	b := binary.BigEndian.AppendUint16(nil, uint16(request.Key()))
	b = binary.BigEndian.AppendUint16(b, uint16(version))
	b = append(b, 0, 0, 0, 1, 0, 1, 'f')
	if request.IsFlexible() {
		b = append(b, 0)
	}
	return request.AppendTo(b)
}

// sendFrame sends a request and reads what comes of it, for a while.
func sendFrame(t testing.TB, addr string, frame []byte, wait time.Duration) []byte {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if err := c.SetDeadline(time.Now().Add(wait)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...)); err != nil {
		return nil
	}
	var size [4]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return nil
	}
	n := int32(binary.BigEndian.Uint32(size[:]))
	if n < 4 || n > 64<<20 {
		t.Fatalf("an answer of %d bytes", n)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(c, b); err != nil {
		return nil
	}
	return b
}

// Any request to a real node is answered or ends its connection, without a fault, and the
// node serves on.
func FuzzKafkaRequest(f *testing.F) {
	faults := &faultLog{}
	log, err := Open(Config{Dir: f.TempDir(), Logger: slog.New(slog.NewTextHandler(faults, &slog.HandlerOptions{Level: slog.LevelError})),
		Kafka: Kafka{Addr: "127.0.0.1:0", RequestBytesMax: 1 << 20}})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = log.Close() })
	if err := log.CreateTopic(context.Background(), Topic{Name: "t", Partitions: 2}); err != nil {
		f.Fatal(err)
	}
	versions := kmsg.NewPtrApiVersionsResponse()
	if err := versions.ReadFrom(sendFrame(f, log.KafkaAddr(), kafkaFrame(kmsg.NewPtrApiVersionsRequest(), 0), time.Minute)[4:]); err != nil {
		f.Fatal(err)
	}
	for _, k := range versions.ApiKeys {
		for v := k.MinVersion; v <= k.MaxVersion; v++ {
			f.Add(kafkaFrame(kmsg.RequestForKey(k.ApiKey), v))
		}
	}
	for _, request := range kafkaSeeds() {
		f.Add(kafkaFrame(request, 9))
	}
	ping := kafkaFrame(kmsg.NewPtrApiVersionsRequest(), 0)
	f.Fuzz(func(t *testing.T, frame []byte) {
		sendFrame(t, log.KafkaAddr(), frame, 100*time.Millisecond)
		if sendFrame(t, log.KafkaAddr(), ping, time.Minute) == nil {
			t.Error("the node does not serve any more")
		}
		if said := faults.all(); said != "" {
			t.Fatal(said)
		}
	})
}

// kafkaSeeds are requests with something in them.
func kafkaSeeds() []kmsg.Request {
	produce := kmsg.NewPtrProduceRequest()
	produce.Acks, produce.TimeoutMillis = -1, 1000
	batch := kmsg.RecordBatch{Magic: 2, LastOffsetDelta: 0, NumRecords: 1, ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1, Records: []byte{14, 0, 0, 0, 1, 2, 'v', 0}}
	batch.Length = 49 + int32(len(batch.Records))
	produce.Topics = []kmsg.ProduceRequestTopic{{Topic: "t", Partitions: []kmsg.ProduceRequestTopicPartition{{Records: batch.AppendTo(nil)}}}}
	fetch := kmsg.NewPtrFetchRequest()
	fetch.MaxBytes, fetch.MaxWaitMillis = 1<<20, 10
	fetch.Topics = []kmsg.FetchRequestTopic{{Topic: "t", Partitions: []kmsg.FetchRequestTopicPartition{{PartitionMaxBytes: 1 << 20}}}}
	metadata := kmsg.NewPtrMetadataRequest()
	metadata.Topics = []kmsg.MetadataRequestTopic{{Topic: kmsg.StringPtr("t")}}
	return []kmsg.Request{produce, fetch, metadata}
}
