package bench

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet"
)

// openKafka is open with a listener.
func openKafka(b *testing.B, partitions int, fsync billet.Fsync) *billet.Log {
	b.Helper()
	l, err := billet.Open(billet.Config{Dir: b.TempDir(), Kafka: billet.Kafka{Addr: "127.0.0.1:0"}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := l.Close(); err != nil {
			b.Error(err)
		}
	})
	topic := billet.Topic{Name: "t", Partitions: partitions, Fsync: fsync, RetentionBytes: 2 << 30}
	if err := l.CreateTopic(context.Background(), topic); err != nil {
		b.Fatal(err)
	}
	return l
}

// BenchmarkKafkaProduce is a firehose of 1 KiB records through franz-go.
func BenchmarkKafkaProduce(b *testing.B) {
	for _, p := range policies {
		for _, partitions := range []int{1, 4} {
			b.Run(fmt.Sprintf("client=franz/fsync=%s/partitions=%d", p.name, partitions), func(b *testing.B) {
				l := openKafka(b, partitions, p.fsync)
				client, err := kgo.NewClient(kgo.SeedBrokers(l.KafkaAddr()), kgo.DefaultProduceTopic("t"), kgo.ProducerBatchCompression(kgo.NoCompression()),
					kgo.ProducerLinger(0), kgo.RecordPartitioner(kgo.UniformBytesPartitioner(1<<20, false, false, nil)))
				if err != nil {
					b.Fatal(err)
				}
				defer client.Close()
				value := make([]byte, 1024)
				b.SetBytes(1024)
				for b.Loop() {
					client.Produce(b.Context(), &kgo.Record{Value: value}, func(_ *kgo.Record, err error) {
						if err != nil {
							b.Error(err)
						}
					})
				}
				if err := client.Flush(b.Context()); err != nil {
					b.Fatal(err)
				}
			})
		}
	}
}

// rawConn speaks the protocol with as little as possible of a client's own work.
type rawConn struct {
	net.Conn
	read *bufio.Reader
}

func dialRaw(b *testing.B, l *billet.Log) *rawConn {
	b.Helper()
	c, err := net.Dial("tcp", l.KafkaAddr())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = c.Close() })
	return &rawConn{Conn: c, read: bufio.NewReaderSize(c, 64<<10)}
}

// frame encodes a request.
func frame(request kmsg.Request, version int16) []byte {
	request.SetVersion(version)
	f := binary.BigEndian.AppendUint16(make([]byte, 4), uint16(request.Key()))
	f = binary.BigEndian.AppendUint16(f, uint16(version))
	f = append(f, 0, 0, 0, 9, 0, 1, 'x')
	if request.IsFlexible() {
		f = append(f, 0)
	}
	f = request.AppendTo(f)
	binary.BigEndian.PutUint32(f, uint32(len(f)-4))
	return f
}

// skip reads an answer and drops it.
func (c *rawConn) skip() (size int, err error) {
	var head [4]byte
	if _, err := io.ReadFull(c.read, head[:]); err != nil {
		return 0, err
	}
	size = int(binary.BigEndian.Uint32(head[:]))
	_, err = c.read.Discard(size)
	return size, err
}

// rawBatch is a record batch of 1 KiB records.
func rawBatch(records int) []byte {
	var body []byte
	for i := range records {
		r := kmsg.Record{OffsetDelta: int32(i), Value: make([]byte, 1024)}
		r.Length = int32(len(r.AppendTo(nil)) - 1)
		body = r.AppendTo(body)
	}
	batch := kmsg.RecordBatch{
		PartitionLeaderEpoch: -1, Magic: 2, LastOffsetDelta: int32(records - 1), FirstTimestamp: time.Now().UnixMilli(), MaxTimestamp: time.Now().UnixMilli(),
		ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1, NumRecords: int32(records), Records: body,
	}
	raw := batch.AppendTo(nil)
	binary.BigEndian.PutUint32(raw[8:], uint32(len(raw)-12))
	binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
	return raw
}

// BenchmarkKafkaProduceRaw is what the node takes from a client that costs nothing: the
// same request again and again, several in flight.
func BenchmarkKafkaProduceRaw(b *testing.B) {
	for _, p := range policies {
		for _, records := range []int{1, 16, 256, 1000} {
			b.Run(fmt.Sprintf("fsync=%s/records=%d", p.name, records), func(b *testing.B) {
				l := openKafka(b, 1, p.fsync)
				c := dialRaw(b, l)
				q := kmsg.NewPtrProduceRequest()
				q.Acks, q.TimeoutMillis = -1, 30_000
				q.Topics = []kmsg.ProduceRequestTopic{{Topic: "t", Partitions: []kmsg.ProduceRequestTopicPartition{{Records: rawBatch(records)}}}}
				f := frame(q, 9)
				const inFlight = 8
				slots := make(chan struct{}, inFlight)
				failed := make(chan error, 1)
				go func() {
					for {
						if _, err := c.skip(); err != nil {
							failed <- err
							return
						}
						<-slots
					}
				}()
				b.SetBytes(int64(records) << 10)
				b.ReportAllocs()
				for b.Loop() {
					slots <- struct{}{}
					if _, err := c.Write(f); err != nil {
						b.Fatal(err)
					}
				}
				for range inFlight {
					slots <- struct{}{}
				}
				_ = c.Close()
				<-failed
			})
		}
	}
}

