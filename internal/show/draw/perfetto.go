package draw

import (
	"cmp"
	"container/heap"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/troupe-ml/troupe/scheduler"
)

// Perfetto writes a trace in Perfetto's protobuf format, for ui.perfetto.dev and trace_processor. Each chart and each
// host is a process. A lane is a track, an action or a pair is a slice on it, and a message is a flow between two
// slices. Waits and, in a table that is cut there, exchanges of tokens have tracks of their own below that of their rank.
// Counters show the outputs that each rank holds for backward passes, the credits in use on each edge, and
// the number of idle ranks. A unit of a simulation becomes a millisecond, and times are rounded to nanoseconds.
//
// Slices of a track must be nested or disjoint. So a slice that overlaps the next one without being a pair ends where
// the next one starts.
//
// Perfetto also reads JSON, the format of chrome://tracing, which can express less: messages are bound to slices by
// times in microseconds, whose fractions readers round differently; a slice can have only one flow; and a counter
// belongs to a process, not to a rank.
//
// It writes events in the order of their times, as it makes them. Messages need memory for one number per action.
func Perfetto(w io.Writer, charts ...Chart) error {
	if err := checkAll(charts); err != nil {
		return err
	}
	p := tracer{out: packets{out: buffered(w)}}
	for i := range charts {
		if err := p.describe(&charts[i]); err != nil {
			return err
		}
	}
	if err := p.play(); err != nil {
		return err
	}
	return p.out.out.Flush()
}

// tracer writes a trace.
type tracer struct {
	out       packets
	tracks    uint64 // number of tracks
	processes int64
	flows     uint64
	feeds     feeds
}

// traced is the state of writing a chart.
type traced struct {
	c           *Chart
	forwardOnly bool
	step, idle  uint64 // tracks of the chart itself
	lanes       []tracedLane
	edges       []tracedEdge
	working     int // lanes with an open slice
	makespan    int64
}

type tracedLane struct {
	track, held uint64
	holds       int64  // outputs held now
	ends        []flow // ends of messages, sorted by action
	next        int    // index in ends
}

// flow is the end of a message at an action of a lane.
type flow struct {
	at    int32
	edge  int32
	takes bool   // the message arrives here; false: it is sent here
	id    uint64 // 0: not drawn
}

// tracedEdge counts the credits in use between two chunks.
type tracedEdge struct {
	track uint64
	used  int64
}

// track writes the description of a track and returns its number.
func (p *tracer) track(parent uint64, name string, order int, more ...field) (uint64, error) {
	p.tracks++
	fields := []field{integer(descriptorUUID, p.tracks), text(descriptorName, name), integer(descriptorRank, uint64(order)),
		integer(descriptorOrdering, orderedByRank)}
	if parent != 0 {
		fields = append(fields, integer(descriptorParent, parent))
	}
	return p.tracks, p.out.descriptor(append(fields, more...))
}

func (p *tracer) process(name string) (uint64, error) {
	p.processes++
	return p.track(0, name, int(p.processes), nested(descriptorProcess, integer(processPID, uint64(p.processes)), text(processName, name)))
}

// describe writes the descriptions of a chart's tracks and prepares its events.
func (p *tracer) describe(c *Chart) error {
	title := c.Title
	if c.Unit == Units {
		title += " (1 ms is 1 unit)"
	}
	own, err := p.process(title)
	if err != nil {
		return err
	}
	t := &traced{c: c, forwardOnly: c.forwardOnly(), lanes: make([]tracedLane, len(c.Lanes)), makespan: nanoseconds(c.makespan())}
	if t.step, err = p.track(own, "step", 0); err != nil {
		return err
	}
	if t.idle, err = p.track(own, "idle ranks", 1, nested(descriptorCounter, integer(counterUnit, unitCount))); err != nil {
		return err
	}
	hosts := map[string]uint64{"": own}
	digits := len(fmt.Sprint(len(c.Lanes) - 1))
	for i := range c.Lanes {
		l := &c.Lanes[i]
		parent, known := hosts[l.Host]
		if !known {
			if parent, err = p.process(title + ", " + l.Host); err != nil {
				return err
			}
			hosts[l.Host] = parent
		}
		if err := p.lane(t, i, parent, digits); err != nil {
			return err
		}
	}
	if err := p.connect(t, own); err != nil {
		return err
	}
	p.feeds = append(p.feeds, &feed{of: t, lane: -1})
	return nil
}

