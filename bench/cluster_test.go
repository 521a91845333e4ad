package bench

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/billetlog/billet"
)

const clusterNodes = 3

// openCluster opens three nodes in this process, which reach each other over TCP, and makes a topic of three replicas.
func openCluster(b *testing.B, partitions int, fsync billet.Fsync) []*billet.Log {
	b.Helper()
	var addresses []string
	var ids []int32
	for i := range clusterNodes {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		defer l.Close()
		addresses, ids = append(addresses, l.Addr().String()), append(ids, int32(i+1))
		if err := l.Close(); err != nil {
			b.Fatal(err)
		}
	}
	nodes, errs := make([]*billet.Log, clusterNodes), make([]error, clusterNodes)
	dir := b.TempDir()
	var wg sync.WaitGroup
	for i, id := range ids { // each waits for the others
		wg.Go(func() {
			nodes[i], errs[i] = billet.Open(billet.Config{
				Dir: filepath.Join(dir, fmt.Sprint(id)), NodeID: id,
				Cluster: billet.Cluster{Listen: addresses[i], Join: addresses, Bootstrap: ids},
			})
		})
	}
	wg.Wait()
	b.Cleanup(func() {
		for _, l := range nodes {
			if l != nil {
				wg.Go(func() {
					if err := l.Close(); err != nil {
						b.Error(err)
					}
				})
			}
		}
		wg.Wait()
	})
	for _, err := range errs {
		if err != nil {
			b.Fatal(err)
		}
	}
	topic := billet.Topic{Name: "t", Partitions: partitions, Replicas: clusterNodes, Fsync: fsync}
	if err := nodes[0].CreateTopic(context.Background(), topic); err != nil {
		b.Fatal(err)
	}
	return nodes
}

// leaderOf returns the node that leads a partition once all know it.
func leaderOf(b *testing.B, nodes []*billet.Log, partition int) *billet.Log {
	b.Helper()
	for {
		agreed := int32(0)
		for i, l := range nodes {
			info, err := l.Topic(context.Background(), "t")
			if err != nil || len(info.Partitions) <= partition || info.Partitions[partition].Leader < 1 {
				agreed = 0
				break
			}
			if leader := info.Partitions[partition].Leader; i == 0 || leader == agreed {
				agreed = leader
			}
		}
		if agreed > 0 {
			return nodes[agreed-1]
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// BenchmarkClusterAppend is one record after the other, on the node that leads and on one that forwards.
func BenchmarkClusterAppend(b *testing.B) {
	for _, p := range policies {
		for _, at := range []string{"leader", "other"} {
			b.Run(fmt.Sprintf("fsync=%s/at=%s/size=1024", p.name, at), func(b *testing.B) {
				nodes := openCluster(b, 1, p.fsync)
				l := leaderOf(b, nodes, 0)
				if at == "other" {
					for _, n := range nodes {
						if n != l {
							l = n
							break
						}
					}
				}
				r := billet.Record{Topic: "t", Value: make([]byte, 1024)}
				for range 200 {
					if _, err := l.Produce(b.Context(), r); err != nil {
						b.Fatal(err)
					}
				}
				b.SetBytes(1024)
				for b.Loop() {
					if _, err := l.Produce(b.Context(), r); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkClusterProduce is a firehose through one Producer on each of three nodes into eight partitions.
func BenchmarkClusterProduce(b *testing.B) {
	for _, p := range policies {
		for _, size := range []int{100, 1024} {
			b.Run(fmt.Sprintf("fsync=%s/partitions=8/size=%d", p.name, size), func(b *testing.B) {
				nodes := openCluster(b, 8, p.fsync)
				for i := range 8 {
					leaderOf(b, nodes, i)
				}
				b.SetBytes(int64(size))
				b.ResetTimer()
				var wg sync.WaitGroup
				for _, l := range nodes {
					wg.Go(func() { firehose(b, l, b.N/clusterNodes+1, size) })
				}
				wg.Wait()
			})
		}
	}
}

// firehose sends n records and waits for all.
func firehose(b *testing.B, l *billet.Log, n, size int) {
	p, err := l.NewProducer(billet.ProducerConfig{})
	if err != nil {
		b.Error(err)
		return
	}
	r := billet.Record{Topic: "t", Value: make([]byte, size)}
	for range n {
		if err := p.Produce(context.Background(), r, nil); err != nil {
			b.Error(err)
			break
		}
	}
	if err := p.Flush(context.Background()); err != nil {
		b.Error(err)
	}
	if err := p.Close(); err != nil {
		b.Error(err)
	}
}
