// Command peers runs the same work on billet, on its peers and on the bare
// disk or memory, in one run on one machine, and prints one line a case:
//
//	case=<name> unit=<MB/s|us|…> billet=<v> peer=<v> limit=<v> ratio=<v> …
//
// The peers are embedded NATS JetStream and, for many partitions, dragonboat
// on its own log store. README.md has the commands, what each case does and
// how to read a line. Linux only.
//
// A family is a set of cases that come from the same work. Each family runs in
// a process of its own, so that no case inherits another's heap and a crash
// costs only the cases of its family. Within a family the sides take turns:
// raw, billet, peer, raw, billet, peer.
package main
