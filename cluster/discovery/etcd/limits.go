package etcd

import "time"

// leaseTTL is how long the address of a coordinator that has died stays known. etcd may keep
// it for longer while it elects a leader.
const leaseTTL = 10 * time.Second

const (
	// askTime is how long etcd may take for an answer.
	askTime = 5 * time.Second
	// removeTime is how long removing an address may take, for which the coordinator's end waits.
	removeTime = 2 * time.Second
	// retryTime is the pause before etcd is asked again that did not answer.
	retryTime = time.Second
	// redialMost is the longest pause between two tries to connect to one of its servers, shorter
	// than a lease.
	redialMost = leaseTTL / 3
	// aliveEvery is how often a connection with a watch is tried, and aliveTime how long an
	// answer may take.
	aliveEvery = 10 * time.Second
	aliveTime  = 5 * time.Second

	// limitKeys is how many coordinators are read, and limitAnswerBytes the size of an answer.
	limitKeys        = 64
	limitAnswerBytes = 1 << 20
	// limitEndpoints is how many servers an address may name.
	limitEndpoints = 16
	// limitFileBytes bounds a file with certificates, or a key.
	limitFileBytes = 1 << 20
)
