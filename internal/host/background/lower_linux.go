package background

import "golang.org/x/sys/unix"

// lowest is the lowest priority, of which a thread gets 15 parts where one of the usual priority gets 1,024.
const lowest = 19

// lower lowers the priority of the calling thread.
func lower() { _ = unix.Setpriority(unix.PRIO_PROCESS, 0, lowest) }
