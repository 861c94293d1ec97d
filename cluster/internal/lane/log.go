package lane

import (
	"log/slog"
	"sync"
	"time"
)

// logEvery is the least time between two log lines with the same message, so that peers can't fill a disk.
const logEvery = time.Second

// ratedLog logs each message at a bounded rate, with how many it left out.
type ratedLog struct {
	logger *slog.Logger
	mu     sync.Mutex
	last   map[string]*ratedReason // the reasons are constants of this package
}

type ratedReason struct {
	at      time.Time
	leftOut int
}

func newRatedLog(logger *slog.Logger) *ratedLog {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	return &ratedLog{logger: logger, last: make(map[string]*ratedReason)}
}

func (l *ratedLog) warn(reason string, args ...any) {
	l.mu.Lock()
	r := l.last[reason]
	if r == nil {
		r = &ratedReason{}
		l.last[reason] = r
	}
	now := time.Now()
	if !r.at.IsZero() && now.Sub(r.at) < logEvery {
		r.leftOut++
		l.mu.Unlock()
		return
	}
	leftOut := r.leftOut
	r.at, r.leftOut = now, 0
	l.mu.Unlock()
	if leftOut > 0 {
		args = append(args, "left_out", leftOut)
	}
	l.logger.Warn(reason, args...)
}
