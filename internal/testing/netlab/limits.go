package netlab

import "time"

// The bounds of a network. What goes beyond those of queues is dropped, as a switch
// does, and counted (Counts.Overflowed).
const (
	// LimitHosts is how many hosts a lab may have.
	LimitHosts = 250
	// LimitHeldPackets is how many packets a lab holds for their delay and their turn: 100 ms
	// of 6 Gbit/s.
	LimitHeldPackets = 50_000
	// LimitQueueTime and LimitQueueBytes bound what waits for its turn on a link with a rate, in
	// each direction: the larger of the two, as LimitQueueBytes alone would hold a slow link's
	// packets for seconds and LimitQueueTime alone would hold no packet at all there.
	LimitQueueTime  = 20 * time.Millisecond
	LimitQueueBytes = 64 << 10

	// mtuBytes is the size of the largest packet on the network.
	mtuBytes = 1500
	// devicePackets is how many packets wait between the kernel and the forwarder, for each
	// host. It is large because the kernel drops the rest without our counting it.
	devicePackets = 10_000
	// readsInRow is how many packets the forwarder takes from a host before it looks at the next.
	readsInRow = 64
	// killRounds is how often the processes of a host are looked for and killed before
	// the end of the lab is an error.
	killRounds = 100
)
