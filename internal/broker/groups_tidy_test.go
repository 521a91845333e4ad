package broker

import (
	"fmt"
	"testing"

	"github.com/billetlog/billet/replication"
)

// tidyRun commits much for some groups and a little for another, whichever write fails,
// and looks what is left.
func tidyRun(t *testing.T, commits int64, fails func(n int) bool) {
	t.Helper()
	log := newTestLog()
	log.fault = func(n int) error {
		if fails(n) {
			return replication.ErrAmbiguous
		}
		return nil
	}
	r := newCoordinatorRig(t, log, nil)
	r.insist(commitRequest("idle", "t", 3, 42))
	for at := range commits {
		r.insist(commitRequest(fmt.Sprint("g", at%5), "t", 0, at))
	}
	r.stop()
	if records := log.HighWatermark() - log.StartOffset(); records > 1_000 {
		t.Errorf("the log has %d records", records)
	}
	again := newCoordinatorRig(t, log, nil)
	for n := range int64(5) {
		if got := again.offset(fmt.Sprint("g", n), "t", 0); got != commits-5+n {
			t.Errorf("group %d has %d after all was read", n, got)
		}
	}
	if got := again.offset("idle", "t", 3); got != 42 {
		t.Errorf("a group that commits no more has %d", got)
	}
	again.stop()
}

// The log does not grow with what is committed, and what is left of it is all there is to
// know, also when a write fails while the groups are written anew.
func TestGroupsTidy(t *testing.T) {
	tidyRun(t, 2_000, func(int) bool { return false })
	for at := 195; at < 215 && !t.Failed(); at++ {
		tidyRun(t, 230, func(n int) bool { return n == at })
	}
}
