package main

import "testing"

// Feeders together give every record of a load once.
func TestFeeders(t *testing.T) {
	l := load{pool: newPool(1 << 20), size: 100, feeders: 3, records: 1000}
	seen := map[string]int{}
	feeders := l.start()
	for _, f := range feeders {
		for {
			value, ok := f.next()
			if !ok {
				break
			}
			seen[string(value)]++
		}
	}
	if given(feeders) != l.records || int64(len(seen)) != l.records {
		t.Fatalf("%d records given, %d different ones, want %d", given(feeders), len(seen), l.records)
	}
	for i := range l.records {
		if seen[string(l.pool.record(i, l.size))] != 1 {
			t.Fatalf("record %d was not given", i)
		}
	}
}
