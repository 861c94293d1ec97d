package actors

import (
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestWatchdog: a stall is told of once, after the time given; what moves begins a new
// one, and a pause is none.
func TestWatchdog(t *testing.T) {
	const after = 30 * time.Second
	// What happens, each so long after the one before.
	type happens struct {
		in   time.Duration
		what string
	}
	for _, tt := range []struct {
		name   string
		script []happens
		want   []time.Duration // when it tells, from the start
	}{
		{"nothing moves", []happens{{time.Hour, "end"}}, []time.Duration{after}},
		{"it ends before", []happens{{after - time.Second, "end"}}, nil},
		{"it moves just before", []happens{{29 * time.Second, "move"}, {time.Hour, "end"}}, []time.Duration{59 * time.Second}},
		{"it keeps moving", []happens{{20 * time.Second, "move"}, {20 * time.Second, "move"}, {20 * time.Second, "move"},
			{20 * time.Second, "end"}}, nil},
		{"it stalls twice", []happens{{time.Minute, "move"}, {time.Minute, "end"}}, []time.Duration{after, 90 * time.Second}},
		{"a pause", []happens{{time.Second, "pause"}, {time.Hour, "end"}}, nil},
		{"it stalls after a pause", []happens{{time.Second, "pause"}, {time.Minute, "resume"}, {time.Minute, "end"}},
			[]time.Duration{91 * time.Second}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var moves atomic.Int64
				var paused atomic.Bool
				var told []time.Duration
				began, quit, ended := time.Now(), make(chan struct{}), make(chan struct{})
				w := watchdog{after: after, moves: moves.Load, paused: paused.Load, tell: func(quiet time.Duration) {
					if quiet < after || quiet > after+watchEvery {
						t.Errorf("it tells of a quiet of %v", quiet)
					}
					told = append(told, time.Since(began).Truncate(time.Second))
				}}
				go func() {
					defer close(ended)
					w.run(quit)
				}()
				time.Sleep(watchEvery / 2) // so that what happens comes between two looks
				for _, h := range tt.script {
					time.Sleep(h.in)
					switch h.what {
					case "move":
						moves.Add(1)
					case "pause":
						paused.Store(true)
					case "resume":
						paused.Store(false)
					}
				}
				close(quit)
				<-ended
				if !slices.Equal(told, tt.want) {
					t.Errorf("it tells at %v, want %v", told, tt.want)
				}
			})
		})
	}
}

// TestNoWatchdog: without a time it watches nothing.
func TestNoWatchdog(t *testing.T) {
	watchdog{}.run(nil) // returns
}
