package troupe

import "testing"

// SetFreeMemory makes the machine seem to have so many bytes left.
func SetFreeMemory(t testing.TB, bytes int64) {
	old := freeMemory
	t.Cleanup(func() { freeMemory = old })
	freeMemory = func() int64 { return bytes }
}
