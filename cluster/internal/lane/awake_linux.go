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

// sleepers are the sockets whose readers are asleep.
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

// watch polls a socket for a short time before its reader goes to sleep: an answer often follows within microseconds,
// and waking a core of a virtual machine takes about 50 µs. It reports whether the socket has data. In each round it
// first yields to other goroutines and processes. A polling reader keeps Go's scheduler from waking the readers that are
// asleep, so watch ends when one of their sockets has data. list is a buffer that is reused between calls.
func (s *sleepers) watch(fd uintptr, list *pollList) bool {
	for start := time.Now(); time.Since(start) < awake; {
		runtime.Gosched()
		// Neither call blocks, so Go's scheduler need not know of them.
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

// list fills a list with the socket, which comes first, and the sleepers' sockets; false: there are too many.
func (s *sleepers) list(fd uintptr, list *pollList) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.fds) > limitWatched {
		return false
	}
	*list = append(append((*list)[:0], readable(fd)), s.fds...)
	return true
}
