package main

import (
	"fmt"
	"math"
	"strings"
)

// benchCase is one printed line.
type benchCase struct {
	name        string
	unit        string
	lowerBetter bool
	billet      metric
	limit       metric   // its side is empty where there is no limit
	peers       []metric // the best of their medians is the peer
	extra       []metric // printed as <side>=<value>
	fields      string   // printed as it is
	goals       []goal
}

// line returns the case's line, and false if a side that it needs failed.
func (c benchCase) line(r results) (string, bool) {
	for _, m := range c.metrics() {
		if err := r.err(m); err != nil {
			return errorLine(c.name, err), false
		}
	}
	bestName, best := c.bestPeer(r)
	own, limit := r.median(c.billet), r.median(c.limit)
	var b strings.Builder
	fmt.Fprintf(&b, "case=%s unit=%s billet=%s peer=%s limit=%s ratio=%s", c.name, c.unit,
		number(own), number(best), number(limit), number(times(own, best, c.lowerBetter)))
	if share := own / limit; !math.IsNaN(share) {
		fmt.Fprintf(&b, " of_limit=%s", number(share))
	}
	fmt.Fprintf(&b, " billet_range=%s best_peer=%s", r.spread(c.billet), bestName)
	if len(c.peers) > 1 {
		for _, m := range c.peers {
			fmt.Fprintf(&b, " %s=%s", m.side, number(r.median(m)))
		}
	}
	for _, m := range c.extra {
		fmt.Fprintf(&b, " %s=%s", m.side, number(r.median(m)))
	}
	if c.fields != "" {
		b.WriteString(" " + c.fields)
	}
	b.WriteString(judge(c.goals, figures{own, best, limit, c.lowerBetter}))
	return b.String(), true
}

// metrics returns everything that the line needs.
func (c benchCase) metrics() []metric {
	all := append([]metric{c.billet, c.limit}, c.peers...)
	return append(all, c.extra...)
}

// bestPeer returns the best of the peers that ran.
func (c benchCase) bestPeer(r results) (name string, value float64) {
	name, value = "-", math.NaN()
	for _, m := range c.peers {
		v := r.median(m)
		if math.IsNaN(v) {
			continue
		}
		if math.IsNaN(value) || times(v, value, c.lowerBetter) > 1 {
			name, value = m.side, v
		}
	}
	return name, value
}

// times returns how many times better a is than b.
func times(a, b float64, lowerBetter bool) float64 {
	if lowerBetter {
		return b / a
	}
	return a / b
}

func errorLine(name string, err error) string {
	return fmt.Sprintf("case=%s error=%q", name, err.Error())
}
