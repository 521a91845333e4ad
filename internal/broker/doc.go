// Package broker makes a node one of Kafka's brokers: it gives the listener of package
// transport/kafka what it needs of package replication, and runs the coordinators of
// package group on the partitions of `__consumer_offsets` that this node leads.
//
// A [Broker] exists in every open Log, with or without a listener: the consumers of the
// process are members of the same groups.
//
// Only the root package uses it.
package broker
