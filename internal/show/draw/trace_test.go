package draw

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"pgregory.net/rapid"

	"github.com/troupe-ml/troupe/scheduler"
)

// event is what of a trace's event matters here.
type event struct {
	at          int64
	kind, track uint64
	name        string
	categories  []string
	value       int64
	flows, ends []uint64
	args        map[string]string
}

// track is what a trace says of one.
type track struct {
	id, parent uint64
	name       string
	process    string
	counter    bool
}

// trace is one as a viewer has read it.
type trace struct {
	tracks map[uint64]track
	order  []uint64
	events []event
}

// fieldsOf calls visit with each field of a message.
func fieldsOf(b []byte, visit func(n protowire.Number, v uint64, in []byte) error) error {
	for len(b) > 0 {
		n, kind, size := protowire.ConsumeTag(b)
		if size < 0 {
			return protowire.ParseError(size)
		}
		b = b[size:]
		var v uint64
		var in []byte
		switch kind {
		case protowire.VarintType:
			v, size = protowire.ConsumeVarint(b)
		case protowire.Fixed64Type:
			v, size = protowire.ConsumeFixed64(b)
		case protowire.BytesType:
			in, size = protowire.ConsumeBytes(b)
		default:
			return fmt.Errorf("field %d is of type %d", n, kind)
		}
		if size < 0 {
			return protowire.ParseError(size)
		}
		b = b[size:]
		if err := visit(n, v, in); err != nil {
			return err
		}
	}
	return nil
}

func parseTrace(b []byte) (t trace, err error) {
	t.tracks = make(map[uint64]track)
	err = fieldsOf(b, func(n protowire.Number, _ uint64, packet []byte) error {
		if n != 1 {
			return fmt.Errorf("a trace has field %d", n)
		}
		var at int64
		var e *event
		sequence := uint64(0)
		err := fieldsOf(packet, func(n protowire.Number, v uint64, in []byte) (err error) {
			switch n {
			case 8:
				at = int64(v)
			case 10:
				sequence = v
			case 11:
				e, err = parseEvent(in)
			case 60:
				var d track
				if d, err = parseTrack(in); err == nil {
					if _, twice := t.tracks[d.id]; twice || d.id == 0 {
						return fmt.Errorf("track %d is described twice, or is the trace's own", d.id)
					}
					if _, ok := t.tracks[d.parent]; d.parent != 0 && !ok {
						return fmt.Errorf("track %d is in %d, which comes later", d.id, d.parent)
					}
					t.tracks[d.id] = d
					t.order = append(t.order, d.id)
				}
			default:
				return fmt.Errorf("a packet has field %d", n)
			}
			return err
		})
		if err == nil && sequence == 0 {
			err = errors.New("a packet of no sequence")
		}
		if e != nil {
			e.at = at
			t.events = append(t.events, *e)
		}
		return err
	})
	return t, err
}

func parseTrack(b []byte) (d track, err error) {
	err = fieldsOf(b, func(n protowire.Number, v uint64, in []byte) error {
		switch n {
		case 1:
			d.id = v
		case 2:
			d.name = string(in)
		case 3:
			return fieldsOf(in, func(n protowire.Number, _ uint64, in []byte) error {
				if n == 6 {
					d.process = string(in)
				}
				return nil
			})
		case 5:
			d.parent = v
		case 8:
			d.counter = true
		case 11, 12:
		default:
			return fmt.Errorf("a track has field %d", n)
		}
		return nil
	})
	return d, err
}

func parseEvent(b []byte) (*event, error) {
	e := &event{args: make(map[string]string)}
	err := fieldsOf(b, func(n protowire.Number, v uint64, in []byte) error {
		switch n {
		case 4:
			name, value := "", ""
			err := fieldsOf(in, func(n protowire.Number, v uint64, in []byte) error {
				switch n {
				case 4:
					value = fmt.Sprint(int64(v))
				case 5:
					value = fmt.Sprintf("%.3f", math.Float64frombits(v))
				case 6:
					value = string(in)
				case 10:
					name = string(in)
				default:
					return fmt.Errorf("an annotation has field %d", n)
				}
				return nil
			})
			e.args[name] = value
			return err
		case 9:
			e.kind = v
		case 11:
			e.track = v
		case 22:
			e.categories = append(e.categories, string(in))
		case 23:
			e.name = string(in)
		case 30:
			e.value = int64(v)
		case 47:
			e.flows = append(e.flows, v)
		case 48:
			e.ends = append(e.ends, v)
		default:
			return fmt.Errorf("an event has field %d", n)
		}
		return nil
	})
	return e, err
}

