// Package differ sends the same requests to two brokers, byte for byte, and compares
// the answers: Apache Kafka's, which are right, and those of the broker under test.
//
// A scenario is a play of requests, of every version that both brokers advertise.
// Answers become lines of path=value, in which what may differ has a name instead:
// ids, times, addresses. What the two have not in common is a failure, unless it is
// one of the known differences, which have a reason each.
package differ
