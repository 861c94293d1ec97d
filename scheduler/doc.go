// Package scheduler decides, before anything runs, who computes what and in which order. It is
// pure: tables in, tables and figures out. The package must never know of actors, clocks, devices
// or I/O, so that one table can be checked, simulated, drawn and run, and all four speak of the
// same thing.
//
// # Words
//
// A model is cut into chunks, numbered along the way of the activations over all
// ranks: chunk 0 embeds, the last chunk computes the loss. (PyTorch calls a chunk a
// stage, Megatron a virtual stage or model chunk.) A rank is a place that computes,
// one action at a time: a row of a table, a stage of the pipeline. It holds one chunk
// or several; a [Placement] says which rank holds which chunk. A batch is cut into
// microbatches, and an [Action] is one microbatch's visit to one chunk: 0F3 is the
// forward of microbatch 3 on chunk 0. The backward B is the input gradient I followed by
// the weight gradient W; a table may hold B, or I and W apart.
//
// A [Table] is an order of actions for every rank. It holds no times: an action
// starts when its rank is done with the one before it, its inputs have arrived,
// and the credits for its output are at hand.
//
// # The way of a table
//
//  1. [Generate] makes the table of a [Spec], or [ReadCSV] reads one that a person or
//     another system wrote. [Table.CSV] writes one.
//  2. [Check] proves it: every action once, on the right rank, in an order that
//     can't deadlock. It reports how much each rank holds at its worst, and how
//     many outputs may be under way on each edge. Of a grid, whose ranks wait for each other in collectives too,
//     package world proves the step.
//  3. [Machine.Simulate] plays it with the costs, links and cores that the caller
//     gives, and says how long it takes and where the ranks idle.
//
// # Schedules
//
// Most schedules are phases of a rank's order ([Interleaved] and its kin: warm-up,
// turns, cool-down) or a loop of actions that somebody published. [VHalf] and [VMin]
// repeat a block of times and keep the order that comes out. [UShape], and some of the
// tables that [Auto] chooses from, are played: whenever a rank is free it takes the
// best action that is ready, if it can still let go of all that it would hold.
//
// A program adds schedules of its own with [Register], which are then like the others.
//
// # Messages and credits
//
// A forward output of chunk c goes to chunk c+1, a backward output (sent after
// I, or after B) to chunk c−1. This chain of neighbours is always there. A model
// may have skips besides ([Table.SetSkips]): from a chunk to one that is not the next, as
// in a U-Net, and back. Inputs wait at the receiver under their kind,
// chunks and microbatch, so a receiver may take them in any order and no send
// needs a matching receive.
//
// Each of these [Edges] has its own credits, also where both ends stand on one
// rank. An action takes a credit of each of its output's edges when it starts, and the
// credit comes back when the action that consumes the output starts. An edge's
// credits are the most outputs that are under way in the unit-cost simulation
// without a bound. That play obeys the bound, and in a table each start waits
// for a fixed set of earlier starts and ends (a marked graph), so what completes
// with one set of costs completes with all: credits never add a deadlock.
//
// # Layouts
//
// A [Layout] says which layers each chunk holds, in a small language
// (Et*3|(tt|)*29,m|L). [BalancedLayout] finds one by the cost of a layer,
// [BalancedSequence] by the cost of each, of a model with any sequence of them.
//
// # The files, in the order to read them
//
//  1. action: an action, and the kinds of edges that outputs go by; edges: all edges of a
//     table, with its skips
//  2. table: the order of every rank; placements; drawing the place of an error
//  3. spec: what a table is asked for by
//  4. generate: the schedules. generate.go has those in phases; v, vpattern and u those of
//     their placements; greedy and auto those that are played, closeup one that is played in part;
//     progress is what a rank knows in such a play; forwards those that validate; defer changes a table; register has those of the program
//  5. check: that every action is there (actions), which passes change bits by their order
//     (order), that ranks never wait in a cycle
//     (deadlock), how an error says where (fault), and whether a table would run
//     without buffers (rendezvous)
//  6. simulate: a table played. Where nothing depends on the moment, player does it in one
//     pass; all else is the one loop of events (loop, events), with a policy for what a
//     free rank takes next: the next of its row (inrow), the best that is ready
//     (generate_greedy), the first of its row that is ready (generate_closeup); on cores of its own or shared
//  7. layout: layers on chunks; balance and cut find one
//  8. csv: a table's text; dialect has the marks around its cells
//  9. step: a step with its times, measured or simulated; measured: what its actions have waited for;
//     critical finds the path that the step's time is made of, idle the causes of gaps
//
// testdata/play.txt shows tables played in each way, testdata/skips.txt some with skips,
// testdata/broken.txt what is wrong with some, testdata/measured.txt what steps' times are made of, as
// transcripts that the tests hold.
package scheduler
