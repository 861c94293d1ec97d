package transport

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// boundedLog writes LimitLogLines per second and counts the rest, so that other processes can't fill a
// disk.
type boundedLog struct {
	logger *slog.Logger

	mu      sync.Mutex
	closed  bool
	lines   int         // in this second
	leftOut int         // in this second
	timer   *time.Timer // runs while there were lines; ends with close
}

func (b *boundedLog) log(level slog.Level, text string, attrs ...slog.Attr) {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return
	}
	if b.lines == LimitLogLines {
		b.leftOut++
		b.mu.Unlock()
		return
	}
	b.lines++
	if b.timer == nil {
		b.timer = time.AfterFunc(time.Second, b.nextSecond)
	}
	b.mu.Unlock()
	b.logger.LogAttrs(context.Background(), level, text, attrs...)
}

func (b *boundedLog) nextSecond() {
	b.mu.Lock()
	leftOut := b.leftOut
	b.lines, b.leftOut, b.timer = 0, 0, nil
	b.mu.Unlock()
	if leftOut > 0 {
		b.logger.Warn("transport log lines left out", "lines", leftOut, "limit_per_s", LimitLogLines)
	}
}

func (b *boundedLog) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	if b.timer != nil {
		b.timer.Stop()
	}
}
