package cuda

// LimitLaunchBatches bounds the pieces of work that one stream has on the device at a time:
// one that runs and one that waits behind it.
const LimitLaunchBatches = 2

// LimitStagingBytes bounds the page-locked memory of one batch, through which uploads
// and fetches pass. What is larger goes in several batches.
const LimitStagingBytes = 32 << 20

// LimitCheckedIDs bounds the tensors of token ids that a stream remembers to have looked at: two for each
// microbatch in flight.
const LimitCheckedIDs = 256

// minAside is the fewest bytes of a copy that goes beside the kernels. Smaller ones are
// done sooner than two streams have met.
const minAside = 1 << 20

// LimitArrivingBytes bounds the memory in which copies to the device arrive beside the kernels,
// for one batch. What is more goes to its place in the kernels' order.
const LimitArrivingBytes = 64 << 20

// LimitPieces bounds the page-locked memory that tensors pass through on their way to other
// processes, and as much on their way from them: pieces of tensorops.PieceBytes.
const LimitPieces = 16

// LimitLeaving bounds the copies to the host that kernels may run beside before they wait.
const LimitLeaving = 64

// LimitMasks bounds the dropout masks of one segment: a segment with more is cut.
const LimitMasks = 1024

// LimitTable bounds the tensors that one launch works on by a table.
const LimitTable = 1024

// LimitGraphs bounds the CUDA graphs that a stream keeps.
const LimitGraphs = 128

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

// LimitPlans bounds the products that a device remembers an algorithm for. One more, and
// all are asked for again as they come.
const LimitPlans = 4096

// LimitJoined bounds the operations that are carried out along with a product. They keep
// their scratch memory until the last of them.
const LimitJoined = 4

// workspaceBytes is the memory that each stream lends to the library for its products:
// what NVIDIA recommends for the GPUs that need most of it.
const workspaceBytes = 32 << 20
