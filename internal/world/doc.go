// Package world proves that all ranks of a grid come to the end of a step: also where they wait for each
// other in collectives, beside the inputs and credits of their pipelines, which [scheduler.Check] proves of one table
// alone. It is pure: orders in, a proof or a fault out.
//
// # The model
//
// A [World] has ranks, edges and groups. A rank does its steps one after the other: an action of its table, an
// overlapped pair as one, and what follows the row, such as norms and the update. This is what stages do (package
// actors):
//
//   - A step starts when all that it takes has arrived and each edge that it sends by has a credit. It then takes
//     those credits, and the credits of what it has taken go back.
//   - Its operations come one after the other, as its list has them. Members of a group meet in the order in which each
//     comes to the group's collectives: the third of one is with the third of every other. A member waits in a
//     collective until all have come to it; in one that is begun for later ([Op.Later]), at the next [Await] of the
//     same step, or at the step's end.
//   - What a step sends leaves when its operations have ended.
//
// Nothing in it depends on the moment: each wait is for a fixed set of what others do, so one play, in any
// order, comes as far as every run does. A run that waits for less, as one whose sends need no receiver, comes at
// least as far.
//
// # What is found
//
// Members that bring different collectives ([ErrMismatch]), or the same one for different numbers, which no run would
// notice ([ErrMixed]); a member that is through and never comes ([ErrMissing]); ranks that wait for each other in
// a cycle, over groups, edges and credits ([ErrDeadlock]); more collectives begun at once than a group takes
// ([ErrPending]); and a world that is none ([ErrWorld]). A [Fault] names ranks, steps and group, draws the
// place, and says what to do.
//
// [Orders] makes the world of a grid: its tables, and what each rank's lists hold.
package world
