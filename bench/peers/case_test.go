package main

import (
	"errors"
	"testing"
)

func TestCaseLine(t *testing.T) {
	small := metric{side: "ours", name: "ms"}
	c := benchCase{
		name: "wait", unit: "ms", lowerBetter: true,
		billet: small, limit: metric{side: "disk", name: "ms"},
		peers: []metric{{side: "slow", name: "ms"}, {side: "quick", name: "ms"}},
		goals: []goal{peerTimes(2), limitAtMost(1.4)},
	}
	r := newResults()
	for _, v := range []float64{9, 10, 30} {
		r.add("ours", measures{"ms": v})
	}
	r.add("disk", measures{"ms": 8})
	r.add("slow", measures{"ms": 100})
	r.add("quick", measures{"ms": 40})
	want := "case=wait unit=ms billet=10 peer=40 limit=8 ratio=4 of_limit=1.25 billet_range=9..30 best_peer=quick slow=100 quick=40 goal=ratio>=2,of_limit<=1.4 met=yes"
	if got, ok := c.line(r); got != want || !ok {
		t.Errorf("got  %s\nwant %s", got, want)
	}

	c.billet.over = &metric{side: "disk", name: "ms"}
	c.peers, c.limit, c.goals = nil, metric{}, []goal{atMost(1.2)}
	want = "case=wait unit=ms billet=1.25 peer=- limit=- ratio=- billet_range=- best_peer=- goal=billet<=1.2 met=no"
	if got, ok := c.line(r); got != want || !ok {
		t.Errorf("got  %s\nwant %s", got, want)
	}

	c.goals = []goal{peerTimes(2)}
	want = "case=wait unit=ms billet=1.25 peer=- limit=- ratio=- billet_range=- best_peer=- goal=ratio>=2 met=-"
	if got, ok := c.line(r); got != want || !ok {
		t.Errorf("got  %s\nwant %s", got, want)
	}

	r.failed["disk"] = errors.New("no space")
	if got, ok := c.line(r); got != `case=wait error="disk: no space"` || ok {
		t.Errorf("got %s", got)
	}
}

func TestNarrow(t *testing.T) {
	o, err := parseOptions([]string{"-cases", "^reopen-kill9-4GiB-over", "-peer=false"})
	if err != nil {
		t.Fatal(err)
	}
	families := o.families()
	if len(families) != 1 || len(families[0].cases) != 1 {
		t.Fatalf("families: %+v", families)
	}
	var sides []string
	for _, s := range families[0].sides {
		sides = append(sides, s.name)
	}
	if len(sides) != 2 || sides[0] != "billet-1GiB" || sides[1] != "billet-4GiB" {
		t.Errorf("sides: %v", sides)
	}
}
