package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Bounds of waiting for a process.
const (
	startTimeout = time.Minute
	stopTimeout  = 30 * time.Second
)

// clockTicks are the units of /proc in a second, on every Linux that Go runs on.
const clockTicks = 100

// broker is a process that serves a directory.
type broker struct {
	address string
	dir     string
	process *exec.Cmd
	ended   chan struct{}
}

// startBroker starts a command with an empty directory.
func startBroker(ctx context.Context, command []string, dir string) (*broker, error) {
	if err := os.RemoveAll(dir); err != nil {
		return nil, err
	}
	port, err := freePorts()
	if err != nil {
		return nil, err
	}
	b := &broker{address: fmt.Sprintf("127.0.0.1:%d", port), dir: dir, ended: make(chan struct{})}
	b.process = exec.Command(command[0], append(command[1:], "-dir", dir, "-kafka", b.address)...)
	log, err := os.Create(dir + ".log")
	if err != nil {
		return nil, err
	}
	b.process.Stdout, b.process.Stderr = log, log
	err = b.process.Start()
	_ = log.Close()
	if err != nil {
		return nil, err
	}
	go func() {
		_ = b.process.Wait()
		close(b.ended)
	}()
	if err := b.await(ctx); err != nil {
		text, _ := os.ReadFile(dir + ".log")
		b.stop()
		return nil, fmt.Errorf("%s: %w\n%s", command[0], err, text)
	}
	return b, nil
}

// freePorts returns the first of two ports in a row that are free: a Kafka broker has
// its controller at the next one.
func freePorts() (int, error) {
	for range 50 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return 0, err
		}
		port := l.Addr().(*net.TCPAddr).Port
		next, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port+1))
		_ = l.Close()
		if err == nil {
			_ = next.Close()
			return port, nil
		}
	}
	return 0, errors.New("no two ports in a row are free")
}

// await waits until the broker answers.
func (b *broker) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		client, err := kgo.NewClient(kgo.SeedBrokers(b.address), kgo.RetryTimeout(time.Second))
		if err != nil {
			return err
		}
		m, err := kadm.NewClient(client).BrokerMetadata(ctx)
		client.Close()
		if err == nil && len(m.Brokers) > 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		case <-b.ended:
			return errors.New("the broker ended")
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// processorTime is what the process and those that it started have used so far.
func (b *broker) processorTime() (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", b.process.Process.Pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:])) // from the third on
	if len(fields) < 15 {
		return 0, fmt.Errorf("/proc has %d fields of the process", len(fields))
	}
	var ticks int64
	for _, field := range fields[11:15] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / clockTicks, nil
}

// stop ends the process and removes its directory.
func (b *broker) stop() {
	_ = b.process.Process.Signal(syscall.SIGTERM)
	select {
	case <-b.ended:
	case <-time.After(stopTimeout):
		_ = b.process.Process.Kill()
		<-b.ended
	}
	_ = os.RemoveAll(b.dir)
}

// create makes a topic of one partition and waits for its leader.
func (b *broker) create(ctx context.Context, topic string, config map[string]*string) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(b.address))
	if err != nil {
		return err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	if _, err := admin.CreateTopic(ctx, 1, 1, config, topic); err != nil {
		return fmt.Errorf("topic %s: %w", topic, err)
	}
	end := time.Now().Add(startTimeout)
	for {
		offsets, err := admin.ListEndOffsets(ctx, topic)
		if err == nil && offsets.Error() == nil {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("topic %s has no leader: %w", topic, errors.Join(err, offsets.Error()))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}