const fetchedBytes = 256 << 20

// fill produces records of 1 KiB in process.
func fill(b *testing.B, l *billet.Log) {
	b.Helper()
	p, err := l.NewProducer(billet.ProducerConfig{})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = p.Close() }()
	value := make([]byte, 1024)
	for range fetchedBytes >> 10 {
		if err := p.Produce(b.Context(), billet.Record{Topic: "t", Value: value}, nil); err != nil {
			b.Fatal(err)
		}
	}
	if err := p.Flush(b.Context()); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkKafkaFetchRaw is what the node sends to a client that costs nothing, from the
// page cache.
func BenchmarkKafkaFetchRaw(b *testing.B) {
	for _, size := range []int32{64 << 10, 1 << 20, 10 << 20} {
		b.Run(fmt.Sprintf("bytes=%d", size), func(b *testing.B) {
			l := openKafka(b, 1, billet.FsyncInterval)
			fill(b, l)
			c := dialRaw(b, l)
			q := kmsg.NewPtrFetchRequest()
			q.ReplicaID, q.MaxWaitMillis, q.MinBytes, q.MaxBytes = -1, 500, 1, size
			part := kmsg.NewFetchRequestTopicPartition()
			part.PartitionMaxBytes = size
			q.Topics = []kmsg.FetchRequestTopic{{Topic: "t", Partitions: []kmsg.FetchRequestTopicPartition{part}}}
			at := &q.Topics[0].Partitions[0].FetchOffset
			b.ReportAllocs()
			var total, rounds int64
			for b.Loop() {
				rounds++
				if _, err := c.Write(frame(q, 12)); err != nil {
					b.Fatal(err)
				}
				n, next, err := c.fetched()
				if err != nil {
					b.Fatal(err)
				}
				total += int64(n)
				if *at = next; next >= fetchedBytes>>10 {
					*at = 0
				}
			}
			b.SetBytes(total / rounds)
		})
	}
}

// fetched reads an answer to a fetch of one partition of topic "t", version 12, and
// returns its size and the offset after its last batch.
func (c *rawConn) fetched() (size int, next int64, err error) {
	var head [4]byte
	if _, err := io.ReadFull(c.read, head[:]); err != nil {
		return 0, 0, err
	}
	size = int(binary.BigEndian.Uint32(head[:]))
	left := size
	begin := 4 + 1 + 4 + 2 + 4 + 1 + 2 + 1 // correlation, tags, throttle, error, session, count, name, count
	begin += 4 + 2 + 8 + 8 + 8 + 1 + 4     // number, error, offsets, no transactions, replica
	peek, err := c.read.Peek(begin + binary.MaxVarintLen32)
	if err != nil {
		return 0, 0, err
	}
	_, n := binary.Uvarint(peek[begin:])
	skipped, err := c.read.Discard(begin + n)
	left -= skipped
	for err == nil && left > 61 {
		var h []byte
		if h, err = c.read.Peek(61); err != nil {
			break
		}
		next = int64(binary.BigEndian.Uint64(h)) + int64(binary.BigEndian.Uint32(h[23:])) + 1
		batch := int(binary.BigEndian.Uint32(h[8:])) + 12
		_, err = c.read.Discard(batch)
		left -= batch
	}
	if err == nil {
		_, err = c.read.Discard(left)
	}
	return size, next, err
}

// BenchmarkKafkaFetch reads through franz-go.
func BenchmarkKafkaFetch(b *testing.B) {
	b.Run("client=franz", func(b *testing.B) {
		l := openKafka(b, 1, billet.FsyncInterval)
		fill(b, l)
		b.SetBytes(fetchedBytes)
		for b.Loop() {
			client, err := kgo.NewClient(kgo.SeedBrokers(l.KafkaAddr()), kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
				kgo.FetchMaxPartitionBytes(10<<20))
			if err != nil {
				b.Fatal(err)
			}
			for got := 0; got < fetchedBytes>>10; {
				fetches := client.PollFetches(b.Context())
				if err := fetches.Err(); err != nil {
					b.Fatal(err)
				}
				got += fetches.NumRecords()
			}
			client.Close()
		}
	})
}

// BenchmarkSendfile is the limit of fetching: a file of the page cache to a socket, with
// a reader that drops it.
func BenchmarkSendfile(b *testing.B) {
	path := filepath.Join(b.TempDir(), "file")
	if err := os.WriteFile(path, make([]byte, fetchedBytes), 0o600); err != nil {
		b.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	go func() {
		c, err := listener.Accept()
		if err != nil {
			return
		}
		defer func() { _ = c.Close() }()
		for {
			f, err := os.Open(path)
			if err == nil {
				_, err = io.Copy(c, f)
				_ = f.Close()
			}
			if err != nil {
				return
			}
		}
	}()
	c, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	read := bufio.NewReaderSize(c, 64<<10)
	b.SetBytes(fetchedBytes)
	for b.Loop() {
		if _, err := read.Discard(fetchedBytes); err != nil {
			b.Fatal(err)
		}
	}
}
