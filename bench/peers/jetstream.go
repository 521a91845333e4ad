package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/jetstreamext"
)

// Settings of JetStream's modes; peers.md found these to be its best.
const (
	asyncPendingMax  = 4096
	atomicBatch      = 1000
	fastFlow         = 1024
	fastOutstanding  = 4
	consumeBuffered  = 5000
	fetchBatch       = 1000
	jetstreamTimeout = 20 * time.Second
	// shortWindow is a duplicate window for reopening: a server scans all
	// messages inside the window (2 minutes by default) when it opens. Elsewhere
	// the default is better: with this one, latency has a peak every 100 ms.
	shortWindow = 100 * time.Millisecond
)

// jetStream is an embedded server with one stream a partition and clients in
// the same process, connected by pipes.
type jetStream struct {
	shape  shape
	server *server.Server
	conns  []*nats.Conn
	admin  jetstream.JetStream
	sender jetstream.JetStream
	async  atomic.Pointer[error] // the first error of an asynchronous publish
}

func openJetStream(ctx context.Context, dir string, s shape) (system, error) {
	js := &jetStream{shape: s}
	if err := js.open(ctx, dir); err != nil {
		return nil, errors.Join(err, js.Close())
	}
	return js, nil
}

func (js *jetStream) open(ctx context.Context, dir string) error {
	srv, err := server.NewServer(&server.Options{
		ServerName: "peer",
		DontListen: true,
		NoLog:      true,
		NoSigs:     true,
		JetStream:  true,
		StoreDir:   dir,
		SyncAlways: js.shape.Durable,
		MaxPayload: 1 << 20,
	})
	if err != nil {
		return err
	}
	js.server = srv
	go srv.Start()
	if !srv.ReadyForConnections(time.Minute) {
		return errors.New("jetstream: server not ready")
	}
	if js.admin, err = js.client(); err != nil {
		return err
	}
	if js.shape.Existing {
		return nil
	}
	var window time.Duration // 0 is the default
	if js.shape.ShortWindow {
		window = shortWindow
	}
	for p := range js.shape.Partitions {
		_, err := js.admin.CreateStream(ctx, jetstream.StreamConfig{
			Name:               streamName(p),
			Subjects:           []string{subject(p)},
			Storage:            jetstream.FileStorage,
			Duplicates:         window,
			AllowBatchPublish:  js.shape.Ingest == "fast",
			AllowAtomicPublish: js.shape.Ingest == "atomic",
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func streamName(partition int) string { return fmt.Sprintf("S%d", partition) }
func subject(partition int) string    { return fmt.Sprintf("s%d.a", partition) }

// client returns a client with a connection of its own.
func (js *jetStream) client() (jetstream.JetStream, error) {
	conn, err := nats.Connect("", nats.InProcessServer(js.server))
	if err != nil {
		return nil, err
	}
	js.conns = append(js.conns, conn)
	return js.clientOn(conn)
}

func (js *jetStream) clientOn(conn *nats.Conn) (jetstream.JetStream, error) {
	return jetstream.New(conn, jetstream.WithDefaultTimeout(jetstreamTimeout),
		jetstream.WithPublishAsyncMaxPending(asyncPendingMax),
		jetstream.WithPublishAsyncErrHandler(func(_ jetstream.JetStream, _ *nats.Msg, err error) { js.fail(err) }))
}

func (js *jetStream) fail(err error) { js.async.CompareAndSwap(nil, &err) }

func (js *jetStream) failed() error {
	if err := js.async.Load(); err != nil {
		return *err
	}
	return nil
}

func (js *jetStream) Close() error {
	for _, c := range js.conns {
		c.Close()
	}
	if js.server != nil {
		js.server.Shutdown()
		js.server.WaitForShutdown()
	}
	return nil
}

func (js *jetStream) Publish(ctx context.Context, partition int, value []byte) error {
	_, err := js.admin.Publish(ctx, subject(partition), value)
	return err
}

func (js *jetStream) Count(ctx context.Context) (records int64, err error) {
	for p := range js.shape.Partitions {
		stream, err := js.admin.Stream(ctx, streamName(p))
		if err != nil {
			return 0, err
		}
		records += int64(stream.CachedInfo().State.Msgs)
	}
	return records, nil
}

// Ingest gives feeder i the stream i modulo the number of streams.
func (js *jetStream) Ingest(ctx context.Context, l load, acked *atomic.Int64) error {
	way := map[string]func(context.Context, jetstream.JetStream, string, *feeder, *atomic.Int64) error{
		"": js.ingestAsync, "async": js.ingestAsync, "fast": js.ingestFast, "atomic": js.ingestAtomic,
	}[js.shape.Ingest]
	clients := make([]jetstream.JetStream, l.feeders)
	for i := range clients {
		var err error
		if clients[i], err = js.client(); err != nil {
			return err
		}
	}
	errs := make([]error, l.feeders)
	var wg sync.WaitGroup
	for i, f := range l.start() {
		wg.Go(func() { errs[i] = way(ctx, clients[i], subject(i%js.shape.Partitions), f, acked) })
	}
	wg.Wait()
	return errors.Join(append(errs, js.failed())...)
}

// ingestAsync publishes without waiting, up to asyncPendingMax in flight.
func (js *jetStream) ingestAsync(ctx context.Context, client jetstream.JetStream, subject string, f *feeder, acked *atomic.Int64) error {
	var told int64
	tell := func() {
		now := f.given - int64(client.PublishAsyncPending())
		acked.Add(now - told)
		told = now
	}
	for {
		value, ok := f.next()
		if !ok {
			break
		}
		if err := publishAsync(ctx, client, subject, value); err != nil {
			return err
		}
		if f.given%256 == 0 {
			tell()
		}
	}
	select {
	case <-client.PublishAsyncComplete():
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := js.failed(); err != nil {
		return err
	}
	tell()
	return nil
}

// publishAsync waits for room where the client would give up after a while.
func publishAsync(ctx context.Context, client jetstream.JetStream, subject string, value []byte) error {
	for {
		_, err := client.PublishAsync(subject, value)
		if !errors.Is(err, jetstream.ErrTooManyStalledMsgs) {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// ingestFast publishes one endless batch with acknowledgements every fastFlow records.
func (js *jetStream) ingestFast(ctx context.Context, client jetstream.JetStream, subject string, f *feeder, acked *atomic.Int64) error {
	value, ok := f.next()
	if !ok {
		return nil
	}
	batch, err := jetstreamext.NewFastPublisher(client,
		jetstreamext.FastPublishFlowControl{Flow: fastFlow, MaxOutstandingAcks: fastOutstanding, AckTimeout: jetstreamTimeout},
		jetstreamext.WithFastPublisherErrorHandler(js.fail))
	if err != nil {
		return err
	}
	var told int64
	for {
		following, more := f.next()
		if !more {
			break
		}
		ack, err := batch.Add(subject, value)
		if err != nil {
			return err
		}
		if now := int64(ack.AckSequence); now > told {
			acked.Add(now - told)
			told = now
		}
		value = following
	}
	ack, err := batch.Commit(ctx, subject, value)
	if err != nil {
		return err
	}
	if int64(ack.BatchSize) != f.given {
		return fmt.Errorf("fast ingest: %d of %d records committed", ack.BatchSize, f.given)
	}
	acked.Add(f.given - told)
	return nil
}

// ingestAtomic publishes atomic batches of atomicBatch records, one at a time.
func (js *jetStream) ingestAtomic(ctx context.Context, client jetstream.JetStream, subject string, f *feeder, acked *atomic.Int64) error {
	for {
		messages := make([]*nats.Msg, 0, atomicBatch)
		for len(messages) < atomicBatch {
			value, ok := f.next()
			if !ok {
				break
			}
			messages = append(messages, &nats.Msg{Subject: subject, Data: value, Header: nats.Header{}})
		}
		if len(messages) == 0 {
			return nil
		}
		if _, err := jetstreamext.PublishMsgBatch(ctx, client, messages); err != nil {
			return err
		}
		acked.Add(int64(len(messages)))
	}
}

func (js *jetStream) Consume(ctx context.Context, visit func([]byte) error) error {
	client, err := js.client()
	if err != nil {
		return err
	}
	consumer, err := client.CreateConsumer(ctx, streamName(0), jetstream.ConsumerConfig{
		AckPolicy: jetstream.AckNonePolicy, DeliverPolicy: jetstream.DeliverAllPolicy,
	})
	if err != nil {
		return err
	}
	if js.shape.Consume == "fetch" {
		err = consumeFetched(ctx, consumer, visit)
	} else {
		err = consumeCalled(ctx, consumer, visit)
	}
	if errors.Is(err, errEnough) {
		err = nil
	}
	return errors.Join(err, client.DeleteConsumer(ctx, streamName(0), consumer.CachedInfo().Name))
}

// consumeFetched asks for one batch after the other.
func consumeFetched(ctx context.Context, consumer jetstream.Consumer, visit func([]byte) error) error {
	for ctx.Err() == nil {
		batch, err := consumer.Fetch(fetchBatch, jetstream.FetchMaxWait(time.Second))
		if err != nil {
			return err
		}
		for message := range batch.Messages() {
			if err := visit(message.Data()); err != nil {
				return err
			}
		}
		if err := batch.Error(); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// consumeCalled is called back, with up to consumeBuffered messages ahead.
func consumeCalled(ctx context.Context, consumer jetstream.Consumer, visit func([]byte) error) error {
	ended := make(chan error, 1)
	over := false
	running, err := consumer.Consume(func(message jetstream.Msg) {
		if over {
			return
		}
		if err := visit(message.Data()); err != nil {
			over = true
			ended <- err
		}
	}, jetstream.PullMaxMessages(consumeBuffered))
	if err != nil {
		return err
	}
	defer running.Stop()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (js *jetStream) Send(ctx context.Context, value []byte) (err error) {
	if js.sender == nil {
		if js.sender, err = js.client(); err != nil {
			return err
		}
	}
	return publishAsync(ctx, js.sender, subject(0), value)
}

func (js *jetStream) Sent(ctx context.Context) error {
	if js.sender == nil {
		return nil
	}
	select {
	case <-js.sender.PublishAsyncComplete():
		return js.failed()
	case <-ctx.Done():
		return ctx.Err()
	}
}
