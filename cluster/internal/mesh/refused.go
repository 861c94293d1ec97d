package mesh

import (
	"sync"
	"time"
)

// limitRefusals bounds the lines a second about messages that are refused: what others send must not fill a disk.
const limitRefusals = 10

// refusals bounds the lines of the second that began at since.
type refusals struct {
	mu      sync.Mutex
	since   time.Time
	lines   int
	leftOut int
}

// line reports whether there is room for another line, and how many had none since the last second.
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

// Refuse counts a message that was refused, and logs it unless there were too many.
func (m *Mesh) Refuse(sender string, err error) {
	m.refused.Add(1)
	if ok, leftOut := m.refusals.line(time.Now()); ok {
		m.cfg.Logger.Warn("refused a message", "from", sender, "err", err, "left_out", leftOut)
	}
}

// Refused counts the messages that were refused since the mesh began.
func (m *Mesh) Refused() int64 { return m.refused.Load() }
