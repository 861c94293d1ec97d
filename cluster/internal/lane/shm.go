package lane

const (
	// sharedFrom is the least payload, in bytes, that goes through shared memory. For less the stream is as fast, because
	// one write carries several messages.
	sharedFrom = 32 << 10
	// sharedLeaving is the same for a message whose sender wants its memory back early, and would otherwise copy it itself.
	sharedLeaving = 8 << 10
)
