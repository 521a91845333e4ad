package billet

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/internal/invariants"
)

// residentMiB is what a process has in memory.
func residentMiB(t *testing.T, pid int) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if f := strings.Fields(line); f[0] == "VmRSS:" {
			kib, err := strconv.Atoi(f[1])
			if err != nil {
				t.Fatal(err)
			}
			return kib >> 10
		}
	}
	t.Fatal("no VmRSS")
	return 0
}

// settledMiB is the least of a while: what garbage there is goes.
func settledMiB(t *testing.T, pid int) int {
	t.Helper()
	least := residentMiB(t, pid)
	for range 5 {
		<-time.After(200 * time.Millisecond)
		least = min(least, residentMiB(t, pid))
	}
	return least
}

// idleClient connects and asks for versions and topics, as clients do, and then nothing.
func idleClient(addr string) (net.Conn, error) {
	c, err := net.Dial("tcp", addr)
	if err == nil {
		err = askVersions(c)
	}
	if err == nil {
		err = askBytes(c, kmsg.NewPtrMetadataRequest())
	}
	return c, err
}

func askVersions(c net.Conn) error { return askBytes(c, kmsg.NewPtrApiVersionsRequest()) }

// askBytes sends a request and takes the answer, whatever it is.
func askBytes(c net.Conn, request kmsg.Request) error {
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return err
	}
	frame := kafkaFrame(request, 1)
	if _, err := c.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...)); err != nil {
		return err
	}
	var size [4]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return err
	}
	_, err := io.CopyN(io.Discard, c, int64(binary.BigEndian.Uint32(size[:])))
	return err
}

// idleClients connects many, some at a time.
func idleClients(t *testing.T, addr string, n int) {
	t.Helper()
	var mu sync.Mutex
	var failed error
	var running sync.WaitGroup
	room := make(chan struct{}, 64)
	for range n {
		room <- struct{}{}
		running.Go(func() {
			defer func() { <-room }()
			c, err := idleClient(addr)
			mu.Lock()
			defer mu.Unlock()
			if c != nil {
				t.Cleanup(func() { _ = c.Close() })
			}
			if err != nil {
				failed = err
			}
		})
	}
	running.Wait()
	if failed != nil {
		t.Fatal(failed)
	}
}

// What connections cost, in a process of its own: 1,000 that are idle stay below 100 MiB
// of memory, and with 100 busy ones below 300 MiB.
func TestKafkaConnectionMemory(t *testing.T) {
	if invariants.Enabled {
		t.Skip("memory under the race detector says nothing")
	}
	c := startChild(t, "kafka", t.TempDir(), 0)
	defer c.kill()
	if !c.lines.Scan() {
		t.Fatal("the child has no address")
	}
	addr, pid := c.lines.Text(), c.cmd.Process.Pid
	empty := settledMiB(t, pid)
	idleClients(t, addr, 1000)
	idle := settledMiB(t, pid)
	busy := busyMiB(t, addr, pid, 100)
	t.Logf("resident: %d MiB empty, %d MiB with 1,000 idle connections, %d MiB at most with 100 busy clients", empty, idle, busy)
	if idle >= 100 {
		t.Errorf("%d MiB with 1,000 idle connections", idle)
	}
	if busy >= 300 {
		t.Errorf("%d MiB with 100 busy clients", busy)
	}
	if os.Getenv("BILLET_TEST_CONNECTIONS") == "" {
		return
	}
	before := roundTrip(t, addr)
	idleClients(t, addr, 9000)
	t.Logf("resident: %d MiB with 10,000 connections; a request takes %v, and %v before", settledMiB(t, pid), roundTrip(t, addr), before)
}

// roundTrip is how long a request takes that does nothing, in the median.
func roundTrip(t *testing.T, addr string) time.Duration {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	var took []time.Duration
	for range 2000 {
		start := time.Now()
		if err := askVersions(c); err != nil {
			t.Fatal(err)
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	return took[len(took)/2]
}

// busyMiB is the most that the node needs while clients produce and fetch.
func busyMiB(t *testing.T, addr string, pid, clients int) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Second)
	defer cancel()
	var running sync.WaitGroup
	for i := range clients {
		opts := []kgo.Opt{kgo.SeedBrokers(addr), kgo.DefaultProduceTopic("t"), kgo.ProducerBatchCompression(kgo.NoCompression()),
			kgo.MaxBufferedRecords(256), kgo.ConsumeTopics("t"), kgo.FetchMaxBytes(4 << 20)}
		client, err := kgo.NewClient(opts...)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		running.Go(func() {
			value := make([]byte, 1024)
			for ctx.Err() == nil {
				if i%2 == 0 {
					client.Produce(ctx, &kgo.Record{Value: value}, nil)
				} else {
					client.PollFetches(ctx)
				}
			}
		})
	}
	most := 0
	for ctx.Err() == nil {
		most = max(most, residentMiB(t, pid))
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
	running.Wait()
	return most
}
