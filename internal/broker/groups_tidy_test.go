package broker

import (
	"fmt"
	"testing"

	"github.com/billetlog/billet/internal/kerr"
	"github.com/billetlog/billet/replication"
)

// The log does not grow with what is committed, and what is left of it is all there is to
// know, also when a write fails meanwhile.
func TestGroupsTidy(t *testing.T) {
	for _, fault := range []error{nil, replication.ErrAmbiguous} {
		log := newTestLog()
		log.fault = func(n int) error {
			if n == 300 || n == 1_500 {
				return fault
			}
			return nil
		}
		r := newCoordinatorRig(t, log, nil)
		for at := range int64(2_000) {
			r.insist(commitRequest(fmt.Sprint("g", at%5), "t", 0, at))
		}
		records := log.HighWatermark() - log.StartOffset()
		if records > 1_000 {
			t.Errorf("fault %v: the log has %d records", fault, records)
		}
		r.stop()
		again := newCoordinatorRig(t, log, nil)
		for n := range int64(5) {
			if got := again.offset(fmt.Sprint("g", n), "t", 0); got != 1_995+n {
				t.Errorf("fault %v: group %d has %d after all was read", fault, n, got)
			}
		}
		if again.refusal() != kerr.NONE {
			t.Error("it does not answer")
		}
		again.stop()
	}
}
