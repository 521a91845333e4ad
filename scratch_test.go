package billet_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/billetlog/billet"
)

func TestScratch(t *testing.T) {
	if os.Getenv("SCRATCH") == "" {
		t.Skip()
	}
	dir := t.TempDir()
	l, err := billet.Open(billet.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	if err := l.CreateTopic(ctx, billet.Topic{Name: "a", Partitions: 4}); err != nil {
		t.Fatal(err)
	}
	at, err := l.Produce(ctx, billet.Record{Topic: "a", Key: []byte("k"), Value: []byte("v")})
	fmt.Println(at, err)
	for _, size := range []int{100, 1024} {
		p, err := l.NewProducer(billet.ProducerConfig{})
		if err != nil {
			t.Fatal(err)
		}
		v := make([]byte, size)
		n := 3_000_000
		if size > 100 {
			n = 1_000_000
		}
		t0 := time.Now()
		for range n {
			if err := p.Produce(ctx, billet.Record{Topic: "a", Value: v}, nil); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.Flush(ctx); err != nil {
			t.Fatal(err)
		}
		el := time.Since(t0)
		fmt.Printf("size %d: %.0f rec/s %.0f MB/s\n", size, float64(n)/el.Seconds(), float64(n*size)/el.Seconds()/1e6)
		p.Close()
	}
	t0 := time.Now()
	fmt.Println(l.Close(), time.Since(t0))
}
