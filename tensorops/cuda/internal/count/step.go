package count

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Line is what the launches of a kernel in a step move and compute.
type Line struct {
	Name          string
	Group         Group
	Launches      int
	Graphed       int // of these, as part of a graph
	Read, Written int64
	FLOPs         float64
	costs         []moved
}

// moved is what a launch moves and computes.
type moved struct{ bytes, flops float64 }

// Step is what the device is given in a step.
type Step struct {
	Lines       map[string]*Line
	Graphs      int // launches of graphs
	Turnarounds int // how often it had nothing left to do before it was given more
	ToDevice    int64
	ToHost      int64
}

// Steps reads the log of a run.
type Steps struct {
	Log
	All      []*Step // the last may be in progress
	updating bool
}

// Take counts what some words of the log say. A step ends with its update.
func (s *Steps) Take(words []uint64) error {
	return s.Read(words, func(e *Event) error {
		update := e.What == Kernel && (e.Name == "adamw" || e.Name == "sgd")
		if len(s.All) == 0 || s.updating && !update && !e.table() {
			s.All = append(s.All, &Step{Lines: make(map[string]*Line)})
			s.updating = false
		}
		s.updating = s.updating || update
		return s.All[len(s.All)-1].add(e)
	})
}

// table reports whether an event brings a kernel's table to the device.
func (e *Event) table() bool { return e.What == In && e.Bytes <= 1<<16 }

func (s *Step) add(e *Event) error {
	name := e.Name
	switch e.What {
	case Graph:
		s.Graphs++
		return nil
	case Idle:
		s.Turnarounds++
		return nil
	case Kernel:
	case Product:
		name = "cuBLASLt"
	case In:
		name = "copy in"
		s.ToDevice += int64(e.Bytes)
	case Out:
		name = "copy out"
		s.ToHost += int64(e.Bytes)
	case Within:
		name = "copy within"
	case Set:
		name = "set"
	}
	c, err := Of(e)
	if err != nil {
		return err
	}
	l := s.Lines[name]
	if l == nil {
		l = &Line{Name: name, Group: c.Group}
		s.Lines[name] = l
	}
	read, written := c.Bytes()
	l.Launches++
	if e.InGraph {
		l.Graphed++
	}
	l.Read += read
	l.Written += written
	l.FLOPs += c.FLOPs
	l.costs = append(l.costs, moved{float64(read + written), c.FLOPs})
	return nil
}

// Sum adds up the lines of some groups.
func (s *Step) Sum(of func(Group) bool) (sum Line) {
	for _, l := range s.Lines {
		if of(l.Group) {
			sum.Launches += l.Launches
			sum.Graphed += l.Graphed
			sum.Read += l.Read
			sum.Written += l.Written
			sum.FLOPs += l.FLOPs
			sum.costs = append(sum.costs, l.costs...)
		}
	}
	return sum
}

// Bytes are those that the lines of some groups read and write.
func (l *Line) Bytes() int64 { return l.Read + l.Written }

// Device is what estimates are made for.
type Device struct {
	FLOPs, BytesPerS float64
	Launch           time.Duration // from one kernel's end to the next one's beginning
	Turnaround       time.Duration // how long it does nothing until the host has heard of it and given it more
}

// Time is an estimate of what the launches of a line take: each as long as its bytes or its operations at the
// least, and the way from one to the next.
func (l *Line) Time(d Device) (t time.Duration) {
	for _, c := range l.costs {
		t += time.Duration(float64(time.Second)*max(c.bytes/d.BytesPerS, c.flops/d.FLOPs)) + d.Launch
	}
	return t
}

func everything(Group) bool { return true }

// String is the step as a table, the largest lines first, with estimates of times on a device.
func (s *Step) String(d Device) string {
	var b strings.Builder
	row := func(name, group string, l *Line) {
		fmt.Fprintf(&b, "%-28s %-21s %8d %8d %10.1f %10.1f %10.1f %9.2f\n", name, group, l.Launches, l.Graphed, float64(l.Read)/1e6,
			float64(l.Written)/1e6, l.FLOPs/1e9, float64(l.Time(d))/1e6)
	}
	fmt.Fprintf(&b, "%-28s %-21s %8s %8s %10s %10s %10s %9s\n", "kernel", "part", "launches", "in graph", "MB read", "MB written", "GFLOP",
		"est. ms")
	lines := slices.SortedFunc(maps.Values(s.Lines), func(a, b *Line) int {
		return cmp.Or(cmp.Compare(b.Time(d), a.Time(d)), cmp.Compare(a.Name, b.Name))
	})
	groups := make(map[Group]bool)
	for _, l := range lines {
		row(l.Name, string(l.Group), l)
		groups[l.Group] = true
	}
	b.WriteByte('\n')
	for _, g := range slices.Sorted(maps.Keys(groups)) {
		sum := s.Sum(func(other Group) bool { return other == g })
		row("sum", string(g), &sum)
	}
	element, all := s.Sum(Group.ElementWise), s.Sum(everything)
	row("sum", "element-wise", &element)
	row("sum", "all", &all)
	return b.String()
}
