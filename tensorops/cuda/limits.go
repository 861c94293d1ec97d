package cuda

// limitLaunchBatches bounds the pieces of work that one stream has on the device at a time:
// one that runs and one that waits behind it.
const limitLaunchBatches = 2

// limitStagingBytes bounds the page-locked memory of one batch, through which uploads
// and fetches pass. What is larger goes in several batches.
const limitStagingBytes = 32 << 20

// limitCheckedIDs bounds the tensors of token ids that a stream remembers to have looked at: two for each
// microbatch in flight.
const limitCheckedIDs = 256

// limitKnownTables bounds the tables of rows that a stream remembers: one for each layer with experts and microbatch in flight.
const limitKnownTables = 256

// limitTableNumbers bounds the numbers of a table that is remembered: those of 128 ranks that share 1,023 experts. A larger one is
// fetched for each exchange.
const limitTableNumbers = 128 << 10

// minAside is the fewest bytes of a copy that goes beside the kernels. Smaller ones are
// done sooner than two streams have met.
const minAside = 1 << 20

// limitArrivingBytes bounds the memory in which copies to the device arrive beside the kernels,
// for one batch. What is more goes to its place in the kernels' order.
const limitArrivingBytes = 64 << 20

// limitPieces bounds the page-locked memory that tensors pass through on their way to other
// processes, and as much on their way from them: pieces of tensorops.PieceBytes.
const limitPieces = 16

// limitLeaving bounds the copies to the host that kernels may run beside before they wait.
const limitLeaving = 64

// limitMasks bounds the dropout masks of one segment: a segment with more is cut.
const limitMasks = 1024

// limitTable bounds the tensors that one launch works on by a table.
const limitTable = 1024

// limitGraphs bounds the CUDA graphs that a stream keeps.
const limitGraphs = 128

// limitSeen bounds the segments that a stream remembers to have launched once.
const limitSeen = 4096

// minGraphOps is the fewest operations that a graph is made of.
const minGraphOps = 4

// limitCaptures is how often a stream tries to make a graph of one segment.
const limitCaptures = 3

// limitFailedGraphs is how many captures in a row may fail before a stream makes no more
// graphs: the driver can't.
const limitFailedGraphs = 32

// minStagingBytes is the smallest piece of page-locked memory that is asked for.
const minStagingBytes = 64 << 10

// limitPlans bounds the products that a device remembers an algorithm for. One more, and
// all are asked for again as they come.
const limitPlans = 4096

// limitJoined bounds the operations that are carried out along with a product. They keep
// their scratch memory until the last of them.
const limitJoined = 4

// workspaceBytes is the memory that each stream lends to the library for its products:
// what NVIDIA recommends for the GPUs that need most of it.
const workspaceBytes = 32 << 20
