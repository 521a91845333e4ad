// Package group has the coordinators of consumer groups, without the world around
// them: who is in a group, who has which partitions, and how far it has read.
//
// A [Core] is the coordinator of all groups of one partition of
// `__consumer_offsets`. It is pure: requests, time and commits go in, [Effects] come
// out. It has no goroutine, clock, lock or I/O, and is not safe for concurrent use.
// One loop owns it, where the partition is led.
//
// # Duties of the caller
//
//   - Make a core with [New] when the partition is led here; give [Core.Apply] all of
//     its records in order, each with its timestamp; then call [Core.Loaded]. Before
//     that, nothing else may be called; answer requests COORDINATOR_LOAD_IN_PROGRESS.
//     Give it the topics with [Core.SetTopics] before the first request, and whenever
//     they change.
//   - Give it requests of groups of that partition only. A request for several groups
//     is split by partition, and the responses are joined. Authorisation, and whether a
//     topic of a commit exists, are the caller's to check.
//   - Time never goes back. Call [Core.Tick] at Effects.Wake at the latest, after the
//     requests that wait. A caller that was held up, so that members could not be heard,
//     calls [Core.Delay] before anything else.
//   - Append each [Write] whole, in the order of Seq, with its time as timestamp. When
//     it is committed call [Core.Committed]; it covers all lower ones.
//   - When a write fails, or its fate is not known, or the partition is not led here any
//     more, call [Core.Stop] and drop the core. What it was told is ahead of the log; a
//     new core reads the log again.
//
// # What the caller gets
//
//   - Each request is answered once, by the effects of the call that took it or of a
//     later one. JoinGroup and SyncGroup may wait for other members.
//   - A response is given out only when everything that its group has written before is
//     committed. So nobody is told anything, not even by a read, that a crash can take back.
//   - A core that has read the log knows what the one before had committed: members,
//     generations and epochs, assignments, offsets. Sessions begin anew. A group that
//     was stable goes on without a rebalance; a classic one that was in a rebalance
//     starts it again when its members come back.
//   - What is kept is bounded by Options: groups, members, what a member says, records.
//
// # Protocols
//
// Classic groups: JoinGroup, SyncGroup, Heartbeat and LeaveGroup in all versions, with
// member ids that have to be used (KIP-394) and static members (KIP-345). Their members
// assign partitions; what they say to each other is opaque here, so cooperative
// rebalances work by themselves.
//
// Consumer groups (KIP-848): ConsumerGroupHeartbeat v0 and v1. The coordinator assigns,
// and each member moves to its target by itself: it gives up what it must, and gets what
// is free. A partition is never with two members; one that stays never pauses.
//
// A group is what its members speak, and changes when it is empty. While it is not,
// members of the other protocol are refused.
//
// The other side, what a member of a consumer group says and hears, is a [Member].
//
// Out of scope here are offsets in transactions, and share groups.
//
// # Records
//
// Keys and values are Kafka's, so that tools which read `__consumer_offsets` understand
// them: offsets (key version 1, value 3, or 1 when an old client said when it expires),
// classic groups (2, value 3), and of consumer groups the epoch (3), members (5), the
// target's epoch (6), targets (7) and present assignments (8). Their values are drawn
// beside the functions that write them.
package group
