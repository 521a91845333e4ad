// Command ready waits until a broker answers as one that clients can use: it
// names itself as controller and leads the partition of a topic made for that.
//
//	go run ./ready -broker 127.0.0.1:9092 -timeout 1m
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// topic is left behind: the broker is a new one.
const topic = "ready"

func main() {
	broker := flag.String("broker", "127.0.0.1:9092", "`address` of the broker")
	brokers := flag.Int("brokers", 1, "how many there have to be")
	timeout := flag.Duration("timeout", time.Minute, "how long to wait")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), *timeout)
	defer cancel()
	if err := wait(ctx, *broker, *brokers); err != nil {
		fmt.Fprintf(os.Stderr, "ready: %s did not get ready: %v\n", *broker, err)
		os.Exit(1)
	}
}

func wait(ctx context.Context, broker string, brokers int) error {
	var last error
	for {
		attempt, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := try(attempt, broker, brokers)
		cancel()
		if err == nil {
			return nil
		}
		if ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return errors.Join(last, ctx.Err())
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func try(ctx context.Context, broker string, brokers int) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(broker), kgo.RetryTimeout(time.Second))
	if err != nil {
		return err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	_, err = admin.CreateTopic(ctx, 1, 1, nil, topic)
	if err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
		return err
	}
	metadata, err := admin.Metadata(ctx, topic)
	if err != nil {
		return err
	}
	if err := metadata.Topics.Error(); err != nil {
		return err
	}
	if len(metadata.Brokers) < brokers || metadata.Controller < 0 {
		return fmt.Errorf("%d brokers, controller %d", len(metadata.Brokers), metadata.Controller)
	}
	return nil
}
