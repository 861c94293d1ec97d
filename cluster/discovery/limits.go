package discovery

// limitTextBytes bounds the text of an address, such as "etcd://HOST:PORT/PREFIX".
const limitTextBytes = 4096

// LimitFound is how many of the found addresses are tried, and LimitAddressBytes how long each may
// be.
const (
	LimitFound        = 16
	LimitAddressBytes = 256
)
