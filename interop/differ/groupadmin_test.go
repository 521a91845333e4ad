package differ

import (
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func groupAdminScenarios() []scenario {
	return []scenario{
		{"groups-describe", playDescribeGroups},
		{"groups-list", playListGroups},
		{"groups-delete", playDeleteGroups},
	}
}

func playDescribeGroups(p *play) {
	p.coordinator(p.name())
	for _, v := range p.versions(kmsg.DescribeGroups) {
		p.askVersion("unknown", describeGroups(p.name("none")), v)
		p.askVersion("none", describeGroups(), v)
		p.askVersion("two", describeGroups(p.name("none"), p.name("neither")), v)
		p.askVersion("twice", describeGroups(p.name("none"), p.name("none")), v)
	}
}

func playListGroups(p *play) {
	p.topic(p.name(), 1)
	p.coordinator(p.name())
	commitNow(p, commitOf(p.name("simple"), p.name(), 0, 1))
	c := p.caller("a")
	r := c.enter(p.name("member"), p.newest(kmsg.JoinGroup, 5), "range")
	c.ask("sync", syncOf(p.name("member"), r.MemberID, r.Generation, r.MemberID, "work"), p.newest(kmsg.SyncGroup, 3))
	for _, v := range p.versions(kmsg.ListGroups) {
		ask := func(label string, states, types []string) {
			q := kmsg.NewPtrListGroupsRequest()
			q.StatesFilter, q.TypesFilter = states, types
			r, err := p.quietly(q, v)
			label = fmt.Sprintf("%s v%d", label, v)
			if err != nil {
				p.note(label, lost(err))
				p.dial()
				return
			}
			l := r.(*kmsg.ListGroupsResponse)
			own := l.Groups[:0]
			for _, g := range l.Groups {
				if strings.HasPrefix(g.Group, p.name()) {
					own = append(own, g)
				}
			}
			l.Groups = own
			p.note(label, p.names.lines(l)...)
		}
		ask("all", nil, nil)
		if v >= 4 {
			ask("stable", []string{"Stable"}, nil)
			ask("stable or empty", []string{"stable", "EMPTY"}, nil)
			ask("unknown state", []string{"Strange"}, nil)
		}
		if v >= 5 {
			ask("classic", nil, []string{"classic"})
			ask("consumer", nil, []string{"Consumer"})
			ask("unknown type", nil, []string{"strange"})
		}
	}
}

func playDeleteGroups(p *play) {
	p.topic(p.name(), 1)
	p.coordinator(p.name())
	for _, v := range p.versions(kmsg.DeleteGroups) {
		ask := func(label string, groups ...string) {
			q := kmsg.NewPtrDeleteGroupsRequest()
			q.Groups = groups
			p.askVersion(label, q, v)
		}
		c := p.caller("a")
		r := c.enter(p.name(v), p.newest(kmsg.JoinGroup, 5), "range")
		commitNow(p, commitOf(p.name(v, "simple"), p.name(), 0, 1))
		ask("with members", p.name(v))
		c.ask("leave", leaveOf(p.name(v), r.MemberID), p.newest(kmsg.LeaveGroup, 2))
		ask("empty and simple and unknown", p.name(v), p.name(v, "simple"), p.name("none"))
		ask("again", p.name(v))
		ask("none")
		p.ask("described", describeGroups(p.name(v), p.name(v, "simple")))
		c.conn.close()
	}
}
