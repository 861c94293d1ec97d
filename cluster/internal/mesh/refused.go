package mesh

import (
	"sync"
	"time"
)

// limitRefusals bounds the log lines per second about refused messages, so that other processes can't fill a disk.
const limitRefusals = 10

// refusals counts the log lines in the second that began at since.
type refusals struct {
	mu      sync.Mutex
	since   time.Time
	lines   int
	leftOut int
}

// line reports whether another line may be logged, and how many were left out in the last second.
func (r *refusals) line(now time.Time) (ok bool, leftOut int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.Sub(r.since) >= time.Second {
		leftOut = r.leftOut
		r.since, r.lines, r.leftOut = now, 0, 0
	}
	if r.lines == limitRefusals {
		r.leftOut++
		return false, 0
	}
	r.lines++
	return true, leftOut
}

// Refuse counts a refused message, and logs it unless there were too many.
func (m *Mesh) Refuse(sender string, err error) {
	m.refused.Add(1)
	if ok, leftOut := m.refusals.line(time.Now()); ok {
		m.cfg.Logger.Warn("refused a message", "from", sender, "err", err, "left_out", leftOut)
	}
}

// Refused returns how many messages were refused since the mesh was made.
func (m *Mesh) Refused() int64 { return m.refused.Load() }
