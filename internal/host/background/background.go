// Package background does work that should cost other work little.
//
// The package must not know what the work is.
package background

import "runtime"

// Do calls f on a thread of its own with the lowest priority, and returns when f has ended. So while other threads of the machine want
// all cores, f gets a small share of one. What f starts in other goroutines has the usual priority. Where the system has no priorities of
// threads, or refuses, f runs as usual.
func Do(f func()) {
	done := make(chan struct{})
	go func() { // ends with f
		defer close(done)
		runtime.LockOSThread() // for good: the thread ends with the goroutine, because the system does not let it have its priority back
		lower()
		f()
	}()
	<-done
}
