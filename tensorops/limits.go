package tensorops

// LimitStreamQueue limits the lists that wait for one stream. A stage submits one action at a time,
// or the number that a Queuer recommends; the rest is slack for callers that queue more.
const LimitStreamQueue = 64

// limitBufferBytes limits one buffer. No machine has so much memory, so a larger size is a bug of
// the caller, and Go would abort the program.
const limitBufferBytes int64 = 1 << 44