// String writes a trace for eyes.
func (t trace) String() string {
	var b strings.Builder
	for _, id := range t.order {
		d := t.tracks[id]
		fmt.Fprintf(&b, "track %d in %d: %q", id, d.parent, d.name)
		if d.process != "" {
			fmt.Fprintf(&b, ", process %q", d.process)
		}
		if d.counter {
			b.WriteString(", counter")
		}
		b.WriteByte('\n')
	}
	for _, e := range t.events {
		fmt.Fprintf(&b, "%9d track %d ", e.at, e.track)
		switch e.kind {
		case sliceBegin:
			fmt.Fprintf(&b, "begin %s %v %v out %v in %v\n", e.name, e.categories, e.args, e.flows, e.ends)
		case sliceEnd:
			fmt.Fprintln(&b, "end")
		default:
			fmt.Fprintf(&b, "= %d\n", e.value)
		}
	}
	return b.String()
}

// checkTrace reads a trace as a viewer does: times ascend, the slices of a track nest, every
// message starts with one slice and ends with a later one, no counter is negative, and what
// the slices say of the bubble is what the charts say.
func checkTrace(text string, charts []Chart) error {
	t, err := parseTrace([]byte(text))
	if err != nil {
		return err
	}
	type open struct {
		at     int64
		action bool
	}
	stacks := make(map[uint64][]open)
	starts, ends := make(map[uint64]event), make(map[uint64]event)
	busy := make(map[uint64]int64) // by process or chart: of its lanes
	steps := make(map[uint64]int64)
	idle := make(map[uint64][2]int64) // the counter's value and when
	var idleTime = make(map[uint64]int64)
	last, actions := int64(0), 0
	for _, e := range t.events {
		d, known := t.tracks[e.track]
		switch {
		case !known:
			return fmt.Errorf("an event at %d of track %d, which nobody has described", e.at, e.track)
		case e.at < last:
			return fmt.Errorf("an event at %d after one at %d", e.at, last)
		case d.counter != (e.kind == counter):
			return fmt.Errorf("an event of kind %d on track %q", e.kind, d.name)
		}
		last = e.at
		stack := stacks[e.track]
		switch e.kind {
		case sliceBegin:
			action := e.args["microbatch"] != "" || e.args["forward_microbatch"] != ""
			if action {
				actions++
			}
			if action && len(stack) > 0 {
				return fmt.Errorf("%s starts at %d within another action", e.name, e.at)
			}
			stacks[e.track] = append(stack, open{e.at, action})
			for _, id := range e.flows {
				if _, twice := starts[id]; twice {
					return fmt.Errorf("message %d is sent twice", id)
				}
				starts[id] = e
			}
			for _, id := range e.ends {
				if _, sent := starts[id]; !sent {
					return fmt.Errorf("message %d comes before it is sent", id)
				}
				if _, twice := ends[id]; twice {
					return fmt.Errorf("message %d comes twice", id)
				}
				ends[id] = e
			}
		case sliceEnd:
			if len(stack) == 0 {
				return fmt.Errorf("a slice of %q ends at %d and has never begun", d.name, e.at)
			}
			top := stack[len(stack)-1]
			stacks[e.track] = stack[:len(stack)-1]
			if top.action {
				busy[e.track] += e.at - top.at
			} else if d.name == "step" {
				steps[e.track] = e.at - top.at
			}
		default:
			if e.value < 0 {
				return fmt.Errorf("%q is %d at %d", d.name, e.value, e.at)
			}
			if d.name == "idle ranks" {
				was := idle[e.track]
				idleTime[e.track] += was[0] * (e.at - was[1])
				idle[e.track] = [2]int64{e.value, e.at}
			}
		}
	}
	for id, stack := range stacks {
		if len(stack) > 0 {
			return fmt.Errorf("a slice of %q never ends", t.tracks[id].name)
		}
	}
	messages, boxes := 0, 0
	for i := range charts {
		for m := range charts[i].messages() {
			if from, to := &charts[i].Lanes[m.from.lane],
				&charts[i].Lanes[m.to.lane]; nanoseconds(from.Start[m.from.at]) < nanoseconds(to.Start[m.to.at]) {
				messages++ // any other would lead back
			}
		}
		for r := range charts[i].Lanes {
			for range charts[i].Lanes[r].boxes() {
				boxes++
			}
		}
	}
	if len(starts) != messages || len(ends) != messages || actions != boxes {
		return fmt.Errorf("%d starts and %d ends of messages and %d actions, want %d and %d", len(starts), len(ends), actions, messages, boxes)
	}
	return t.checkBubbles(charts, busy, steps, idle, idleTime)
}

