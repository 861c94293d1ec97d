// Package scheduler decides which rank computes what, and in which order, before a run starts. It
// is pure: it takes tables and numbers and returns tables and numbers. The package must never know
// of actors, clocks, devices or I/O. So the same table can be checked, simulated, drawn and run.
//
// # Words
//
// A model is cut into chunks of consecutive layers. They are numbered over all ranks in the order
// of the forward pass: chunk 0 holds the embedding, the last chunk computes the loss. (PyTorch
// calls a chunk a stage, Megatron a virtual stage or model chunk.) A rank computes one action at a
// time. Its order of actions is a row of a table, and it is a stage of the pipeline. It holds one
// or more chunks; a [Placement] says which rank holds which chunk. A batch is cut into
// microbatches. An [Action] is one pass of one microbatch through one chunk: 0F3 is the forward of
// microbatch 3 on chunk 0. The backward B is the input gradient I followed by the weight gradient
// W. A table may hold B, or I and W separately.
//
// Two actions may run as one, an overlapped pair: (0F5;7B3)OVERLAP_F_B. Where ranks share experts, an
// action exchanges tokens with other ranks in each layer with experts. In a pair one action can
// compute while the tokens of the other travel. [Table.Cut] writes that order as parts:
//
//	(0F1.1;0FD1.1;0B0.1;0BD0.1;0F1.2;0FC1.2;0B0.2;0BC0.2;0F1.3;0B0.3)OVERLAP_F_B
//
// 0F1.2 is the second part of 0F1. FD and FC are its dispatch and its combine, which send tokens to
// their experts and results back; BD and BC those of a backward. An exchange follows the part of
// its number, and the next part waits for it. It takes time of the link and not of the rank. All
// parts run as one: they start when the inputs of both actions have arrived, and both outputs leave
// at the end. [CheckExchanges] compares the tables of pipelines that share experts.
//
// A [Table] is an order of actions for every rank. It holds no times. An action starts when three
// conditions hold: its rank has finished the previous action, its inputs have arrived, and the
// credits for its output are free.
//
// # The life of a table
//
//  1. [Generate] makes the table of a [Spec]. [ReadCSV] reads a table that a person or
//     another system wrote; [Table.CSV] writes one.
//  2. [Check] proves the table: every action occurs once, on the right rank, in an order
//     that can't deadlock. It reports how many outputs each rank holds at its peak, and how
//     many outputs may be in flight on each edge. In a grid, ranks also wait for each other
//     in collectives; there, package world proves the step.
//  3. [Machine.Simulate] runs the table with the costs, links and cores that the caller
//     gives. It returns how long the step takes and where ranks idle.
//
// # Schedules
//
// Most schedules either divide a rank's order into phases ([Interleaved] and its relatives:
// warm-up, steady state, cool-down) or follow a published loop of actions. [VHalf] and [VMin]
// repeat a block with fixed times and keep only the resulting order. [UShape], and some of the
// tables that [Auto] chooses from, come from a simulation. There, a free rank takes the best action
// that is ready, provided it can still release everything that it would hold.
//
// A program adds its own schedules with [Register]. They then work like the built-in ones.
//
// # Messages and credits
//
// A forward output of chunk c goes to chunk c+1. A backward output, sent after I or B, goes to
// chunk c−1. Every table has these edges between neighbors. A model may also have skips
// ([Table.SetSkips]): edges from a chunk to one that is not the next, as in a U-Net, and back.
// Inputs wait at the receiver under their kind, chunks and microbatch. So a receiver may take them
// in any order, and no send needs a matching receive.
//
// Each of these [Edges] has its own credits, even if both ends are on one rank. An action takes one
// credit of each of its output's edges when it starts. The credit returns when the action that
// consumes the output starts. The number of an edge's credits is the largest number of outputs in
// flight in the simulation at unit costs without a limit. That simulation never exceeds the limit.
// In a table each start waits for a fixed set of earlier starts and ends (a marked graph), so a
// table that finishes with one set of costs finishes with all. Therefore credits never add a
// deadlock.
//
// # Layouts
//
// A [Layout] says which layers each chunk holds, in a small language, for example
// Et*3|(tt|)*29,m|L. [BalancedLayout] finds a layout from the cost of one layer. [BalancedSequence]
// finds one from the cost of each layer, for a model with any sequence of layers.
//
// # The files, in the order to read them
//
//  1. action: an action, and the kinds of edges that carry outputs; edges: all edges of a
//     table, including skips
//  2. table: the order of every rank; placements; the drawing of an error's place
//  3. spec: the request for a table
//  4. generate: the schedules. generate.go has those made of phases; v, vpattern and u have
//     those of the placements V and U; greedy and auto have simulated ones, closeup one that
//     is simulated in part; progress is what a rank knows in such a simulation; forwards
//     makes tables for validation; defer and pairs change a table; register has the program's
//     own; parts cuts pairs
//  5. check: that every action occurs (actions), what runs as one (group), which passes change bits by their order
//     (order), that ranks never wait in a cycle (deadlock), how an error names its place
//     (fault), and whether a table would run without buffers (rendezvous)
//  6. simulate: the times of a table. If nothing depends on what runs at the same moment,
//     player computes them in one pass. All else is one loop of events (loop, events), with a
//     policy for what a free rank takes next: the next action of its row (inrow), the best
//     that is ready (generate_greedy), or the first of its row that is ready
//     (generate_closeup). shared is for ranks that share cores, parts for what runs as one
//  7. layout: layers on chunks; balance and cut find a layout
//  8. csv: a table's text; dialect has the marks around its cells
//  9. step: a step with its times, measured or simulated; measured: what its actions waited
//     for; critical: the path that determines the step's time; idle: the causes of gaps
//
// The files in testdata are transcripts that the tests compare: play.txt shows simulated tables,
// skips.txt some with skips, broken.txt the errors of broken tables, measured.txt the critical
// paths and gaps of steps.
package scheduler
