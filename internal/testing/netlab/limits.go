package netlab

import "time"

// Limits of a network. Packets beyond the limits of queues are dropped, as a switch does, and counted
// (Counts.Overflowed).
const (
	// LimitHosts is how many hosts a lab may have.
	LimitHosts = 250
	// LimitHeldPackets is how many packets a lab holds in total: 100 ms at 6 Gbit/s.
	LimitHeldPackets = 50_000
	// LimitQueueTime and LimitQueueBytes bound the packets that wait on a link with a rate, in each
	// direction. The larger of the two counts: on a slow link LimitQueueTime alone would hold no packet
	// at all.
	LimitQueueTime  = 20 * time.Millisecond
	LimitQueueBytes = 64 << 10

	// mtuBytes is the size of the largest packet on the network.
	mtuBytes = 1500
	// devicePackets is how many packets may wait between the kernel and the forwarder, for each host. It
	// is large because the kernel drops the rest uncounted.
	devicePackets = 10_000
	// readsInRow is how many packets the forwarder reads from a host before it continues with the next.
	readsInRow = 64
	// killRounds is how many times the lab searches and kills the processes of a host before it reports
	// an error.
	killRounds = 100
)
