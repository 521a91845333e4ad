package billet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/billetlog/billet/internal/batch"
	"github.com/billetlog/billet/internal/vfs"
)

// openMem opens a log on files in memory; reopen closes it and opens it again.
func openMem(t *testing.T) (l *Log, reopen func() *Log) {
	t.Helper()
	mem := vfs.NewMem()
	reopen = func() *Log {
		t.Helper()
		if l != nil {
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		}
		var err error
		if l, err = open(Config{Dir: "d", DiskReserve: -1, JournalBytes: 1 << 20}, seams{fs: mem}); err != nil {
			t.Fatal(err)
		}
		return l
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return reopen(), reopen
}

// batchSize is what one record with the value takes in a batch of its own.
func batchSize(value []byte) int {
	var b batch.Builder
	b.Reset(batch.BuilderOptions{})
	b.Append(0, nil, value, nil)
	return b.Size()
}

// TestRecordSizes writes records whose batch is just below max.message.bytes, at it and above it, on every way there is. What counts is the size
// before compression.
func TestRecordSizes(t *testing.T) {
	ctx := testContext(t)
	l, _ := openMem(t)
	const limit = 4096
	if err := l.CreateTopic(ctx, Topic{Name: "t", Config: map[string]string{"max.message.bytes": "4096"}}); err != nil {
		t.Fatal(err)
	}
	ways := map[string]func([]byte) (Offset, error){
		"Produce": func(v []byte) (Offset, error) { return l.Produce(ctx, Record{Topic: "t", Value: v}) },
		"ProduceBatch": func(v []byte) (Offset, error) {
			return l.ProduceBatch(ctx, "t", 0, []Record{{Value: v}})
		},
	}
	for _, codec := range []Compression{NoCompression, Gzip, Snappy, LZ4, Zstd} {
		for _, bytes := range []int{1024, 64 << 10} {
			p, err := l.NewProducer(ProducerConfig{Compression: codec, BatchBytes: bytes})
			if err != nil {
				t.Fatal(err)
			}
			ways[fmt.Sprintf("Producer %v %d", codec, bytes)] = func(v []byte) (Offset, error) {
				return p.ProduceSync(ctx, Record{Topic: "t", Value: v})
			}
		}
	}
	at := limit - batchSize(nil)
	for batchSize(make([]byte, at)) > limit {
		at--
	}
	if batchSize(make([]byte, at)) != limit {
		t.Fatalf("no value makes a batch of %d bytes", limit)
	}
	next := int64(0)
	for name, produce := range ways {
		for _, c := range []struct {
			size int
			good bool
		}{{at - 1, true}, {at, true}, {at + 1, false}, {limit, false}, {10 * limit, false}, {8 << 20, false}, {0, true}} {
			got, err := produce(make([]byte, c.size)) // compresses to nearly nothing
			if c.good {
				if err != nil || got.Offset != next {
					t.Fatalf("%s, %d bytes: %+v, %v", name, c.size, got, err)
				}
				next++
				continue
			}
			if !errors.Is(err, ErrRecordTooLarge) || Retriable(err) || !strings.Contains(err.Error(), "max.message.bytes") || !strings.Contains(err.Error(), "4096") {
				t.Errorf("%s, %d bytes: %v", name, c.size, err)
			}
		}
	}
	// Together they are one batch, which the limit is about.
	many := make([]Record, 5)
	for i := range many {
		many[i].Value = make([]byte, 1000)
	}
	if _, err := l.ProduceBatch(ctx, "t", 0, many); !errors.Is(err, ErrRecordTooLarge) {
		t.Errorf("five records in one batch: %v", err)
	}
	// A raised limit holds at once.
	if err := l.AlterTopic(ctx, "t", Alter{Set: map[string]string{"max.message.bytes": "1048588"}}); err != nil {
		t.Fatal(err)
	}
	for name, produce := range ways {
		if got, err := produce(make([]byte, limit)); err != nil || got.Offset != next {
			t.Errorf("%s with a raised limit: %+v, %v", name, got, err)
		}
		next++
	}
}

// roundTrips are records whose every part must come back as it was.
func roundTrips() []Record {
	var out []Record
	parts := [][]byte{nil, {}, []byte("x"), bytes.Repeat([]byte("long "), 100), {0, 255, '\n'}}
	for _, key := range parts {
		for _, value := range parts {
			out = append(out, Record{Key: key, Value: value})
		}
	}
	for _, value := range parts {
		out = append(out, Record{Value: value, Headers: []Header{
			{Key: "a", Value: value}, {Key: "", Value: nil}, {Key: "a", Value: []byte{}}, {Key: "\xff\x00", Value: []byte("x")},
		}})
	}
	for i := range out {
		out[i].Topic = "t"
		out[i].Timestamp = time.UnixMilli(1_700_000_000_000 - int64(i*i)) // not in order
	}
	for _, ms := range []int64{0, 1} {
		out = append(out, Record{Topic: "t", Timestamp: time.UnixMilli(ms)})
	}
	return out
}

// sameRecord compares all but the offset and tells nil from empty.
func sameRecord(a, b *Record) bool {
	same := func(a, b []byte) bool { return bytes.Equal(a, b) && (a == nil) == (b == nil) }
	if !same(a.Key, b.Key) || !same(a.Value, b.Value) || len(a.Headers) != len(b.Headers) || a.Timestamp.UnixMilli() != b.Timestamp.UnixMilli() {
		return false
	}
	for i := range a.Headers {
		if a.Headers[i].Key != b.Headers[i].Key || !same(a.Headers[i].Value, b.Headers[i].Value) {
			return false
		}
	}
	return true
}

// TestRecordsComeBackAsTheyWere writes records of all shapes with each codec and in batches large and small, and reads them in every way, also after
// opening anew.
func TestRecordsComeBackAsTheyWere(t *testing.T) {
	ctx := testContext(t)
	l, reopen := openMem(t)
	if err := l.CreateTopic(ctx, Topic{Name: "t", Config: map[string]string{"segment.bytes": "65536"}}); err != nil {
		t.Fatal(err)
	}
	var want []Record
	for _, codec := range []Compression{NoCompression, Gzip, Snappy, LZ4, Zstd} {
		for _, linger := range []time.Duration{0, time.Minute} { // small batches, and one that holds all
			p, err := l.NewProducer(ProducerConfig{Compression: codec, Linger: linger, BatchBytes: 1 << 20})
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range roundTrips() {
				if err := p.Produce(ctx, r, nil); err != nil {
					t.Fatal(err)
				}
				want = append(want, r)
			}
			if err := p.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, r := range roundTrips() {
		if _, err := l.Produce(ctx, r); err != nil {
			t.Fatal(err)
		}
		want = append(want, r)
	}
	if _, err := l.ProduceBatch(ctx, "t", 0, roundTrips()); err != nil {
		t.Fatal(err)
	}
	want = append(want, roundTrips()...)
	for _, when := range []string{"at once", "after opening anew"} {
		check := func(how string, n int, got *Record) {
			t.Helper()
			if got.Offset != int64(n) || !sameRecord(got, &want[n]) {
				t.Fatalf("%s, %s: record %d is %+v, was %+v", when, how, n, got, want[n])
			}
		}
		p, err := l.Partition(ctx, "t", 0)
		if err != nil {
			t.Fatal(err)
		}
		for n := 0; n < len(want); {
			got, err := p.Read(ctx, int64(n), 1+n%40)
			if err != nil || len(got) == 0 {
				t.Fatalf("%s: read at %d: %d records, %v", when, n, len(got), err)
			}
			for i := range got {
				check("Read", n, &got[i])
				n++
			}
		}
		c, err := l.NewConsumer(ConsumerConfig{Topics: []string{"t"}, MaxPollRecords: 17})
		if err != nil {
			t.Fatal(err)
		}
		for n := 0; n < len(want); {
			got, err := c.Poll(ctx)
			if err != nil {
				t.Fatal(err)
			}
			for i := range got {
				check("Poll", n, &got[i])
				clone := got[i].Clone()
				check("Clone", n, &clone)
				n++
			}
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		l = reopen()
	}
}

// TestTimestampBounds writes records with timestamps at and beyond what the topic allows.
func TestTimestampBounds(t *testing.T) {
	ctx := testContext(t)
	l, _ := openMem(t)
	if err := errors.Join(
		l.CreateTopic(ctx, Topic{Name: "any"}),
		l.CreateTopic(ctx, Topic{Name: "near", Config: map[string]string{"message.timestamp.before.max.ms": "60000", "message.timestamp.after.max.ms": "60000"}}),
		l.CreateTopic(ctx, Topic{Name: "stamped", Config: map[string]string{"message.timestamp.type": "LogAppendTime"}}),
	); err != nil {
		t.Fatal(err)
	}
	p, err := l.NewProducer(ProducerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	ways := map[string]func(Record) (Offset, error){
		"Produce":      func(r Record) (Offset, error) { return l.Produce(ctx, r) },
		"ProduceBatch": func(r Record) (Offset, error) { return l.ProduceBatch(ctx, r.Topic, 0, []Record{{}, r}) },
		"Producer":     func(r Record) (Offset, error) { return p.ProduceSync(ctx, r) },
	}
	now := time.Now()
	for _, c := range []struct {
		topic string
		at    time.Time
		good  bool
	}{
		{"any", time.Time{}, true}, {"any", now, true}, {"any", time.UnixMilli(0), true}, {"any", now.Add(-24 * time.Hour), true},
		{"any", now.Add(50 * time.Minute), true}, {"any", now.Add(2 * time.Hour), false},
		{"any", time.UnixMilli(-1), false}, {"any", time.UnixMilli(-1 << 40), false}, {"any", time.UnixMilli(1 << 62), false},
		{"any", time.Date(1, 1, 1, 0, 0, 0, 1, time.UTC), false},
		{"near", now.Add(30 * time.Second), true}, {"near", now.Add(-30 * time.Second), true},
		{"near", now.Add(2 * time.Minute), false}, {"near", now.Add(-2 * time.Minute), false},
		{"stamped", now.Add(-time.Hour), true}, {"stamped", now.Add(48 * time.Hour), true}, {"stamped", time.UnixMilli(-1), false},
	} {
		for name, produce := range ways {
			_, err := produce(Record{Topic: c.topic, Timestamp: c.at, Value: []byte("v")})
			if c.good && err != nil {
				t.Errorf("%s to %s at %v: %v", name, c.topic, c.at, err)
			}
			if !c.good && (!errors.Is(err, ErrInvalidRecord) || Retriable(err) || !strings.Contains(err.Error(), "timestamp")) {
				t.Errorf("%s to %s at %v: %v", name, c.topic, c.at, err)
			}
		}
	}
	part, err := l.Partition(ctx, "stamped", 0)
	if err != nil {
		t.Fatal(err)
	}
	records, err := part.Read(ctx, 0, 100)
	if err != nil || len(records) == 0 {
		t.Fatalf("%d records, %v", len(records), err)
	}
	for _, r := range records {
		if r.Timestamp.Before(now.Truncate(time.Millisecond)) || r.Timestamp.After(time.Now()) {
			t.Errorf("stamped with %v", r.Timestamp)
		}
	}
}

// TestBadNames uses names of topics, numbers of partitions and settings that cannot be, or that do not exist. The error says what to do.
func TestBadNames(t *testing.T) {
	ctx := testContext(t)
	l, _ := openMem(t)
	if err := l.CreateTopic(ctx, Topic{Name: "a.b", Partitions: 2}); err != nil {
		t.Fatal(err)
	}
	p, err := l.NewProducer(ProducerConfig{Partitioner: ManualPartitioner})
	if err != nil {
		t.Fatal(err)
	}
	c, err := l.NewConsumer(ConsumerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	create := func(topic Topic) error { return l.CreateTopic(ctx, topic) }
	const (
		makeIt = "create it"
		range2 = "partitions 0 to 1"
	)
	for name, c := range map[string]struct {
		err  error
		want error
		says string
	}{
		"empty":                   {create(Topic{}), ErrInvalidTopic, "1 to 249"},
		"dot":                     {create(Topic{Name: "."}), ErrInvalidTopic, "another"},
		"dots":                    {create(Topic{Name: ".."}), ErrInvalidTopic, "another"},
		"long":                    {create(Topic{Name: strings.Repeat("a", 250)}), ErrInvalidTopic, "249"},
		"slash":                   {create(Topic{Name: "a/b"}), ErrInvalidTopic, "a-z A-Z 0-9 . _ -"},
		"umlaut":                  {create(Topic{Name: "ä"}), ErrInvalidTopic, "a-z A-Z 0-9 . _ -"},
		"zero byte":               {create(Topic{Name: "a\x00"}), ErrInvalidTopic, "a-z A-Z 0-9 . _ -"},
		"reserved":                {create(Topic{Name: "__a"}), ErrInvalidTopic, "another"},
		"metadata":                {create(Topic{Name: "__cluster_metadata"}), ErrInvalidTopic, "another"},
		"exists":                  {create(Topic{Name: "a.b"}), ErrTopicExists, "another"},
		"collides":                {create(Topic{Name: "a_b"}), ErrTopicExists, `"a.b"`},
		"no partitions":           {create(Topic{Name: "c", Partitions: -1}), ErrInvalidTopic, "1 to 10000"},
		"many partitions":         {create(Topic{Name: "c", Partitions: 10_001}), ErrInvalidTopic, "1 to 10000"},
		"unknown setting":         {create(Topic{Name: "c", Config: map[string]string{"retention": "1"}}), ErrInvalidConfig, "retention.ms"},
		"bad setting":             {create(Topic{Name: "c", Config: map[string]string{"segment.bytes": "1"}}), ErrInvalidConfig, "65536"},
		"compaction":              {create(Topic{Name: "c", Config: map[string]string{"cleanup.policy": "compact"}}), ErrInvalidConfig, "delete"},
		"fewer partitions":        {l.AddPartitions(ctx, "a.b", 2), ErrInvalidTopic, "allowed is more"},
		"delete unknown":          {l.DeleteTopic(ctx, "none"), ErrUnknownTopic, `"none"`},
		"delete metadata":         {l.DeleteTopic(ctx, "__cluster_metadata"), ErrInvalidTopic, "internal"},
		"alter metadata":          {l.AlterTopic(ctx, "__cluster_metadata", Alter{}), ErrInvalidTopic, "internal"},
		"extend metadata":         {l.AddPartitions(ctx, "__cluster_metadata", 2), ErrInvalidTopic, "internal"},
		"alter unknown":           {l.AlterTopic(ctx, "none", Alter{}), ErrUnknownTopic, `"none"`},
		"extend unknown":          {l.AddPartitions(ctx, "none", 2), ErrUnknownTopic, makeIt},
		"describe unknown":        {second(l.Topic(ctx, "none")), ErrUnknownTopic, makeIt},
		"partition unknown":       {second(l.Partition(ctx, "none", 0)), ErrUnknownTopic, makeIt},
		"partition too high":      {second(l.Partition(ctx, "a.b", 2)), ErrUnknownTopic, "partitions 0 to 1"},
		"partition negative":      {second(l.Partition(ctx, "a.b", -1)), ErrUnknownTopic, "partitions 0 to 1"},
		"produce unknown":         {second(l.Produce(ctx, Record{Topic: "none"})), ErrUnknownTopic, makeIt},
		"produce without topic":   {second(l.Produce(ctx, Record{})), ErrUnknownTopic, makeIt},
		"batch unknown":           {second(l.ProduceBatch(ctx, "none", 0, []Record{{}})), ErrUnknownTopic, makeIt},
		"batch too high":          {second(l.ProduceBatch(ctx, "a.b", 2, []Record{{}})), ErrUnknownTopic, range2},
		"producer unknown":        {p.Produce(ctx, Record{Topic: "none"}, nil), ErrUnknownTopic, makeIt},
		"producer sync unknown":   {second(p.ProduceSync(ctx, Record{Topic: "none"})), ErrUnknownTopic, makeIt},
		"producer too high":       {p.Produce(ctx, Record{Topic: "a.b", Partition: 2}, nil), ErrUnknownTopic, range2},
		"consumer unknown":        {second(l.NewConsumer(ConsumerConfig{Topics: []string{"none"}})), ErrUnknownTopic, makeIt},
		"consumer assign unknown": {second(l.NewConsumer(ConsumerConfig{Assign: map[string][]int32{"a.b": {2}}})), ErrUnknownTopic, range2},
		"assign unknown":          {c.Assign("none"), ErrUnknownTopic, makeIt},
		"assign too high":         {c.Assign("a.b", 0, 2), ErrUnknownTopic, range2},
		"seek":                    {c.Seek("a.b", 0, 0), ErrNotAssigned, "Assign"},
		"seek to time":            {c.SeekToTime(ctx, "a.b", 0, time.Now()), ErrNotAssigned, "Assign"},
		"seek to beginning":       {c.SeekToBeginning("a.b"), ErrNotAssigned, "Assign"},
		"seek to end":             {c.SeekToEnd("a.b", 0), ErrNotAssigned, "Assign"},
		"pause":                   {c.Pause("a.b"), ErrNotAssigned, "Assign"},
		"resume":                  {c.Resume("a.b"), ErrNotAssigned, "Assign"},
		"position":                {second(c.Position("a.b", 0)), ErrNotAssigned, "Assign"},
		"lag":                     {second(c.Lag("a.b", 0)), ErrNotAssigned, "Assign"},
	} {
		if !errors.Is(c.err, c.want) || Retriable(c.err) || !strings.Contains(c.err.Error(), c.says) || !strings.HasPrefix(c.err.Error(), "billet: ") {
			t.Errorf("%s: %v, want %v that says %q", name, c.err, c.want, c.says)
		}
	}
	topics, err := l.Topics(ctx)
	if err != nil || len(topics) != 2 {
		t.Errorf("%d topics, %v", len(topics), err)
	}
}

// TestClosedHandles calls every method of handles that are closed by themselves while the log goes on, and of those whose topic was deleted.
func TestClosedHandles(t *testing.T) {
	ctx := testContext(t)
	l, _ := openMem(t)
	for _, name := range []string{"t", "gone"} {
		if err := l.CreateTopic(ctx, Topic{Name: name}); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Produce(ctx, Record{Topic: name, Value: []byte("v")}); err != nil {
			t.Fatal(err)
		}
	}
	gone, err := l.Partition(ctx, "gone", 0)
	if err != nil {
		t.Fatal(err)
	}
	open, err := l.NewProducer(ProducerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := open.ProduceSync(ctx, Record{Topic: "gone"}); err != nil {
		t.Fatal(err)
	}
	p, err := l.NewProducer(ProducerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.ProduceSync(ctx, Record{Topic: "t"}); err != nil {
		t.Fatal(err)
	}
	c, err := l.NewConsumer(ConsumerConfig{Topics: []string{"t"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(p.Close(), p.Close(), c.Close(), c.Close(), l.DeleteTopic(ctx, "gone")); err != nil {
		t.Fatal(err)
	}
	iterated := error(nil)
	for _, err := range c.Records(ctx) {
		iterated = err
	}
	c.Unassign("t")
	for name, c := range map[string]struct {
		err  error
		want error
		says string
	}{
		"produce":       {p.Produce(ctx, Record{Topic: "t"}, nil), ErrClosed, "new Producer"},
		"produce other": {p.Produce(ctx, Record{Topic: "none"}, nil), ErrClosed, "new Producer"},
		"produce sync":  {second(p.ProduceSync(ctx, Record{Topic: "t"})), ErrClosed, "new Producer"},
		"poll":          {second(c.Poll(ctx)), ErrClosed, "new Consumer"},
		"records":       {iterated, ErrClosed, "new Consumer"},
		"assign":        {c.Assign("t"), ErrClosed, "new Consumer"},
		"seek":          {c.Seek("t", 0, 0), ErrClosed, "new Consumer"},
		"seek to time":  {c.SeekToTime(ctx, "t", 0, time.Now()), ErrClosed, "new Consumer"},
		"seek to start": {c.SeekToBeginning("t"), ErrClosed, "new Consumer"},
		"seek to end":   {c.SeekToEnd("t"), ErrClosed, "new Consumer"},
		"pause":         {c.Pause("t"), ErrClosed, "new Consumer"},
		"resume":        {c.Resume("t"), ErrClosed, "new Consumer"},
		"position":      {second(c.Position("t", 0)), ErrClosed, "new Consumer"},
		"lag":           {second(c.Lag("t", 0)), ErrClosed, "new Consumer"},
		"deleted read":  {second(gone.Read(ctx, 0, 1)), ErrUnknownTopic, "deleted"},
		"deleted time":  {second(gone.OffsetForTime(ctx, time.Now())), ErrUnknownTopic, "deleted"},
		"deleted write": {second(open.ProduceSync(ctx, Record{Topic: "gone"})), ErrUnknownTopic, "create it"},
	} {
		if !errors.Is(c.err, c.want) || Retriable(c.err) || !strings.Contains(c.err.Error(), c.says) || !strings.HasPrefix(c.err.Error(), "billet: ") {
			t.Errorf("%s: %v, want %v that says %q", name, c.err, c.want, c.says)
		}
	}
	if err := p.Flush(ctx); err != nil {
		t.Errorf("flush of a closed producer, which holds nothing: %v", err)
	}
	if n := len(c.Assignment()); n != 0 || p.Buffered() != 0 {
		t.Errorf("%d assigned, %d buffered", n, p.Buffered())
	}
	if info := gone.Info(); info.State != StateClosed && info.Err == nil {
		t.Errorf("deleted partition: %+v", info)
	}
	if _, err := l.Produce(ctx, Record{Topic: "t"}); err != nil {
		t.Error(err)
	}
}

// contextCalls is every call that takes a context, on a log with topic t.
func contextCalls(l *Log, p *Producer, c *Consumer, part *Partition) map[string]func(context.Context) error {
	n := 0
	return map[string]func(context.Context) error{
		"Produce":       func(ctx context.Context) error { return second(l.Produce(ctx, Record{Topic: "t"})) },
		"ProduceBatch":  func(ctx context.Context) error { return second(l.ProduceBatch(ctx, "t", 0, []Record{{}})) },
		"CreateTopic":   func(ctx context.Context) error { n++; return l.CreateTopic(ctx, Topic{Name: fmt.Sprint("new", n)}) },
		"DeleteTopic":   func(ctx context.Context) error { return l.DeleteTopic(ctx, "other") },
		"AlterTopic":    func(ctx context.Context) error { return l.AlterTopic(ctx, "t", Alter{Unset: []string{"flush.ms"}}) },
		"AddPartitions": func(ctx context.Context) error { return l.AddPartitions(ctx, "other", 3) },
		"Topic":         func(ctx context.Context) error { return second(l.Topic(ctx, "t")) },
		"Topics":        func(ctx context.Context) error { return second(l.Topics(ctx)) },
		"Partition":     func(ctx context.Context) error { return second(l.Partition(ctx, "t", 0)) },
		"Read":          func(ctx context.Context) error { return second(part.Read(ctx, 0, 1)) },
		"OffsetForTime": func(ctx context.Context) error { return second(part.OffsetForTime(ctx, time.Now())) },
		"Poll":          func(ctx context.Context) error { return second(c.Poll(ctx)) },
		"SeekToTime":    func(ctx context.Context) error { return c.SeekToTime(ctx, "t", 0, time.Now()) },
		"Producer":      func(ctx context.Context) error { return p.Produce(ctx, Record{Topic: "t"}, func(Offset, error) {}) },
		"ProduceSync":   func(ctx context.Context) error { return second(p.ProduceSync(ctx, Record{Topic: "t"})) },
		"Flush":         func(ctx context.Context) error { return p.Flush(ctx) },
		"Records": func(ctx context.Context) error {
			for _, err := range c.Records(ctx) {
				return err
			}
			return nil
		},
	}
}

// contextRig is a log whose syncs wait while the gate is shut.
type contextRig struct {
	gate chan struct{} // closed: syncs go on
	l    *Log
	p    *Producer
	c    *Consumer
	part *Partition
}

func newContextRig(t *testing.T) *contextRig {
	t.Helper()
	ctx := testContext(t)
	r := &contextRig{gate: make(chan struct{})}
	shut := make(chan struct{}) // closed: syncs wait for the gate
	slow := func(op vfs.Op, _ string, _ int64, _ int) error {
		if op == vfs.OpSync {
			select {
			case <-shut:
				<-r.gate
			default:
			}
		}
		return nil
	}
	var err error
	r.l, err = open(Config{Dir: "d", DiskReserve: -1, JournalBytes: 1 << 20}, seams{fs: vfs.Inject(vfs.NewMem(), slow)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.l.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := errors.Join(r.l.CreateTopic(ctx, Topic{Name: "t"}), r.l.CreateTopic(ctx, Topic{Name: "other"})); err != nil {
		t.Fatal(err)
	}
	if r.p, err = r.l.NewProducer(ProducerConfig{}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.p.ProduceSync(ctx, Record{Topic: "t"}); err != nil {
		t.Fatal(err)
	}
	if r.c, err = r.l.NewConsumer(ConsumerConfig{Topics: []string{"t"}, StartAt: Latest}); err != nil {
		t.Fatal(err)
	}
	if r.part, err = r.l.Partition(ctx, "t", 0); err != nil {
		t.Fatal(err)
	}
	close(shut)
	return r
}

// TestEndedContexts makes every call with a context that has ended: nothing is done.
func TestEndedContexts(t *testing.T) {
	r := newContextRig(t)
	close(r.gate)
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	late, cancel := context.WithDeadline(context.Background(), time.Unix(0, 0))
	defer cancel()
	for name, call := range contextCalls(r.l, r.p, r.c, r.part) {
		if err := call(ended); !errors.Is(err, context.Canceled) || errors.Is(err, ErrAmbiguous) || Retriable(err) {
			t.Errorf("%s, cancelled: %v", name, err)
		}
		if err := call(late); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrAmbiguous) {
			t.Errorf("%s, too late: %v", name, err)
		}
	}
	if high := r.part.HighWatermark(); high != 1 {
		t.Errorf("%d records", high)
	}
	if topics, err := r.l.Topics(context.Background()); err != nil || len(topics) != 3 {
		t.Errorf("%d topics, %v", len(topics), err)
	}
}

// TestContextsEndWaits ends the context of every call that waits, on a disk that does not answer: it returns, and tells when the outcome is not
// known.
func TestContextsEndWaits(t *testing.T) {
	for _, name := range []string{"Produce", "ProduceBatch", "CreateTopic", "DeleteTopic", "AlterTopic", "AddPartitions", "Poll", "Records", "ProduceSync", "Flush"} {
		t.Run(name, func(t *testing.T) {
			r := newContextRig(t)
			defer func() {
				close(r.gate)
				if err := r.p.Flush(testContext(t)); err != nil {
					t.Error(err)
				}
				// What was begun is made when the disk answers, and whole.
				topic, partitions := map[string]string{"CreateTopic": "new1", "AddPartitions": "other"}[name], map[string]int32{"CreateTopic": 1, "AddPartitions": 3}[name]
				for n := range partitions {
					waitFor(t, func() bool {
						_, err := r.l.ProduceBatch(testContext(t), topic, n, []Record{{}})
						return err == nil
					})
				}
			}()
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
			defer cancel()
			if name == "Flush" {
				if err := r.p.Produce(ctx, Record{Topic: "t"}, func(Offset, error) {}); err != nil {
					t.Fatal(err)
				}
			}
			done := make(chan error, 1)
			go func() { done <- contextCalls(r.l, r.p, r.c, r.part)[name](ctx) }()
			select {
			case err := <-done:
				if !errors.Is(err, context.DeadlineExceeded) || Retriable(err) {
					t.Errorf("%v", err)
				}
				if changes := name != "Poll" && name != "Records" && name != "Flush"; changes != errors.Is(err, ErrAmbiguous) {
					t.Errorf("ambiguous: %v", err)
				}
			case <-time.After(10 * time.Second):
				t.Error("it waits although its context has ended")
			}
		})
	}
}
