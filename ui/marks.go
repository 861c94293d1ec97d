package ui

import (
	"sync"
)

// mark is a line of events.jsonl with a number.
type mark struct {
	N      int64  `json:"n"`
	TimeMS int64  `json:"time_ms"`
	Step   int64  `json:"step"`
	Kind   string `json:"kind"`
	Text   string `json:"text"`
}

// markLog keeps the newest marks of a run.
type markLog struct {
	mu    sync.Mutex
	marks []mark
	n     int64
}

func (l *markLog) add(m mark) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n++
	m.N = l.n
	if len(l.marks) == limitMarks {
		l.marks = append(l.marks[:0], l.marks[limitMarks/4:]...)
	}
	l.marks = append(l.marks, m)
}

// after returns the marks after the one with number n, and the number of the last. A larger n than that comes from an
// earlier start of the server: then all marks are returned.
func (l *markLog) after(n int64) ([]mark, int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n > l.n {
		n = 0
	}
	first := l.n - int64(len(l.marks)) // the number before the first
	from := max(0, n-first)
	return append([]mark(nil), l.marks[from:]...), l.n
}

// last returns the newest mark of some kinds.
func (l *markLog) last(kinds ...string) (m mark, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := len(l.marks) - 1; i >= 0; i-- {
		for _, k := range kinds {
			if l.marks[i].Kind == k {
				return l.marks[i], true
			}
		}
	}
	return m, false
}

// reset drops all marks, because the file was replaced. Numbers continue.
func (l *markLog) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.marks = nil
}
