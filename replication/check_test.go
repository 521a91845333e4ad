package replication

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/billetlog/billet/internal/batch"
)

// rebuilt returns a batch with bytes of its header written over and its CRC put right.
func rebuilt(b batch.Batch, pos int, value ...byte) batch.Batch {
	c := batch.Batch(bytes.Clone(b))
	copy(c[pos:], value)
	c.SetMaxTimestamp(c.MaxTimestamp())
	return c
}

// What clients send is held against all rules, and each kind of fault can be told from the others.
func TestCheck(t *testing.T) {
	n := newTestNode(t)
	defer n.close()
	spec := testSpec(t, 1)
	var err error
	spec.Settings, err = ParseSettings(map[string]string{
		"message.timestamp.before.max.ms": "60000", "message.timestamp.after.max.ms": "60000", "max.message.bytes": "2048",
	})
	if err != nil {
		t.Fatal(err)
	}
	p := n.start(spec, true)
	now := n.host.now().UnixMilli()
	good := func() batch.Batch { return timedBatch(t, now, now-30000, now+30000) }
	cut := good()
	flipped := good()
	flipped[len(flipped)-1] ^= 1
	none := timedBatch(t, batch.NoTimestamp, batch.NoTimestamp)
	for what, c := range map[string]struct {
		b    batch.Batch
		want error
	}{
		"good":                       {good(), nil},
		"no timestamps":              {none, nil},
		"too large":                  {sizedBatch(t, 1, 2048), ErrTooLarge},
		"cut":                        {cut[:len(cut)-1], batch.ErrCorrupt},
		"empty":                      {nil, batch.ErrCorrupt},
		"a flipped bit":              {flipped, batch.ErrCorrupt},
		"an unknown codec":           {rebuilt(good(), batch.AttributesOffset, 0, 7), batch.ErrUnsupportedCodec},
		"an old format":              {rebuilt(good(), batch.MagicOffset, 1), batch.ErrUnsupportedMagic},
		"control":                    {rebuilt(producerBatch(t, 0, 7, 0, 0, 1), batch.AttributesOffset, 0, 0x20), ErrInvalidBatch},
		"transactional":              {rebuilt(producerBatch(t, 0, 7, 0, 0, 1), batch.AttributesOffset, 0, 0x10), ErrInvalidBatch},
		"a producer, no sequence":    {rebuilt(producerBatch(t, 0, 7, 0, 0, 1), batch.BaseSequenceOffset, 0xff, 0xff, 0xff, 0xff), ErrInvalidBatch},
		"gaps":                       {rebuilt(good(), batch.LastOffsetDeltaOffset, 0, 0, 0, 9), ErrInvalidBatch},
		"log append time":            {rebuilt(good(), batch.AttributesOffset, 0, 0x08), ErrInvalidTimestamp},
		"an old record in the midst": {timedBatch(t, now, now-61000, now), ErrInvalidTimestamp},
		"an old first record":        {timedBatch(t, now-61000, now), ErrInvalidTimestamp},
		"a record from the future":   {timedBatch(t, now, now+70000, now), ErrInvalidTimestamp},
	} {
		err := p.Check(c.b)
		if !errors.Is(err, c.want) || (c.want == nil) != (err == nil) {
			t.Errorf("%s: %v, want %v", what, err, c.want)
		}
		for _, other := range []error{ErrTooLarge, ErrInvalidTimestamp, ErrInvalidBatch, batch.ErrCorrupt, batch.ErrUnsupportedCodec, batch.ErrUnsupportedMagic} {
			if other != c.want && errors.Is(err, other) {
				t.Errorf("%s: %v is %v as well", what, err, other)
			}
		}
	}
	wrong := good()
	wrong.SetMaxTimestamp(now - 5)
	if err := p.Check(wrong); err != nil || wrong.MaxTimestamp() != now+30000 {
		t.Errorf("a max timestamp of other records: %v, it is now %d", err, wrong.MaxTimestamp())
	}
	writable(t, p)
	for _, b := range []batch.Batch{wrong, none} {
		if r := appendBatch(t, p, b, AcksAll); r.Err != nil {
			t.Errorf("what was found good: %v", r.Err)
		}
	}
}

// A topic that gives its own timestamps takes any, and an internal one takes nothing of clients.
func TestCheckByTopic(t *testing.T) {
	n := newTestNode(t)
	defer n.close()
	spec := testSpec(t, 1)
	spec.Settings.LogAppendTime, spec.Settings.TimestampBeforeMax = true, time.Minute
	p := n.start(spec, true)
	if err := p.Check(timedBatch(t, 1, 2)); err != nil {
		t.Errorf("timestamps that do not count: %v", err)
	}
	p.spec.Internal = true
	if err := p.Check(timedBatch(t, 1, 2)); !errors.Is(err, ErrInvalidTopic) {
		t.Errorf("an internal topic: %v", err)
	}
}

// An error about timestamps names the records, as far as there is room.
func TestCheckNamesRecords(t *testing.T) {
	n := newTestNode(t)
	defer n.close()
	spec := testSpec(t, 1)
	var err error
	if spec.Settings, err = ParseSettings(map[string]string{"message.timestamp.before.max.ms": "60000", "message.timestamp.after.max.ms": "60000"}); err != nil {
		t.Fatal(err)
	}
	p := n.start(spec, true)
	now := n.host.now().UnixMilli()
	var faulty *RecordsError
	err = p.Check(timedBatch(t, now, now-100_000, batch.NoTimestamp, now, now+100_000))
	if !errors.As(err, &faulty) || !errors.Is(err, ErrInvalidTimestamp) || len(faulty.Records) != 2 || faulty.Records[0].Index != 1 || faulty.Records[1].Index != 4 {
		t.Errorf("of two bad records: %+v", faulty)
	}
	many := make([]int64, RecordErrorsMax+1)
	if err = p.Check(timedBatch(t, many...)); !errors.As(err, &faulty) || len(faulty.Records) != RecordErrorsMax {
		t.Errorf("of %d bad records %d are named", len(many), len(faulty.Records))
	}
}
