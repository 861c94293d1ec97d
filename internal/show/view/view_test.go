package view

import (
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/telemetry"
	"github.com/troupe-ml/troupe/telemetry/event"
)

var update = flag.Bool("update", false, "rewrite testdata")

var epoch = time.Unix(1000, 0)

// example is a view of a run with so many stages in the middle of a step.
func example(o Options, stages int, host func(rank int) string) *View {
	v := New(o)
	v.Begin(troupe.Info{Name: "small", Steps: 1000, Stages: stages, Chunks: stages, Microbatches: 8, BubblePct: 20})
	for n := 1; n <= 200; n++ {
		loss, norm, lr, speed, ms, bubble := 1+4*math.Exp(-float64(n)/40), 0.5, 1e-3, 50000.0, 40.0, 21.5
		e := troupe.StepEvent{Record: telemetry.Record{Step: n, Loss: &loss, GradNorm: &norm, LR: &lr, TokensPerS: &speed, StepMS: &ms,
			BubblePct: &bubble, PeakMemBytes: 1 << 26}, IdealBubblePct: 20}
		if n%50 == 0 {
			val := loss + 0.1
			e.ValLoss = &val
		}
		v.Event(e, epoch)
	}
	at := epoch.Add(time.Second)
	s := event.Status{Time: at, Actors: []event.Snapshot{{Actor: "scheduler", Rank: -1, Doing: event.Idle, Wait: event.WaitStages,
		From: "stage 0", Need: stages, Since: at.Add(-40 * time.Millisecond)}}}
	var a troupe.Actions
	for r := range stages {
		one := event.Snapshot{Actor: fmt.Sprintf("stage %d", r), Rank: r, Step: 201, Since: at.Add(-20 * time.Millisecond)}
		if host != nil {
			one.Host = host(r)
		}
		if r%2 == 0 {
			one.Doing, one.Action = event.Running, scheduler.Action{Chunk: int32(r), Type: scheduler.B, Microbatch: 3}
		} else {
			one.Doing, one.Wait, one.Needs, one.From = event.Waiting, event.WaitGradient,
				scheduler.Action{Chunk: int32(r + 1), Type: scheduler.B, Microbatch: 4}, fmt.Sprintf("stage %d", r+1)
			one.Since = at.Add(-1200 * time.Millisecond)
		}
		s.Actors = append(s.Actors, one)
		var times []troupe.ActionTime
		for m := range 4 {
			start := at.Add(time.Duration(4*r+14*m-70) * time.Millisecond)
			typ := scheduler.F
			if m%2 == 1 {
				typ = scheduler.B
			}
			times = append(times, troupe.ActionTime{Action: scheduler.Action{Chunk: int32(r), Type: typ, Microbatch: int32(m)}, Start: start,
				End: start.Add(10 * time.Millisecond)})
		}
		a.Ranks = append(a.Ranks, times)
	}
	v.Observe(s, a)
	v.Event(troupe.CheckpointEvent{Step: 200, Dir: "runs/small/checkpoints/step-00000200"}, epoch)
	return v
}

// TestFrames: testdata has what is seen.
func TestFrames(t *testing.T) {
	two := func(r int) string { return fmt.Sprintf("worker-%d", r/2) }
	for _, c := range []struct {
		name          string
		o             Options
		stages        int
		host          func(int) string
		width, height int
		change        func(*View)
	}{
		{"unicode_80x20", Options{Unicode: true}, 4, nil, 80, 20, nil},
		{"ascii_80x20", Options{}, 4, nil, 80, 20, nil},
		{"colour_80x20", Options{Unicode: true, Colour: true}, 4, nil, 80, 20, nil},
		{"hosts_60x17", Options{Unicode: true}, 4, two, 60, 17, nil},
		{"many_80x20", Options{}, 64, nil, 80, 20, func(v *View) { v.Scroll(10) }},
		{"least_40x9", Options{}, 2, nil, 40, 9, nil},
		{"stall_80x20", Options{}, 2, nil, 80, 20, func(v *View) {
			v.Event(troupe.StallEvent{Quiet: time.Minute, Status: v.status}, epoch)
			v.Event(troupe.WarningEvent{Text: "a\x1b[2Jb\nc"}, epoch)
			v.Event(troupe.PauseEvent{Step: 200, Paused: true}, epoch)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := example(c.o, c.stages, c.host)
			if c.change != nil {
				c.change(v)
			}
			got := strings.ReplaceAll(strings.Join(v.Draw(c.width, c.height), "\n"), "\x1b", "ESC") + "\n"
			file := filepath.Join("testdata", c.name+".txt")
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("%s (go test -update rewrites it)\nwant\n%s\ngot\n%s", file, want, got)
			}
		})
	}
}

