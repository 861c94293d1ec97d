package lane

import (
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// sleepers are the sockets for which a node's readers wait asleep.
type sleepers struct {
	mu  sync.Mutex
	fds pollList
}

type pollList []unix.PollFd

func readable(fd uintptr) unix.PollFd { return unix.PollFd{Fd: int32(fd), Events: unix.POLLIN} }

func (s *sleepers) add(fd uintptr) {
	s.mu.Lock()
	s.fds = append(s.fds, readable(fd))
	s.mu.Unlock()
}

func (s *sleepers) remove(fd uintptr) {
	s.mu.Lock()
	if i := slices.Index(s.fds, readable(fd)); i >= 0 {
		s.fds = slices.Delete(s.fds, i, i+1)
	}
	s.mu.Unlock()
}

// watch stays awake for a little while before a reader of a socket goes to sleep: an answer often follows within
// microseconds, and to wake a core of a virtual machine takes some fifty of them. It reports whether there is
// something to read. In each round other goroutines and other processes go first. A reader that is awake keeps Go's
// scheduler from looking after those that are asleep, so it ends when one of their sockets has something. list is
// room that is kept between calls.
func (s *sleepers) watch(fd uintptr, list *pollList) bool {
	for start := time.Now(); time.Since(start) < awake; {
		runtime.Gosched()
		// Neither call waits, so Go's scheduler need not hear of them.
		_, _, _ = syscall.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
		if !s.list(fd, list) {
			return false
		}
		fds, noTime := *list, unix.Timespec{}
		n, _, err := syscall.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&fds[0])), uintptr(len(fds)), uintptr(unsafe.Pointer(&noTime)), 0,
			0, 0)
		switch {
		case err == unix.EINTR:
		case err != 0:
			return false
		case n > 0:
			return fds[0].Revents != 0
		}
	}
	return false
}

// list fills a list with the socket, which comes first, and with those of the sleepers; false: they are too many.
func (s *sleepers) list(fd uintptr, list *pollList) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.fds) > limitWatched {
		return false
	}
	*list = append(append((*list)[:0], readable(fd)), s.fds...)
	return true
}
