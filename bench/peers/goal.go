package main

import (
	"fmt"
	"math"
	"strings"
)

// figures are the medians that a goal judges.
type figures struct {
	billet, peer, limit float64
	lowerBetter         bool
}

// goal is what a case should reach.
type goal struct {
	text string
	// margin is at least 1 where the goal is reached, NaN where it cannot be told.
	margin func(figures) float64
}

// peerTimes asks for at least n times the best peer.
func peerTimes(n float64) goal {
	return goal{fmt.Sprintf("ratio>=%g", n), func(f figures) float64 {
		return times(f.billet, f.peer, f.lowerBetter) / n
	}}
}

// limitAtLeast asks for at least the share n of the limit.
func limitAtLeast(n float64) goal {
	return goal{fmt.Sprintf("of_limit>=%g", n), func(f figures) float64 { return f.billet / f.limit / n }}
}

// limitAtMost asks for at most n times the limit.
func limitAtMost(n float64) goal {
	return goal{fmt.Sprintf("of_limit<=%g", n), func(f figures) float64 { return n * f.limit / f.billet }}
}

// atMost asks for a figure of at most n.
func atMost(n float64) goal {
	return goal{fmt.Sprintf("billet<=%g", n), func(f figures) float64 { return n / f.billet }}
}

// atLeast asks for a figure of at least n.
func atLeast(n float64) goal {
	return goal{fmt.Sprintf("billet>=%g", n), func(f figures) float64 { return f.billet / n }}
}

// judge prints the goals and whether all are met: - if a side that one of them
// needs did not run and no other is missed.
func judge(goals []goal, f figures) string {
	if len(goals) == 0 {
		return ""
	}
	missed, unknown := false, false
	var texts []string
	for _, g := range goals {
		texts = append(texts, g.text)
		margin := g.margin(f)
		unknown = unknown || math.IsNaN(margin)
		missed = missed || margin < 1
	}
	met := "yes"
	switch {
	case missed:
		met = "no"
	case unknown:
		met = "-"
	}
	return fmt.Sprintf(" goal=%s met=%s", strings.Join(texts, ","), met)
}
