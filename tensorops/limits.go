package tensorops

// LimitStreamQueue bounds the lists that wait for one stream. A stage submits
// one action at a time, or as many as a Queuer is worth; the rest is slack for callers
// that queue ahead.
const LimitStreamQueue = 64

// limitBufferBytes bounds one buffer: a size that no machine has is an error of
// the caller's, and Go would end the program.
const limitBufferBytes int64 = 1 << 44
