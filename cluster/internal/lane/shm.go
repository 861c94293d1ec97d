package lane

// sharedFrom is the least payload that goes through shared memory: for less the stream is as fast.
const sharedFrom = 32 << 10
