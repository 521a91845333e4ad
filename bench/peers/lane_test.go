package main

import (
	"errors"
	"testing"
	"time"
)

func TestLane(t *testing.T) {
	l := &lane{}
	for range 4 {
		l.next()
	}
	start := time.Now()
	l.answer(0, 10, nil)
	l.answer(2, 12, nil)
	gap, over, err := l.since(start)
	if gap <= 0 || over || err != nil {
		t.Errorf("gap %v, over %t, %v", gap, over, err)
	}
	l.answer(l.next(), 14, nil)
	if _, over, _ := l.since(start); !over {
		t.Error("a record sent later was acknowledged and does not count")
	}
	l.watch()
	if gap, _, _ := l.since(start); gap != 0 {
		t.Errorf("gap %v", gap)
	}
	for name, c := range map[string]struct {
		numbers []int
		offsets []int64
		good    bool
	}{
		"all":        {[]int{0, 1, 2, 4}, []int64{10, 11, 12, 14}, true},
		"lost":       {[]int{0, 2}, []int64{10, 12}, false},
		"elsewhere":  {[]int{0, 2, 4}, []int64{10, 12, 13}, false},
		"out of row": {[]int{2, 0, 4}, []int64{12, 10, 14}, false},
		"twice":      {[]int{0, 2, 2, 4}, []int64{10, 12, 13, 14}, false},
	} {
		if err := l.check(c.numbers, c.offsets); (err == nil) != c.good {
			t.Errorf("%s: %v", name, err)
		}
	}
	l.answer(3, 0, errors.New("no"))
	if _, _, err := l.since(start); err == nil {
		t.Error("a failure is not told")
	}
}
