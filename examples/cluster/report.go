package main

import (
	"fmt"
	"strconv"
	"time"
)

// report is what the drill measured.
type report struct {
	was, is                        layout // before the kill, and while the process was down
	before, during, catchUp, after stretch
	opened, caughtUp               time.Duration // since the process was started again
}

// String tells how many records were acknowledged and how long none was.
func (s stretch) String() string {
	return fmt.Sprintf("%s records/s in %s; the longest time without an acknowledgement: %s in all, %s for a single partition",
		count(s.rate()), duration(s.took), duration(s.all), duration(s.longest()))
}

// tellFailover prints how long each partition took no records.
func (d *drill) tellFailover() {
	d.tell.say("failover   %s", d.during)
	for n, silent := range d.during.by {
		from, to := d.was[n].Leader, d.is[n].Leader
		moved := fmt.Sprintf("node %d led on", from)
		if from != to {
			moved = fmt.Sprintf("node %d after node %d", to, from)
		}
		d.tell.say("           partition %d: %8s  %s", n, duration(silent), moved)
	}
}

func duration(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%.0f ms", d.Seconds()*1e3)
	}
	return fmt.Sprintf("%.2f s", d.Seconds())
}

// count writes a number with its digits in groups.
func count(n int64) string {
	digits := strconv.FormatInt(n, 10)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
