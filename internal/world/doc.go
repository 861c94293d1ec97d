// Package world proves that all ranks of a grid finish a step. [scheduler.Check] proves one pipeline's table:
// its inputs and credits. In a grid, ranks wait for each other in collectives too. The package is pure: orders in, a
// proof or a fault out.
//
// # The model
//
// A [World] has ranks, edges and groups. A rank does its steps one after the other: an action of its table, an
// overlapped pair as one, and what follows the row, such as norms and the update. This is what stages do (package
// actors):
//
//   - A step starts when all its inputs have arrived and each edge that it sends over has a credit. It then takes
//     those credits, and returns the credits of its inputs.
//   - Its operations run one after the other, in its list's order. Members of a group meet in the order in which each
//     reaches the group's collectives: the third collective of one meets the third of every other. A member waits in a
//     collective until all have reached it. If the collective is begun for later ([Op.Later]), the member waits at the
//     next [Await] of the same step, at an [AwaitOne] of its number, or at the step's end.
//   - A step's outputs leave when its operations have ended.
//
// Nothing in the model depends on timing: each wait is for a fixed set of actions of others, so one play, in any
// order, gets as far as every run does. A run that waits for less, such as one whose sends need no receiver, gets at
// least as far.
//
// # What is found
//
//   - [ErrMismatch]: members bring different collectives.
//   - [ErrMixed]: members bring the same collective for different tensors, which no run would notice.
//   - [ErrMissing]: a member has finished and never comes.
//   - [ErrDeadlock]: ranks wait for each other in a cycle, over groups, edges and credits.
//   - [ErrPending]: more collectives are begun at once than a group takes.
//   - [ErrWorld]: the input is not a valid world.
//
// A [Fault] names ranks, steps and group, draws the place, and says what to do.
//
// # Where a world comes from
//
// [Orders] makes the world of a grid from its tables and the lists of each rank. Before a run begins, package plan
// records the lists in a dry run (internal/plan/world.go); of a long row it records some microbatches, which stand for
// the others. An overlapped pair whose passes gather weights for each other is recorded as one list. Two tests hold the
// model: TestWorldIsWhatRanksDo (internal/plan) compares the supposed collectives with those that the streams of real
// runs begin. TestAgree compares the verdicts with 10,000 real executions in groups of package collective.
package world
