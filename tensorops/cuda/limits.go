package cuda

// LimitFlights bounds the pieces of work that one stream has on the device at a time:
// one that runs and one that waits behind it.
const LimitFlights = 2

// LimitStagingBytes bounds the page-locked memory of one flight, through which uploads
// and fetches pass. What is larger goes in several flights.
const LimitStagingBytes = 32 << 20

// LimitMasks bounds the dropout masks of one segment: a segment with more is cut.
const LimitMasks = 1024

// LimitTable bounds the tensors that one launch works on by a table.
const LimitTable = 1024

// minStagingBytes is the smallest piece of page-locked memory that is asked for.
const minStagingBytes = 64 << 10
