package draw

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"

	"github.com/troupe-ml/troupe/scheduler"
)

// Perfetto writes trace events as JSON, for ui.perfetto.dev and chrome://tracing. A
// chart is a process, a lane a thread, an action (or a pair) a slice, and a message a
// flow. A unit of a simulation is shown as a millisecond, and times are rounded to
// nanoseconds.
//
// A trace viewer wants the slices of a thread to be nested or apart. So one that
// overlaps the next, which no pair does, ends where the next starts.
//
// The events go out as they are made. Messages take memory for a number per action.
func Perfetto(w io.Writer, charts ...Chart) error {
	if err := checkAll(charts); err != nil {
		return err
	}
	p := tracer{out: buffered(w), base: threadBase(charts)}
	fmt.Fprint(p.out, `{"displayTimeUnit":"ms","traceEvents":[`)
	for i := range charts {
		p.names(&charts[i], i)
	}
	for i := range charts {
		if err := p.chart(&charts[i], i); err != nil {
			return err
		}
	}
	fmt.Fprint(p.out, "\n]}\n")
	return p.out.Flush()
}

// threadBase is a power of ten that leaves the rank readable in a thread's number, and
// keeps the numbers of threads apart from each other and from those of processes.
func threadBase(charts []Chart) int {
	most := len(charts)
	for i := range charts {
		most = max(most, len(charts[i].Lanes))
	}
	base := 10
	for base <= most {
		base *= 10
	}
	return base
}

type tracer struct {
	out    *bufio.Writer
	base   int
	events int
	flows  int64
}

func (p *tracer) thread(chart, lane int) int { return p.base*(chart+1) + lane }

// begin starts an event in the writer's own buffer.
func (p *tracer) begin() []byte {
	b := p.out.AvailableBuffer()
	if p.events > 0 {
		b = append(b, ',')
	}
	p.events++
	return append(b, "\n{"...)
}

// names says what the processes and threads are called and how they are sorted.
func (p *tracer) names(c *Chart, chart int) {
	name := c.Title
	if c.Unit == Units {
		name += " (1 ms is 1 unit)"
	}
	p.meta("process_name", "name", name, chart, p.thread(chart, 0))
	p.meta("process_sort_index", "sort_index", chart, chart, p.thread(chart, 0))
	for lane := range c.Lanes {
		p.meta("thread_name", "name", c.Lanes[lane].Name, chart, p.thread(chart, lane))
		p.meta("thread_sort_index", "sort_index", lane, chart, p.thread(chart, lane))
	}
}

func (p *tracer) meta(event, key string, value any, chart, thread int) {
	text, err := json.Marshal(value)
	if err != nil { // neither a string nor an int
		panic(err)
	}
	b := p.begin()
	fmt.Fprintf(p.out, `%s"ph":"M","name":%q,"pid":%d,"tid":%d,"args":{%q:%s}}`, b, event, chart+1, thread, key, text)
}

func (p *tracer) chart(c *Chart, chart int) error {
	for lane := range c.Lanes {
		l := &c.Lanes[lane]
		for x := range l.boxes() {
			if _, err := p.out.Write(p.slice(c, l, x, chart, lane)); err != nil {
				return err
			}
		}
	}
	for m := range c.messages() {
		p.flows++
		from, to := &c.Lanes[m.from.lane], &c.Lanes[m.to.lane]
		start, end := from.slice(from.box(m.from.at))
		at := max(start, end-1) // the last nanosecond that is inside
		if _, err := p.out.Write(p.flow("s", m, chart, m.from.lane, at)); err != nil {
			return err
		}
		at, _ = to.slice(to.box(m.to.at))
		if _, err := p.out.Write(p.flow("f", m, chart, m.to.lane, at)); err != nil {
			return err
		}
	}
	return nil
}

// slice returns when a box starts and ends, in nanoseconds, without what reaches into
// the next one.
func (l *Lane) slice(x box) (start, end int64) {
	start, end = nanoseconds(x.start), nanoseconds(x.end)
	if next := x.at + len(x.actions); next < len(l.Start) {
		end = max(start, min(end, nanoseconds(l.Start[next])))
	}
	return start, end
}

// nanoseconds takes a unit for a millisecond.
func nanoseconds(t float64) int64 { return int64(math.Round(t * 1e6)) }

func (p *tracer) slice(c *Chart, l *Lane, x box, chart, lane int) []byte {
	start, end := l.slice(x)
	b := append(p.begin(), `"ph":"X","name":"`...)
	b = append(appendLabel(b, x.actions), `","cat":"`...)
	for i, a := range x.actions {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, typeName(a.Type)...)
	}
	b = append(b, '"')
	b = p.where(b, chart, lane)
	b = appendMicroseconds(append(b, `,"ts":`...), start)
	b = appendMicroseconds(append(b, `,"dur":`...), end-start)
	b = append(b, `,"args":{`...)
	prefixes := [2]string{}
	if len(x.actions) == 2 {
		prefixes = [2]string{"forward_", "backward_"}
	}
	for i, a := range x.actions {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendArgument(b, prefixes[i], "chunk", int64(a.Chunk))
		b = appendArgument(append(b, ','), prefixes[i], "local_chunk", int64(c.localChunk(a.Chunk)))
		b = appendArgument(append(b, ','), prefixes[i], "microbatch", int64(a.Microbatch))
	}
	return append(b, "}}"...)
}

func (p *tracer) flow(phase string, m message, chart, lane int, at int64) []byte {
	name := "activation"
	if m.kind == scheduler.BackwardEdge {
		name = "gradient"
	}
	if m.skip {
		name = "skip " + name
	}
	b := append(p.begin(), `"ph":"`...)
	b = append(b, phase...)
	b = append(b, `","name":"`...)
	b = append(b, name...)
	b = append(b, `","cat":"message","id":`...)
	b = strconv.AppendInt(b, p.flows, 10)
	b = p.where(b, chart, lane)
	b = appendMicroseconds(append(b, `,"ts":`...), at)
	if phase == "f" {
		b = append(b, `,"bp":"e"`...) // it ends in the slice around it, not in the next
	}
	return append(b, '}')
}

func (p *tracer) where(b []byte, chart, lane int) []byte {
	b = strconv.AppendInt(append(b, `,"pid":`...), int64(chart+1), 10)
	return strconv.AppendInt(append(b, `,"tid":`...), int64(p.thread(chart, lane)), 10)
}

func appendArgument(b []byte, prefix, name string, v int64) []byte {
	b = append(b, '"')
	b = append(b, prefix...)
	b = append(b, name...)
	return strconv.AppendInt(append(b, `":`...), v, 10)
}

// appendMicroseconds writes nanoseconds as microseconds, exactly.
func appendMicroseconds(b []byte, ns int64) []byte {
	b = strconv.AppendInt(b, ns/1000, 10)
	rest := ns % 1000
	if rest == 0 {
		return b
	}
	b = append(b, '.', byte('0'+rest/100), byte('0'+rest/10%10), byte('0'+rest%10))
	return b
}
