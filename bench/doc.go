// Package bench measures billet through its public API. Its benchmarks have key=value names, which benchstat reads:
//
//	go test -run '^$' -bench . -count 10 ./bench | tee new.txt
//	benchstat old.txt new.txt
//
// What the layers below cost by themselves is measured beside them, in packages segment, replication and internal/batch.
// bench/peers compares with other logs, RESULTS.md has the figures.
package bench
