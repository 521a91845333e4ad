package main

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// measures are the figures of one run of one side, by name.
type measures map[string]float64

func (m measures) String() string {
	var fields []string
	for _, name := range slices.Sorted(maps.Keys(m)) {
		fields = append(fields, strings.ReplaceAll(name, " ", "_")+"="+number(m[name]))
	}
	return strings.Join(fields, " ")
}

// median returns the middle of the values, the mean of the middle two when
// their number is even, and NaN when there are none.
func median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// latencies are the durations of single operations of one run.
type latencies []time.Duration

// measures returns p50, p99 and p999 in microseconds.
func (l latencies) measures() measures {
	slices.Sort(l)
	return measures{"p50": l.quantile(0.5), "p99": l.quantile(0.99), "p999": l.quantile(0.999)}
}

// quantile returns the nearest-rank quantile of sorted latencies in microseconds.
func (l latencies) quantile(q float64) float64 {
	if len(l) == 0 {
		return math.NaN()
	}
	rank := int(math.Ceil(q*float64(len(l)))) - 1
	return float64(l[max(rank, 0)]) / float64(time.Microsecond)
}

// throughput returns the rate of records of size bytes in MB/s and records/s.
func throughput(records int64, size int, elapsed time.Duration) measures {
	perSecond := float64(records) / elapsed.Seconds()
	return measures{"MB/s": perSecond * float64(size) / 1e6, "records/s": perSecond}
}

// number prints four significant digits, and - for what was not measured.
func number(v float64) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return "-"
	}
	if math.Abs(v) >= 1000 {
		return strconv.FormatFloat(math.Round(v), 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}
