package etcd

import "time"

// leaseTTL is how long the address of a failed coordinator stays in etcd. etcd may keep it longer
// while it elects a leader.
const leaseTTL = 10 * time.Second

const (
	// askTime is how long etcd may take to answer.
	askTime = 5 * time.Second
	// removeTime is how long removing an address may delay the coordinator's exit.
	removeTime = 2 * time.Second
	// retryTime is the pause before another request after etcd did not answer.
	retryTime = time.Second
	// redialMost is the longest pause between two tries to connect to a server; it is shorter than a
	// lease.
	redialMost = leaseTTL / 3
	// aliveEvery is how often a connection with a watch is checked, and aliveTime how long the answer
	// may take.
	aliveEvery = 10 * time.Second
	aliveTime  = 5 * time.Second

	// limitKeys is how many coordinators are read, and limitAnswerBytes bounds the size of an answer.
	limitKeys        = 64
	limitAnswerBytes = 1 << 20
	// limitEndpoints is how many servers an address may name.
	limitEndpoints = 16
	// limitFileBytes bounds a file with certificates or a key.
	limitFileBytes = 1 << 20
)
