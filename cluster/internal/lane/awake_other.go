//go:build unix && !linux

package lane

// sleepers is used only on Linux; elsewhere a reader goes to sleep at once.
type sleepers struct{}

func (*sleepers) add(uintptr)                   {}
func (*sleepers) remove(uintptr)                {}
func (*sleepers) watch(uintptr, *pollList) bool { return false }

type pollList struct{}
