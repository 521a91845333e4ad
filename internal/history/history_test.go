package history

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

var part = Partition{"t", 0}

// filled is a history in which a and b each wrote two values that are acknowledged at offsets 0 to 3.
func filled() (*History, Replica) {
	h := New()
	r := Replica{Name: "one", End: 4, Records: map[int64]Value{}}
	for offset := range int64(4) {
		v := h.Send([]string{"a", "b"}[offset%2])
		h.Acknowledge(part, offset, v)
		r.Records[offset] = v
		r.Ranges = append(r.Ranges, Range{offset, offset + 1, uint64(100 + offset)})
	}
	return h, r
}

func copied(r Replica, name string) Replica {
	c := Replica{Name: name, Start: r.Start, End: r.End, Records: map[int64]Value{}, Ranges: append([]Range(nil), r.Ranges...)}
	for k, v := range r.Records {
		c.Records[k] = v
	}
	return c
}

func TestWhatIsGoodPasses(t *testing.T) {
	h, r := filled()
	later := copied(r, "later")
	later.Start, later.Ranges = 2, later.Ranges[2:]
	open := h.Send("a") // its fate is unknown, and it is there
	r.Records[4], later.Records[4] = open, open
	for _, x := range []*Replica{&r, &later} {
		x.End = 5
		x.Ranges = append(x.Ranges, Range{4, 5, 7})
	}
	reader := h.Reader("x")
	for offset := range int64(4) {
		reader.Read(part, offset, r.Records[offset])
		reader.High(part, offset+1)
	}
	h.Expect("quiet")
	h.Reader("y").Read(Partition{"u", 0}, 0, Value{"quiet", 1 << 40})
	h.Refuse(h.Send("b"), errors.New("no"))
	h.Lead(part, 1, 1)
	h.Lead(part, 1, 1)
	h.Lead(part, 2, 3)
	h.CheckReplicas(part, []Replica{r, later})
	if err := h.Err(); err != nil || h.Acknowledged() != 4 || h.Known(part) != 5 || reader.Position(part) != 4 {
		t.Errorf("%v; %d acknowledged, known to %d, reader at %d", err, h.Acknowledged(), h.Known(part), reader.Position(part))
	}
}

func TestEachViolationIsFound(t *testing.T) {
	for name, c := range map[string]struct {
		want string
		do   func(h *History, r Replica)
	}{
		"an acknowledged record is lost": {"ends at 3", func(h *History, r Replica) {
			delete(r.Records, 3)
			r.End, r.Ranges = 3, r.Ranges[:3]
			h.CheckReplicas(part, []Replica{r})
		}},
		"an acknowledged record is another one": {"where a/1 is known", func(h *History, r Replica) {
			r.Records[2] = h.Send("c")
			h.CheckReplicas(part, []Replica{r})
		}},
		"a record is there twice": {"is at 3, too", func(h *History, r Replica) {
			r.Records[4], r.End = r.Records[3], 5
			h.CheckReplicas(part, []Replica{r})
		}},
		"a writer's records are out of order": {"after 3 of the same writer", func(h *History, r Replica) {
			first, second := h.Send("a"), h.Send("a")
			r.Records[4], r.Records[5], r.End = second, first, 6
			h.CheckReplicas(part, []Replica{r})
		}},
		"a record is missing": {"no record at offset 1", func(h *History, r Replica) {
			delete(r.Records, 1)
			h.CheckReplicas(part, []Replica{r})
		}},
		"nobody sent it": {"nobody sent", func(h *History, r Replica) {
			r.Records[4], r.End = Value{"a", 9}, 5
			h.CheckReplicas(part, []Replica{r})
		}},
		"it was refused": {"refused for certain", func(h *History, r Replica) {
			v := h.Send("a")
			h.Refuse(v, errors.New("no"))
			r.Records[4], r.End = v, 5
			h.CheckReplicas(part, []Replica{r})
		}},
		"replicas have other bytes": {"bytes of one and two differ", func(h *History, r Replica) {
			other := copied(r, "two")
			other.Ranges[2].Sum++
			h.CheckReplicas(part, []Replica{r, other})
		}},
		"replicas end elsewhere": {"one ends at 5, two at 4", func(h *History, r Replica) {
			other := copied(r, "two")
			r.Records[4], r.End = h.Send("a"), 5
			h.CheckReplicas(part, []Replica{r, other})
		}},
		"replicas have other ranges": {"two has 3", func(h *History, r Replica) {
			other := copied(r, "two")
			other.Ranges = other.Ranges[:3]
			h.CheckReplicas(part, []Replica{r, other})
		}},
		"no replica is there": {"no replica", func(h *History, r Replica) { h.CheckReplicas(part, nil) }},
		"an offset is acknowledged twice": {"a second time", func(h *History, r Replica) {
			h.Acknowledge(part, 3, r.Records[3])
		}},
		"two offsets are acknowledged for one record": {"is at 3, too", func(h *History, r Replica) {
			h.Acknowledge(part, 4, r.Records[3])
		}},
		"readers get different records": {"read by x where", func(h *History, r Replica) {
			h.Reader("x").Read(part, 0, r.Records[1])
		}},
		"a reader goes back": {"got offset 0 where 1 was due", func(h *History, r Replica) {
			x := h.Reader("x")
			x.Read(part, 0, r.Records[0])
			x.Read(part, 0, r.Records[0])
		}},
		"a reader misses one": {"got offset 2 where 1 was due", func(h *History, r Replica) {
			x := h.Reader("x")
			x.Read(part, 0, r.Records[0])
			x.Read(part, 2, r.Records[2])
		}},
		"the high watermark falls": {"fall from 4 to 3", func(h *History, r Replica) {
			x := h.Reader("x")
			x.High(part, 4)
			x.High(part, 3)
		}},
		"the high watermark falls behind what was read": {"fall from 3 to 2", func(h *History, r Replica) {
			x := h.Reader("x")
			x.Seek(part, 2)
			x.Read(part, 2, r.Records[2])
			x.High(part, 2)
		}},
		"two lead in one epoch": {"nodes 1 and 2 lead in epoch 5", func(h *History, r Replica) {
			h.Lead(part, 5, 1)
			h.Lead(part, 5, 2)
		}},
		"what the caller found": {"it is bad", func(h *History, r Replica) { h.Violate("it is %s", "bad") }},
	} {
		t.Run(name, func(t *testing.T) {
			h, r := filled()
			c.do(h, r)
			if err := h.Err(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("found %v, want %q", err, c.want)
			}
		})
	}
}

func TestViolationsAreBounded(t *testing.T) {
	h := New()
	for i := range violationsMax + 5 {
		h.Violate("%d", i)
	}
	if err := h.Err(); !strings.HasSuffix(err.Error(), fmt.Sprintf("%d\nand 5 more violations", violationsMax-1)) {
		t.Error(err)
	}
}
