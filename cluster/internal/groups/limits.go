package groups

import "time"

const (
	// LimitNameBytes bounds the name of a group.
	LimitNameBytes = 256
	// LimitEarly bounds the members that have said that they are open before those here are.
	LimitEarly = 65_536
	// LimitPings bounds what one process hasn't answered: no more is asked.
	LimitPings = 1

	// tick is how often a port says again that its members are open, and asks who lives.
	tick = 250 * time.Millisecond
	// DefaultSilence is after how long without an answer a process is taken for gone, while a member waits for it.
	DefaultSilence = 2250 * time.Millisecond
)