// checkBubbles compares the bubble by slices, and by the counter, with the charts'.
func (t trace) checkBubbles(charts []Chart, busy, steps map[uint64]int64, idle map[uint64][2]int64, idleTime map[uint64]int64) error {
	var lanes, stepTracks, idleTracks []uint64
	for _, id := range t.order {
		switch d := t.tracks[id]; d.name {
		case "step":
			stepTracks = append(stepTracks, id)
		case "idle ranks":
			idleTracks = append(idleTracks, id)
		case "outputs held":
			lanes = append(lanes, d.parent)
		}
	}
	for i := range charts {
		n := len(charts[i].Lanes)
		if len(lanes) < n {
			return fmt.Errorf("%d tracks of ranks are left, want %d", len(lanes), n)
		}
		span, worked := float64(steps[stepTracks[i]])*float64(n), 0.0
		for _, id := range lanes[:n] {
			worked += float64(busy[id])
		}
		lanes = lanes[n:]
		if span == 0 || charts[i].overlaps() {
			continue
		}
		last := idle[idleTracks[i]]
		counted := float64(idleTime[idleTracks[i]]+last[0]*(steps[stepTracks[i]]-last[1])) / span
		want, got := charts[i].Figures().BubbleFraction, (span-worked)/span
		if math.Abs(got-want) > 0.001 || math.Abs(counted-want) > 0.001 {
			return fmt.Errorf("a bubble of %v by slices and %v by the counter, want %v", got, counted, want)
		}
	}
	return nil
}

// overlaps reports whether an action reaches into one that is no pair with it.
func (c *Chart) overlaps() bool {
	for r := range c.Lanes {
		reach := 0.0
		for x := range c.Lanes[r].boxes() {
			if x.start < reach {
				return true
			}
			reach = x.end
		}
	}
	return false
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

// Whatever each action takes, a table's trace is one that a viewer can read.
func TestTraceOfAnyTable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := scheduler.Spec{Schedule: rapid.SampledFrom(scheduler.Schedules()).Draw(t, "schedule"), Ranks: rapid.IntRange(1, 5).Draw(t, "ranks"),
			Chunks: rapid.IntRange(1, 3).Draw(t, "chunks"), Microbatches: rapid.IntRange(1, 12).Draw(t, "microbatches"),
			ForwardOnly: rapid.Bool().Draw(t, "forward only")}
		table, err := scheduler.Generate(s)
		if err != nil {
			t.Skip("there is no such table")
		}
		costs := rapid.SliceOfN(rapid.Float64Range(0.001, 3), 1, 20).Draw(t, "costs")
		link := rapid.Float64Range(0, 1).Draw(t, "link")
		tl, err := scheduler.Machine{Costs: func(rank int, a scheduler.Action) float64 {
			return costs[(7*rank+3*int(a.Microbatch)+int(a.Type))%len(costs)]
		}, Link: func(_, _ int) float64 { return link }}.Simulate(table)
		if err != nil {
			t.Skip(err)
		}
		c := FromTimeline(table, tl)
		for r := range c.Lanes {
			c.Lanes[r].Host = rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "host")
			for i := 1; i < len(c.Lanes[r].Start); i++ {
				if from, to := c.Lanes[r].End[i-1], c.Lanes[r].Start[i]; to > from {
					c.Lanes[r].Gaps = append(c.Lanes[r].Gaps, Gap{from, to, "something"})
				}
			}
		}
		var b strings.Builder
		if err := Perfetto(&b, c); err != nil {
			t.Fatal(err)
		}
		if err := checkTrace(b.String(), []Chart{c}); err != nil {
			t.Fatal(err)
		}
	})
}

