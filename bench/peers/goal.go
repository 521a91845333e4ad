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
	met  func(figures) bool
}

// peerTimes asks for at least n times the best peer.
func peerTimes(n float64) goal {
	return goal{fmt.Sprintf("ratio>=%g", n), func(f figures) bool {
		return times(f.billet, f.peer, f.lowerBetter) >= n
	}}
}

// limitAtLeast asks for at least the share n of the limit.
func limitAtLeast(n float64) goal {
	return goal{fmt.Sprintf("of_limit>=%g", n), func(f figures) bool { return f.billet/f.limit >= n }}
}

// limitAtMost asks for at most n times the limit.
func limitAtMost(n float64) goal {
	return goal{fmt.Sprintf("of_limit<=%g", n), func(f figures) bool { return f.billet/f.limit <= n }}
}

// atMost asks for a figure of at most n.
func atMost(n float64) goal {
	return goal{fmt.Sprintf("billet<=%g", n), func(f figures) bool { return f.billet <= n }}
}

// judge prints the goals and whether all are met; nothing where billet did not run.
func judge(goals []goal, f figures) string {
	if len(goals) == 0 || math.IsNaN(f.billet) {
		return ""
	}
	met := "yes"
	var texts []string
	for _, g := range goals {
		texts = append(texts, g.text)
		if !g.met(f) {
			met = "no"
		}
	}
	return fmt.Sprintf(" goal=%s met=%s", strings.Join(texts, ","), met)
}
