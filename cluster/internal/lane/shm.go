package lane

const (
	// sharedFrom is the least payload that goes through shared memory: for less the stream is as fast, where one write takes
	// several messages.
	sharedFrom = 32 << 10
	// sharedLeaving is the same for a message whose sender wants its memory back early: without a slot it would copy it itself.
	sharedLeaving = 8 << 10
)
