package tensorops

// LimitStreamQueue bounds the lists that wait for one stream. A stage submits
// one action at a time and an optimizer step; the rest is slack for callers
// that queue ahead.
const LimitStreamQueue = 64

// LimitPoolKeep bounds the free buffers that an arena keeps in one size class;
// what comes back beyond it is left to the garbage collector.
const LimitPoolKeep = 4096
