package main

import (
	"math"
	"testing"
	"time"
)

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{
		{[]float64{3}, 3},
		{[]float64{9, 1, 5}, 5},
		{[]float64{4, 1, 2, 100}, 3},
	} {
		if got := median(c.values); got != c.want {
			t.Errorf("median(%v) = %v, want %v", c.values, got, c.want)
		}
	}
	if got := median(nil); !math.IsNaN(got) {
		t.Errorf("median of nothing = %v", got)
	}
}

func TestLatencies(t *testing.T) {
	var each latencies
	for i := 100; i >= 1; i-- {
		each = append(each, time.Duration(i)*time.Microsecond)
	}
	m := each.measures()
	if m["p50"] != 50 || m["p99"] != 99 || m["p999"] != 100 {
		t.Errorf("quantiles of 1 to 100: %v", m)
	}
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{1234.6: "1235", 12.3456: "12.35", 0.00012345: "0.0001234", 480000: "480000", math.Inf(1): "-"} {
		if got := number(v); got != want {
			t.Errorf("number(%v) = %s, want %s", v, got, want)
		}
	}
}