// Clocks of two hosts may differ by more than a message takes: then no arrow leads back, and
// no counter falls below 0.
func TestTraceOfClocksThatDiffer(t *testing.T) {
	p := makePlan(t, goldenSpecs[0].spec)
	c := p.chart()
	lanes := slices.Clone(c.Lanes)
	for i := range lanes[1].Actions { // two units early
		lanes[1].Start, lanes[1].End = slices.Clone(lanes[1].Start), slices.Clone(lanes[1].End)
		lanes[1].Start[i], lanes[1].End[i] = max(0, lanes[1].Start[i]-2), max(0, lanes[1].End[i]-2)
	}
	c.Lanes = lanes
	got, err := parseTrace([]byte(drawn(t, Perfetto, c)))
	if err != nil {
		t.Fatal(err)
	}
	at, messages := make(map[uint64]int64), 0
	for _, e := range got.events {
		for _, id := range e.flows {
			at[id] = e.at
		}
		for _, id := range e.ends {
			messages++
			if sent, ok := at[id]; !ok || sent >= e.at {
				t.Errorf("message %d comes at %d and is sent at %d", id, e.at, sent)
			}
		}
		if e.value < 0 {
			t.Errorf("%q is %d", got.tracks[e.track].name, e.value)
		}
	}
	all := 0
	for range c.messages() {
		all++
	}
	if messages == 0 || messages == all || messages != len(at) {
		t.Errorf("%d of %d messages are drawn, and %d begin", messages, all, len(at))
	}
}

// Perfetto sorts ranks by their names.
func TestRanksSortByName(t *testing.T) {
	for _, c := range []struct {
		name   string
		digits int
		want   string
	}{{"rank 3", 2, "rank 03"}, {"rank 12 on worker-1", 2, "rank 12 on worker-1"}, {"rank 3", 1, "rank 3"}, {"", 3, ""}, {"lane", 3, "lane"}} {
		if got := padded(c.name, c.digits); got != c.want {
			t.Errorf("%q with %d digits is %q, want %q", c.name, c.digits, got, c.want)
		}
	}
}

func TestGapsAreChecked(t *testing.T) {
	p := makePlan(t, goldenSpecs[0].spec)
	for _, gaps := range [][]Gap{{{2, 1, "x"}}, {{-1, 1, "x"}}, {{0, math.NaN(), "x"}}, {{2, 3, "x"}, {1, 2, "x"}}} {
		c := p.chart()
		c.Lanes[1].Gaps = gaps
		if err := Perfetto(&strings.Builder{}, c); !errors.Is(err, ErrChart) {
			t.Errorf("%v: %v, want ErrChart", gaps, err)
		}
	}
}

var traceFile = flag.String("recorded", "testdata/runs/trace.jsonl", "a run's trace.jsonl whose steps are drawn and read again")

// The traces of steps that runs have recorded, one of them in two processes, can be read, too.
func TestTraceOfRuns(t *testing.T) {
	text, err := os.ReadFile(*traceFile)
	if err != nil {
		t.Fatal(err)
	}
	for row, line := range bytes.Split(bytes.TrimSpace(text), []byte("\n")) {
		var step struct {
			Schedule, Table string
			MS              [][][2]float64
		}
		if err := json.Unmarshal(line, &step); err != nil {
			t.Fatal(err)
		}
		table, err := scheduler.ReadCSV(*traceFile, step.Table)
		if err != nil {
			t.Fatal(err)
		}
		table.Schedule = step.Schedule
		n := table.NumRanks()
		tl := &scheduler.Timeline{Start: make([][]float64, n), End: make([][]float64, n), Busy: make([]float64, n), Idle: make([]float64, n)}
		for r, ms := range step.MS {
			for i, at := range ms {
				tl.Start[r], tl.End[r] = append(tl.Start[r], at[0]), append(tl.End[r], at[1])
				if i == 0 || !table.Ranks[r][i-1].Overlap {
					tl.Busy[r] += at[1] - at[0]
				}
			}
		}
		tl.Summarise()
		c := FromTimeline(table, tl)
		c.Unit = Milliseconds
		if err := checkTrace(drawn(t, Perfetto, c), []Chart{c}); err != nil {
			t.Errorf("row %d: %v", row+1, err)
		}
		t.Logf("row %d: %s, %d ranks, bubble %.4f", row+1, step.Schedule, n, c.Figures().BubbleFraction)
	}
}
