package kafka

import (
	"testing"

	"github.com/billetlog/billet/internal/batch"
)

// Whatever is in the place of records, at most one whole batch is taken for one.
func FuzzProduceBatch(f *testing.F) {
	one := dataBatch(f, 0, 3, 10)
	f.Add([]byte(one), int16(9))
	f.Add(append(append([]byte{}, one...), one...), int16(9))
	f.Add([]byte(one[:70]), int16(3))
	f.Add([]byte(nil), int16(13))
	f.Fuzz(func(t *testing.T, records []byte, version int16) {
		p := &produce{call: &call{version: version}}
		b, err := p.batch(records)
		if err == nil && (len(b) > len(records) || len(b) < batch.HeaderSize) {
			t.Errorf("%d bytes of %d were taken", len(b), len(records))
		}
		if err == nil {
			_ = plausible(b)
		}
	})
}

// Records that a broken store returns end a fetch with an error, nothing worse.
func FuzzFetchAdvance(f *testing.F) {
	one := dataBatch(f, 0, 3, 10)
	f.Add([]byte(one))
	f.Add([]byte(one[:70]))
	f.Fuzz(func(_ *testing.T, records []byte) {
		var p fetchPart
		_ = p.advance(records)
	})
}
