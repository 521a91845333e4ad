package replication

// leaderMoves decides which groups shall be led elsewhere: each by the first replica of its record that can lead, on a node that is alive
// and active. At most limit groups are moved at once, those first that are led from a node that is not to be used. A group that is already
// led as it shall be, or that has nobody better, is left alone.
func leaderMoves(groups []groupView, nodes map[int32]nodeView, limit int) []step {
	var urgent, other []step
	for _, g := range groups {
		p := newPlanner(g, nodes)
		if p == nil || g.Leader == 0 {
			continue
		}
		to, ok := p.preferred()
		if !ok || to == g.Leader {
			continue
		}
		s := p.stepFor(stepTransferLeader, to)
		if nodes[nodeOf(g.Leader)].Mode != NodeActive {
			urgent = append(urgent, s)
		} else {
			other = append(other, s)
		}
	}
	moves := append(urgent, other...)
	return moves[:min(len(moves), max(limit, 0))]
}
