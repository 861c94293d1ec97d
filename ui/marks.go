package ui

import (
	"sync"
)

// mark is something that happened to a run, as events.jsonl has it, with a number of its own.
type mark struct {
	N      int64  `json:"n"`
	TimeMS int64  `json:"time_ms"`
	Step   int64  `json:"step"`
	Kind   string `json:"kind"`
	Text   string `json:"text"`
}

// markLog keeps the newest marks of a run. Readers ask for those behind the last that they have.
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

// after gives the marks behind one, and the number of the last. A number that is not reached is of
// another life of the server.
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

// last is the newest mark of some kinds.
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

// reset forgets all, where the file was replaced. Numbers go on.
func (l *markLog) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.marks = nil
}