// A frame fits whatever it is drawn into, and nothing in it steers the terminal.
func TestFramesFit(t *testing.T) {
	colour := regexp.MustCompile("\x1b\\[[0-9;]*m")
	rapid.Check(t, func(t *rapid.T) {
		o := Options{Unicode: rapid.Bool().Draw(t, "unicode"), Colour: rapid.Bool().Draw(t, "colour")}
		v := example(o, rapid.IntRange(1, 70).Draw(t, "stages"), func(r int) string {
			return rapid.SampledFrom([]string{"", "a", "b"}).Draw(t,
				"host")
		})
		v.Event(troupe.WarningEvent{Text: rapid.String().Draw(t, "warning")}, epoch)
		v.Scroll(rapid.IntRange(-3, 100).Draw(t, "scroll"))
		if rapid.Bool().Draw(t, "stall") {
			v.Event(troupe.StallEvent{Status: v.status}, epoch)
		}
		width, height := rapid.IntRange(0, 200).Draw(t, "width"), rapid.IntRange(0, 60).Draw(t, "height")
		lines := v.Draw(width, height)
		if len(lines) > height {
			t.Fatalf("%d lines in %d", len(lines), height)
		}
		for _, line := range lines {
			plain := colour.ReplaceAllString(line, "")
			if n := utf8.RuneCountInString(plain); n > width {
				t.Fatalf("%d columns in %d: %q", n, width, plain)
			}
			if strings.ContainsAny(plain, "\x1b\n\r") {
				t.Fatalf("%q steers the terminal", plain)
			}
		}
	})
}

// A curve keeps what it is told in bounds, and its ends.
func TestSeriesThinsOut(t *testing.T) {
	var s series
	for n := range 1_000_000 {
		s.add(n, float64(n))
	}
	s.add(7, math.NaN())
	if len(s.points) > maxPoints || len(s.points) < maxPoints/2 {
		t.Fatalf("%d points", len(s.points))
	}
	sum, n := 0.0, 0
	for _, p := range s.points {
		if math.Abs(p.value-p.step) > 1e-3 {
			t.Fatalf("%v", p)
		}
		sum += p.value * float64(p.n)
		n += p.n
	}
	if n != 1_000_000 || math.Abs(sum/float64(n)-499_999.5) > 1e-3 {
		t.Errorf("%d values with a mean of %v", n, sum/float64(n))
	}
}

// What was seen of a run that went on from a checkpoint does not stay behind.
func TestRestart(t *testing.T) {
	v := example(Options{}, 2, nil)
	v.Event(troupe.StallEvent{Status: v.status}, epoch)
	v.Event(troupe.RestartEvent{Err: errors.New("worker-0 is lost"), Restart: 1, Most: 3}, epoch)
	val := 5.0
	v.Event(troupe.StepEvent{Record: telemetry.Record{Step: 0, ValLoss: &val}}, epoch)
	text := strings.Join(v.Draw(80, 20), "\n")
	if strings.Contains(text, "stall:") || !strings.Contains(text, "   0/1000") || !strings.Contains(text, "warning: worker-0 is lost") {
		t.Error(text)
	}
}
