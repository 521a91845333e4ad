package transport

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
)

// benchPair starts two nodes over a transport.
func benchPair(b *testing.B, name string, spoil func(one, two *Options)) (*Node, *Node) {
	b.Helper()
	var t1, t2 Transport
	listen := "127.0.0.1:0"
	switch name {
	case "tcp":
		t1, t2 = TCP{}, TCP{}
	case "tls":
		ca := newAuthority(b, "ca")
		t1, t2 = ca.transport(b, "one"), ca.transport(b, "two")
	case "memory":
		m := newTestNetwork(b, 1)
		t1, t2, listen = m.Host("one"), m.Host("two"), "two"
	}
	one := Options{ID: 1, ClusterID: testCluster, Transport: t1, CheckIdentity: anyIdentity}
	two := Options{ID: 2, ClusterID: testCluster, Transport: t2, CheckIdentity: anyIdentity, ListenAddress: listen}
	spoil(&one, &two)
	return pair(b, one, two)
}

// BenchmarkBatches: batches per second, sent as fast as the queue takes them and delivered.
func BenchmarkBatches(b *testing.B) {
	for _, tr := range []string{"tcp", "tls", "memory"} {
		for _, size := range []int{200, 64 << 10} {
			b.Run(fmt.Sprintf("transport=%s/bytes=%d", tr, size), func(b *testing.B) {
				var got atomic.Int64
				done := make(chan struct{}, 1)
				n := int64(0)
				one, _ := benchPair(b, tr, func(_, two *Options) {
					two.OnBatch = func(Peer, []byte) {
						if got.Add(1) == n {
							done <- struct{}{}
						}
					}
				})
				s, err := one.OpenBatches(context.Background(), 2, FullWaits)
				if err != nil {
					b.Fatal(err)
				}
				payload := make([]byte, size)
				n = int64(b.N)
				b.SetBytes(int64(size))
				b.ReportAllocs()
				b.ResetTimer()
				for range b.N {
					if err := s.Send(payload); err != nil {
						b.Fatal(err)
					}
				}
				<-done
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
			})
		}
	}
}

// BenchmarkCall: one request after the other (callers=1), and many at a time.
func BenchmarkCall(b *testing.B) {
	for _, tr := range []string{"tcp", "tls", "memory"} {
		for _, callers := range []int{1, 64} {
			b.Run(fmt.Sprintf("transport=%s/callers=%d/bytes=100", tr, callers), func(b *testing.B) {
				one, _ := benchPair(b, tr, func(_, two *Options) {
					two.OnRequest = func(_ context.Context, _ Peer, p []byte) ([]byte, error) { return p, nil }
				})
				payload := make([]byte, 100)
				if _, err := one.Call(context.Background(), 2, payload); err != nil {
					b.Fatal(err)
				}
				b.ReportAllocs()
				b.ResetTimer()
				left := int64(b.N)
				var next atomic.Int64
				done := make(chan error, callers)
				for range callers {
					go func() {
						for next.Add(1) <= left {
							if _, err := one.Call(context.Background(), 2, payload); err != nil {
								done <- err
								return
							}
						}
						done <- nil
					}()
				}
				for range callers {
					if err := <-done; err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N), "µs/call")
			})
		}
	}
}

// BenchmarkPull: 16 MiB of a file in page cache, to nowhere.
func BenchmarkPull(b *testing.B) {
	const size = 16 << 20
	name := filepath.Join(b.TempDir(), "data")
	if err := os.WriteFile(name, make([]byte, size), 0o600); err != nil {
		b.Fatal(err)
	}
	for _, tr := range []string{"tcp", "tls", "memory"} {
		b.Run("transport="+tr, func(b *testing.B) {
			one, _ := benchPair(b, tr, func(_, two *Options) {
				two.OnPull = func(context.Context, Peer, PullRequest) (Source, error) {
					f, err := os.Open(name)
					if err != nil {
						return Source{}, err
					}
					return FileRange(f, 0, size)
				}
			})
			b.SetBytes(size)
			buf := make([]byte, 256<<10)
			for b.Loop() {
				p, err := one.Pull(context.Background(), 2, PullRequest{})
				if err != nil {
					b.Fatal(err)
				}
				n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, p, buf)
				if err != nil || n != size {
					b.Fatal(n, err)
				}
				_ = p.Close()
			}
		})
	}
}

// BenchmarkSum: the checksum alone.
func BenchmarkSum(b *testing.B) {
	for _, size := range []int{32, 64 << 10} {
		b.Run(fmt.Sprintf("bytes=%d", size), func(b *testing.B) {
			data := make([]byte, size)
			b.SetBytes(int64(size))
			for b.Loop() {
				sum64(1, data)
			}
		})
	}
}
