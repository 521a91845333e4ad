package billet_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/billetlog/billet"
)

func openExample() (*billet.Log, func(), error) {
	dir, err := os.MkdirTemp("", "billet-example-*")
	if err != nil {
		return nil, nil, err
	}
	log, err := billet.Open(billet.Config{Dir: dir})
	if err != nil {
		return nil, nil, err
	}
	return log, func() {
		_ = log.Close()
		_ = os.RemoveAll(dir)
	}, nil
}

func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	log, done, err := openExample()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer done()
	err = log.CreateTopic(ctx, billet.Topic{Name: "orders", Retention: 7 * 24 * time.Hour})
	if err != nil {
		fmt.Println(err)
		return
	}
	at, err := log.Produce(ctx, billet.Record{Topic: "orders", Key: []byte("ada"), Value: []byte("one tea")})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("written to partition", at.Partition, "at", at.Offset)

	consumer, err := log.NewConsumer(billet.ConsumerConfig{Topics: []string{"orders"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer consumer.Close()
	records, err := consumer.Poll(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, r := range records {
		fmt.Printf("%s: %s\n", r.Key, r.Value)
	}
	// Output:
	// written to partition 0 at 0
	// ada: one tea
}

func ExampleProducer() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	log, done, err := openExample()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer done()
	if err := log.CreateTopic(ctx, billet.Topic{Name: "clicks", Partitions: 4, Fsync: billet.FsyncInterval}); err != nil {
		fmt.Println(err)
		return
	}
	producer, err := log.NewProducer(billet.ProducerConfig{Compression: billet.Zstd})
	if err != nil {
		fmt.Println(err)
		return
	}
	written := 0
	for i := range 1000 {
		r := billet.Record{Topic: "clicks", Key: fmt.Appendf(nil, "user-%d", i%10), Value: []byte("clicked")}
		err := producer.Produce(ctx, r, func(_ billet.Offset, err error) {
			if err == nil {
				written++
			}
		})
		if err != nil {
			fmt.Println(err)
			return
		}
	}
	if err := producer.Close(); err != nil { // flushes
		fmt.Println(err)
		return
	}
	fmt.Println(written, "records written")
	// Output: 1000 records written
}

func ExampleConsumer_Records() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	log, done, err := openExample()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer done()
	if err := log.CreateTopic(ctx, billet.Topic{Name: "steps"}); err != nil {
		fmt.Println(err)
		return
	}
	for _, step := range []string{"wake", "wash", "walk"} {
		if _, err := log.Produce(ctx, billet.Record{Topic: "steps", Value: []byte(step)}); err != nil {
			fmt.Println(err)
			return
		}
	}
	consumer, err := log.NewConsumer(billet.ConsumerConfig{Topics: []string{"steps"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer consumer.Close()
	for r, err := range consumer.Records(ctx) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%d %s\n", r.Offset, r.Value)
		if r.Offset == 2 {
			break
		}
	}
	// Output:
	// 0 wake
	// 1 wash
	// 2 walk
}

// Two members of a group, one after the other: the second goes on where the first was.
func ExampleConsumerConfig_group() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	log, done, err := openExample()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer done()
	if err := log.CreateTopic(ctx, billet.Topic{Name: "orders"}); err != nil {
		fmt.Println(err)
		return
	}
	for _, order := range []string{"tea", "milk", "salt", "rice"} {
		if _, err := log.Produce(ctx, billet.Record{Topic: "orders", Value: []byte(order)}); err != nil {
			fmt.Println(err)
			return
		}
	}
	for member := 1; member <= 2; member++ {
		c, err := log.NewConsumer(billet.ConsumerConfig{Group: "kitchen", Topics: []string{"orders"}, MaxPollRecords: 2})
		if err != nil {
			fmt.Println(err)
			return
		}
		records, err := c.Poll(ctx)
		if err != nil {
			fmt.Println(err)
			return
		}
		for _, r := range records {
			fmt.Printf("member %d: %s\n", member, r.Value)
		}
		if err := c.Close(); err != nil { // commits
			fmt.Println(err)
			return
		}
	}
	// Output:
	// member 1: tea
	// member 1: milk
	// member 2: salt
	// member 2: rice
}