func (p *tracer) lane(t *traced, i int, parent uint64, digits int) (err error) {
	l, of := &t.c.Lanes[i], &t.lanes[i]
	if of.track, err = p.track(parent, padded(l.Name, digits), 2+i); err != nil {
		return err
	}
	p.feeds = append(p.feeds, &feed{of: t, lane: i})
	if err := p.beside(t, i, l.waits(), 0); err != nil {
		return err
	}
	if of.held, err = p.track(of.track, "outputs held", 1, nested(descriptorCounter, integer(counterUnit, unitCount))); err != nil {
		return err
	}
	return p.beside(t, i, l.onLink(), 2)
}

// beside makes the track of slices below a lane's, if there are any.
func (p *tracer) beside(t *traced, lane int, b *beside, place int) (err error) {
	if b.n == 0 {
		return nil
	}
	b.track, err = p.track(t.lanes[lane].track, b.name, place)
	p.feeds = append(p.feeds, &feed{of: t, lane: lane, beside: b})
	return err
}

// padded pads the first number of a name with zeros, because Perfetto sorts the tracks of a process by name.
func padded(name string, digits int) string {
	from := strings.IndexFunc(name, isDigit)
	if from < 0 {
		return name
	}
	to := from
	for to < len(name) && isDigit(rune(name[to])) {
		to++
	}
	return name[:from] + strings.Repeat("0", max(0, digits-(to-from))) + name[from:]
}

func isDigit(r rune) bool { return r >= '0' && r <= '9' }

// connect finds the messages of a chart and creates the tracks of its edges.
func (p *tracer) connect(t *traced, own uint64) error {
	type key struct {
		kind     scheduler.EdgeKind
		from, to int32
	}
	edges := make(map[key]int32)
	var group uint64
	for m := range t.c.messages() {
		from, to := &t.c.Lanes[m.from.lane], &t.c.Lanes[m.to.lane]
		k := key{m.kind, from.Actions[m.from.at].Chunk, to.Actions[m.to.at].Chunk}
		edge, known := edges[k]
		if !known {
			if group == 0 {
				var err error
				if group, err = p.track(own, "credits in use", 2+len(t.c.Lanes)); err != nil {
					return err
				}
			}
			edge = int32(len(t.edges))
			edges[k] = edge
			name := fmt.Sprintf("%s from chunk %d to chunk %d", m.name(), k.from, k.to)
			if n := t.c.credits(m, k.from, k.to); n > 0 {
				name += fmt.Sprintf(", of %d", n)
			}
			track, err := p.track(group, name, int(edge), nested(descriptorCounter, integer(counterUnit, unitCount)))
			if err != nil {
				return err
			}
			t.edges = append(t.edges, tracedEdge{track: track})
		}
		// The clocks of two hosts may differ so much that a message arrives before it is sent. Its arrow would point
		// in the wrong direction.
		var id uint64
		if begun, _ := from.slice(from.box(m.from.at)); begun < nanoseconds(to.box(m.to.at).start) {
			p.flows++
			id = p.flows
		}
		of := &t.lanes[m.from.lane]
		of.ends = append(of.ends, flow{int32(m.from.at), edge, false, id})
		of = &t.lanes[m.to.lane]
		of.ends = append(of.ends, flow{int32(m.to.at), edge, true, id})
	}
	for i := range t.lanes {
		slices.SortFunc(t.lanes[i].ends, func(a, b flow) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.edge, b.edge)) })
	}
	return nil
}

// credits returns the credits of a message's edge; 0: not known.
func (c *Chart) credits(m message, from, to int32) int {
	all := c.Credits
	if all == nil {
		return 0
	}
	if !m.skip {
		if row := [2][]int{all.Forward, all.Backward}[m.kind]; int(from) < len(row) {
			return row[from]
		}
		return 0
	}
	for i, s := range c.Skips {
		if row := [2][]int{all.SkipForward, all.SkipBackward}[m.kind]; i < len(row) &&
			s == (scheduler.Skip{From: int(min(from, to)), To: int(max(from, to))}) {
			return row[i]
		}
	}
	return 0
}

// slice returns the start and the end of a box in nanoseconds, without its overlap with the next one.
func (l *Lane) slice(x box) (start, end int64) {
	start, end = nanoseconds(x.start), nanoseconds(x.end)
	if next := x.at + len(x.actions); next < len(l.Start) {
		end = max(start, min(end, nanoseconds(l.Start[next])))
	}
	return start, end
}

