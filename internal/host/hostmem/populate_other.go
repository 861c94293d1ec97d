//go:build !linux

package hostmem

// populate does nothing: the system gives each page when it is first used.
func populate([]byte) {}
