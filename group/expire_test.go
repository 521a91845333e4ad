package group

import (
	"testing"
	"time"
)

// has tells whether a group has an offset, as its log does.
func (w *world) has(id, topic string) bool {
	_, now := w.core.groups[id].offsetsOf()[topic]
	_, logged := replay(w.t, w.opts, w.log).groups[id].offsetsOf()[topic]
	if now != logged {
		w.t.Fatalf("%s has %s: %v, its log: %v", id, topic, now, logged)
	}
	return now
}

func (g *group) offsetsOf() offsets {
	if g == nil {
		return nil
	}
	return g.offsets
}

// Offsets that expired during a rebalance once made groups read all again.
func TestNothingExpiresWhileAGroupRebalances(t *testing.T) {
	t.Run("classic", func(t *testing.T) {
		w := newWorld(t, Options{OffsetsRetention: 9 * time.Minute, InitialRebalanceDelay: -1})
		for _, line := range []string{"anna join g session=30m rebalance=25m", "anna join g session=30m rebalance=25m", "anna sync g",
			"anna commit g at=t/0:1,u/0:1", "bert join g session=30m", "bert join g session=30m", "pass 22m"} {
			w.run(line)
		}
		if !w.has("g", "u") || !w.has("g", "t") {
			t.Error("a rebalance of 22 min has cost offsets")
		}
		for _, line := range []string{"anna join g session=30m", "anna sync g", "bert sync g", "pass 9m"} {
			w.run(line)
		}
		if w.has("g", "u") || !w.has("g", "t") {
			t.Error("a stable group keeps what it does not read, or loses what it does")
		}
	})
	t.Run("consumer", func(t *testing.T) {
		w := newWorld(t, Options{OffsetsRetention: 9 * time.Minute, ConsumerSessionTimeout: 10 * time.Hour})
		for _, line := range []string{"topics t:2 u:1", "s commit g gen=-1 at=t/0:1,u/0:1", "anna alive g topics=t rebalance=10h", "bert alive g topics=t",
			"anna alive g", "pass 22m"} {
			w.run(line)
		}
		if !w.has("g", "u") || !w.has("g", "t") {
			t.Error("a rebalance of 22 min has cost offsets")
		}
		for _, line := range []string{"anna alive g owns=all", "bert alive g", "pass 9m"} {
			w.run(line)
		}
		if w.has("g", "u") || !w.has("g", "t") {
			t.Error("a stable group keeps what it does not read, or loses what it does")
		}
	})
}

// A quiet partition's offset is old when its group stops. It stays for the whole
// retention from then, whoever coordinates the group meanwhile.
func TestRetentionBeginsWhenTheGroupIsEmpty(t *testing.T) {
	for name, lines := range map[string][]string{
		"classic":  {"anna join g session=30m", "anna join g session=30m", "anna sync g", "anna commit g at=t/0:1", "pass 20m", "anna heartbeat g", "pass 20m", "anna leave g"},
		"consumer": {"topics t:1", "anna alive g topics=t", "anna commit g at=t/0:1", "pass 20m", "anna alive g", "pass 20m", "anna alive g gen=-1"},
		// A consumer group that was empty for a while, and is what a classic member wants.
		"migrated": {"topics t:1", "anna alive g topics=t", "anna commit g at=t/0:1", "pass 40m", "anna alive g gen=-1", "bert join g"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, Options{OffsetsRetention: 30 * time.Minute, InitialRebalanceDelay: -1, ConsumerSessionTimeout: 10 * time.Hour})
			for _, line := range append(lines, "pass 15m", "crash", "pass 11m") {
				w.run(line)
			}
			if !w.has("g", "t") {
				t.Error("26 min after the group became empty its offset is gone, and it had 30")
			}
			w.run("pass 15m")
			if w.has("g", "t") {
				t.Error("41 min after the group became empty its offset is there, and it had 30")
			}
			if len(w.core.groups) > 0 {
				t.Error("a group without members and offsets is there still")
			}
		})
	}
}