// nanoseconds converts a time, with a unit as a millisecond.
func nanoseconds(t float64) int64 { return int64(math.Round(t * 1e6)) }

// feed yields the starts and ends of a track's slices in order.
type feed struct {
	of   *traced
	lane int  // −1: the track of the chart, with a slice for the step
	next int  // index of the next slice
	open bool // it has started

	beside *beside // yields these slices, not the lane's actions
}

// beside are slices on a track below a lane's.
type beside struct {
	name  string
	track uint64
	n     int
	of    func(i int) (start, end float64, name, category string)
}

// waits are the known idle times of a lane.
func (l *Lane) waits() *beside {
	return &beside{name: "waits", n: len(l.Gaps), of: func(i int) (start, end float64, name, category string) {
		return l.Gaps[i].Start, l.Gaps[i].End, l.Gaps[i].Cause, "wait"
	}}
}

// onLink are the exchanges of tokens of a lane.
func (l *Lane) onLink() *beside {
	return &beside{name: "tokens on the link", n: len(l.Exchanges), of: func(i int) (start, end float64, name, category string) {
		x := &l.Exchanges[i]
		return x.Start, x.End, string(appendAction(nil, x.Action)), typeName(x.Action.Type)
	}}
}

// bounds returns the start and the end of the next slice; false: there is none.
func (f *feed) bounds() (start, end int64, ok bool) {
	switch {
	case f.lane < 0:
		return 0, f.of.makespan, f.next == 0
	case f.beside != nil:
		if f.next == f.beside.n {
			return 0, 0, false
		}
		at := func(i int) (start, end int64) {
			from, to, _, _ := f.beside.of(i)
			return nanoseconds(from), nanoseconds(to)
		}
		if start, end = at(f.next); f.next+1 < f.beside.n {
			next, _ := at(f.next + 1)
			end = max(start, min(end, next))
		}
		return start, end, true
	}
	l := &f.of.c.Lanes[f.lane]
	if f.next == len(l.Actions) {
		return 0, 0, false
	}
	start, end = l.slice(l.box(f.next))
	return start, end, true
}

// at returns the time of its next event.
func (f *feed) at() int64 {
	start, end, _ := f.bounds()
	if f.open {
		return end
	}
	return start
}

// feeds is a heap sorted by the times of the next events. At equal times ends come before starts; a slice of no
// duration keeps its order within its feed.
type feeds []*feed

func (f feeds) Len() int { return len(f) }
func (f feeds) Less(i, j int) bool {
	a, b := f[i].at(), f[j].at()
	return a < b || a == b && f[i].open && !f[j].open
}
func (f feeds) Swap(i, j int) { f[i], f[j] = f[j], f[i] }
func (f *feeds) Push(x any)   { *f = append(*f, x.(*feed)) }
func (f *feeds) Pop() any {
	last := (*f)[len(*f)-1]
	*f = (*f)[:len(*f)-1]
	return last
}

// play writes all events in the order of their times.
func (p *tracer) play() error {
	full := p.feeds
	p.feeds = p.feeds[:0]
	for _, f := range full {
		if _, _, ok := f.bounds(); ok {
			p.feeds = append(p.feeds, f)
		}
	}
	heap.Init(&p.feeds)
	for len(p.feeds) > 0 {
		f := p.feeds[0]
		if err := p.event(f); err != nil {
			return err
		}
		if _, _, ok := f.bounds(); ok {
			heap.Fix(&p.feeds, 0)
		} else {
			heap.Pop(&p.feeds)
		}
	}
	return nil
}

// event writes the next event of a track and advances.
func (p *tracer) event(f *feed) error {
	start, end, _ := f.bounds()
	switch {
	case f.lane < 0:
		return p.stepEvent(f, start, end)
	case f.beside != nil:
		if !f.open {
			f.open = true
			_, _, name, category := f.beside.of(f.next)
			return p.out.event(start, sliceBegin, f.beside.track, text(eventName, name), text(eventCategory, category))
		}
		f.open = false
		f.next++
		return p.out.event(end, sliceEnd, f.beside.track)
	}
	return p.actionEvent(f, start, end)
}

