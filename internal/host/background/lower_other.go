//go:build !linux

package background

// lower does nothing: the priority of a thread is not known here.
func lower() {}
