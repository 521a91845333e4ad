package batch

import (
	"bytes"
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestControlRecords(t *testing.T) {
	for _, c := range []struct {
		kind  ControlType
		epoch int32
	}{{ControlAbort, 0}, {ControlCommit, 9}, {ControlCommit, -1}} {
		var b Builder
		b.Reset(BuilderOptions{BaseOffset: 42, HasProducer: true, ProducerID: 4000, ProducerEpoch: 3,
			BaseSequence: NoProducer, Transactional: true, Control: true})
		if delta := b.AppendControl(1700000000000, c.kind, c.epoch); delta != 0 {
			t.Fatalf("delta %d", delta)
		}
		batch, err := b.Finish()
		fatalIf(t, err)
		fatalIf(t, batch.Validate(Limits{Strict: true}))
		if c.kind == ControlCommit && c.epoch == 9 {
			batch.SetLeaderEpoch(5)
			if want := golden(t, goldenMarker); !bytes.Equal(batch, want) {
				t.Errorf("got\n%x, want\n%x", []byte(batch), []byte(want))
			}
		}
		records, err := DecodeAll(batch, 0)
		fatalIf(t, err)
		var key kmsg.ControlRecordKey
		var value kmsg.EndTxnMarker
		fatalIf(t, errors.Join(key.ReadFrom(records[0].Key), value.ReadFrom(records[0].Value)))
		if int16(key.Type) != int16(c.kind) || value.CoordinatorEpoch != c.epoch {
			t.Errorf("kmsg reads type %v, epoch %d, want %v, %d", key.Type, value.CoordinatorEpoch, c.kind, c.epoch)
		}
		kind, err := ParseControlKey(records[0].Key)
		fatalIf(t, err)
		epoch, err := ParseControlValue(records[0].Value)
		fatalIf(t, err)
		if kind != c.kind || epoch != c.epoch {
			t.Errorf("type %v, epoch %d, want %v, %d", kind, epoch, c.kind, c.epoch)
		}
	}
}

func TestControlRecordsOfOtherVersions(t *testing.T) {
	if kind, err := ParseControlKey([]byte{0, 1, 0, 6, 9, 9}); err != nil || kind != 6 {
		t.Errorf("longer key: %v, %v", kind, err)
	}
	if epoch, err := ParseControlValue([]byte{0, 1, 0, 0, 0, 7, 9}); err != nil || epoch != 7 {
		t.Errorf("longer value: %v, %v", epoch, err)
	}
	for _, key := range [][]byte{nil, {0, 0, 0}, {0xff, 0xff, 0, 1}} {
		if _, err := ParseControlKey(key); !errors.Is(err, ErrCorrupt) {
			t.Errorf("key % x: %v", key, err)
		}
	}
	for _, value := range [][]byte{nil, {0, 0, 0, 0, 0}, {0x80, 0, 0, 0, 0, 7}} {
		if _, err := ParseControlValue(value); !errors.Is(err, ErrCorrupt) {
			t.Errorf("value % x: %v", value, err)
		}
	}
}