func (p *tracer) stepEvent(f *feed, start, end int64) error {
	t := f.of
	if !f.open {
		f.open = true
		if err := p.out.event(start, sliceBegin, t.step, text(eventName, "step"), text(eventCategory, "step"),
			nested(eventAnnotation, text(annotationName, "bubble_pct"), double(annotationDouble, 100*t.c.Figures().BubbleFraction))); err != nil {
			return err
		}
		return p.idle(t, start)
	}
	f.open = false
	f.next++
	return p.out.event(end, sliceEnd, t.step)
}

// idle writes the number of idle ranks from a time.
func (p *tracer) idle(t *traced, at int64) error {
	return p.out.event(at, counter, t.idle, integer(eventCounter, uint64(len(t.lanes)-t.working)))
}

func (p *tracer) actionEvent(f *feed, start, end int64) error {
	t, l, of := f.of, &f.of.c.Lanes[f.lane], &f.of.lanes[f.lane]
	x := l.box(f.next)
	if f.open {
		f.open = false
		f.next += len(x.actions)
		t.working--
		if err := p.out.event(end, sliceEnd, of.track); err != nil {
			return err
		}
		if err := p.idle(t, end); err != nil {
			return err
		}
		if l.lastPart(x.at) > x.at { // what it holds is released at the end of its last part
			return nil
		}
		return p.held(of, end, released(x.actions, t.forwardOnly))
	}
	f.open = true
	t.working++
	fields := p.describeBox(t.c, x)
	from := of.next
	for of.next < len(of.ends) && int(of.ends[of.next].at) < x.at+len(x.actions) {
		if end := of.ends[of.next]; end.id != 0 && end.takes {
			fields = append(fields, fixed(eventFlowEnd, end.id))
		} else if end.id != 0 {
			fields = append(fields, fixed(eventFlow, end.id))
		}
		of.next++
	}
	if err := p.out.event(start, sliceBegin, of.track, fields...); err != nil {
		return err
	}
	if err := p.idle(t, start); err != nil {
		return err
	}
	if err := p.held(of, start, made(x.actions)); err != nil {
		return err
	}
	for _, end := range of.ends[from:of.next] {
		e := &t.edges[end.edge]
		if end.takes {
			e.used--
		} else {
			e.used++
		}
		// It is below 0 if a message arrives before it is sent, because clocks differ.
		if err := p.out.event(start, counter, e.track, integer(eventCounter, uint64(max(0, e.used)))); err != nil {
			return err
		}
	}
	return nil
}

// held writes the number of outputs that a rank holds, if it has changed.
func (p *tracer) held(of *tracedLane, at, change int64) error {
	if change == 0 {
		return nil
	}
	of.holds += change
	// It is below 0 if the forward of a backward is missing, in an interrupted step.
	return p.out.event(at, counter, of.held, integer(eventCounter, uint64(max(0, of.holds))))
}

// made counts the outputs that actions make; released counts the outputs that they release, as a negative number.
func made(actions []scheduler.Action) (n int64) {
	for _, a := range actions {
		if a.Type == scheduler.F && a.Part <= 1 {
			n++
		}
	}
	return n
}

func released(actions []scheduler.Action, forwardOnly bool) (n int64) {
	for _, a := range actions {
		switch {
		case a.Type == scheduler.B, a.Type == scheduler.W, a.Type == scheduler.F && forwardOnly:
			n--
		}
	}
	return n
}

// describeBox returns the name, category and arguments of a slice.
func (p *tracer) describeBox(c *Chart, x box) []field {
	fields := []field{text(eventName, string(appendLabel(nil, x.actions)))}
	prefixes := [2]string{}
	if len(x.actions) == 2 {
		prefixes = [2]string{"forward_", "backward_"}
	}
	for i, a := range x.actions {
		fields = append(fields, text(eventCategory, typeName(a.Type)),
			nested(eventAnnotation, text(annotationName, prefixes[i]+"type"), text(annotationString, a.Type.String())),
			nested(eventAnnotation, text(annotationName, prefixes[i]+"chunk"), integer(annotationInt, uint64(a.Chunk))),
			nested(eventAnnotation, text(annotationName, prefixes[i]+"local_chunk"), integer(annotationInt, uint64(c.localChunk(a.Chunk)))),
			nested(eventAnnotation, text(annotationName, prefixes[i]+"microbatch"), integer(annotationInt, uint64(a.Microbatch))))
	}
	return fields
}

// name returns the name of a message in Perfetto.
func (m message) name() string {
	name := "activation"
	if m.kind == scheduler.BackwardEdge {
		name = "gradient"
	}
	if m.skip {
		return "skip " + name
	}
	return name
}
