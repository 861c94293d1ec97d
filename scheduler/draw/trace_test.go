package draw

import (
	"encoding/json"
	"fmt"
	"math"
	"testing"
)

// event is what of a trace event matters here.
type event struct {
	Phase    string         `json:"ph"`
	Name     string         `json:"name"`
	Category string         `json:"cat"`
	Process  int            `json:"pid"`
	Thread   int            `json:"tid"`
	Time     float64        `json:"ts"`
	Duration float64        `json:"dur"`
	ID       int            `json:"id"`
	Bind     string         `json:"bp"`
	Args     map[string]any `json:"args"`
}

// checkTrace reads a trace as a viewer does: slices of a thread lie apart, and every
// message starts inside one slice and ends inside another.
func checkTrace(text string, charts []Chart) error {
	var trace struct {
		Events []event `json:"traceEvents"`
	}
	if err := json.Unmarshal([]byte(text), &trace); err != nil {
		return err
	}
	// As nanoseconds, which is what Perfetto keeps.
	ns := func(us float64) int64 { return int64(math.Round(us * 1000)) }
	type slice struct{ start, end int64 }
	slices := make(map[int][]slice)
	names := make(map[int]string)
	processOf := make(map[int]int)
	starts, ends := make(map[int]event), make(map[int]event)
	for _, e := range trace.Events {
		if p, ok := processOf[e.Thread]; ok && p != e.Process {
			return fmt.Errorf("thread %d is in the processes %d and %d", e.Thread, p, e.Process)
		}
		processOf[e.Thread] = e.Process
		switch e.Phase {
		case "M":
			if e.Name == "thread_name" {
				names[e.Thread], _ = e.Args["name"].(string)
			}
		case "X":
			s := slice{ns(e.Time), ns(e.Time) + ns(e.Duration)}
			if all := slices[e.Thread]; len(all) > 0 && s.start < all[len(all)-1].end {
				return fmt.Errorf("slice %s starts at %v µs, before the one before it has ended", e.Name, e.Time)
			}
			slices[e.Thread] = append(slices[e.Thread], s)
		case "s":
			starts[e.ID] = e
		case "f":
			if e.Bind != "e" {
				return fmt.Errorf("message %d doesn't end in the slice around it", e.ID)
			}
			ends[e.ID] = e
		default:
			return fmt.Errorf("unknown phase %q", e.Phase)
		}
	}

	inside := func(e event) bool {
		at := ns(e.Time)
		for _, s := range slices[e.Thread] {
			if s.start <= at && at < s.end || at == s.start && at == s.end {
				return true
			}
		}
		return false
	}
	messages, boxes := 0, 0
	for i := range charts {
		for range charts[i].messages() {
			messages++
		}
		for r := range charts[i].Lanes {
			for range charts[i].Lanes[r].boxes() {
				boxes++
			}
		}
	}
	if len(starts) != messages || len(ends) != messages {
		return fmt.Errorf("%d starts and %d ends of messages, want %d", len(starts), len(ends), messages)
	}
	for id, s := range starts {
		e, ok := ends[id]
		if !ok || e.Name != s.Name || e.Category != s.Category || e.Process != s.Process {
			return fmt.Errorf("message %d starts as %+v and ends as %+v", id, s, e)
		}
		if !inside(s) || !inside(e) {
			return fmt.Errorf("message %d from %v µs to %v µs is not bound to slices", id, s.Time, e.Time)
		}
	}
	drawn := 0
	for thread, all := range slices {
		if _, ok := names[thread]; !ok {
			return fmt.Errorf("thread %d has no name", thread)
		}
		drawn += len(all)
	}
	if drawn != boxes {
		return fmt.Errorf("%d slices, want %d", drawn, boxes)
	}
	return nil
}

func TestTraceBindsItsMessages(t *testing.T) {
	everySchedule(t, func(t *testing.T, p plan) {
		for _, charts := range [][]Chart{{p.chart()}, {p.chart(), p.measured()}} {
			if err := checkTrace(drawn(t, Perfetto, charts...), charts); err != nil {
				t.Error(err)
			}
		}
	})
}

// Perfetto takes a thread whose number is its process's for that process's main one.
func TestThreadNumbersAreTheirOwn(t *testing.T) {
	for _, lanes := range []int{1, 9, 10, 1000} {
		charts := []Chart{{Lanes: make([]Lane, lanes)}, {Lanes: make([]Lane, 2)}}
		p := tracer{base: threadBase(charts)}
		seen := map[int]bool{1: true, 2: true}
		for i, c := range charts {
			for r := range c.Lanes {
				n := p.thread(i, r)
				if seen[n] || n%p.base != r {
					t.Fatalf("%d lanes: chart %d, rank %d is thread %d", lanes, i, r, n)
				}
				seen[n] = true
			}
		}
	}
}
