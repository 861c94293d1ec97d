package groups

import "time"

const (
	// LimitNameBytes bounds the name of a group.
	LimitNameBytes = 256
	// LimitEarly bounds the remembered members that opened in other processes before the members here.
	LimitEarly = 65_536
	// LimitPings bounds the unanswered pings to a process.
	LimitPings = 1

	// tick is how often a port repeats that its members are open, and pings.
	tick = 250 * time.Millisecond
	// DefaultSilence is how long a process may leave pings unanswered, while a member waits for it, before it counts as failed.
	DefaultSilence = 2250 * time.Millisecond
)
