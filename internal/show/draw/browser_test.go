package draw

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/troupe-ml/troupe/scheduler"
)

// TestForBrowser: of any table the drawing has every action with its times, and gaps and actions fill each
// rank's time.
func TestForBrowser(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		schedules := []string{scheduler.GPipe, scheduler.OneFOneB, scheduler.Interleaved, scheduler.ZBH1, scheduler.ZBV, scheduler.UShape,
			scheduler.DualPipeV}
		spec := scheduler.Spec{Schedule: rapid.SampledFrom(schedules).Draw(t, "schedule"),
			Ranks: rapid.IntRange(2, 5).Draw(t, "ranks"), Microbatches: 10 * rapid.IntRange(1, 2).Draw(t, "microbatches")}
		switch spec.Chunks = 1; spec.Schedule {
		case scheduler.Interleaved:
			spec.Chunks, spec.Microbatches = 2, spec.Ranks*2
		case scheduler.ZBV, scheduler.UShape, scheduler.DualPipeV:
			spec.Chunks = 2
		}
		table, err := scheduler.Generate(spec)
		if err != nil {
			t.Skip(err)
		}
		costs := scheduler.Jittered(scheduler.UnitCosts, 0.4, rapid.Uint64().Draw(t, "seed"))
		m := scheduler.Machine{Costs: costs, Link: func(_, _ int) float64 { return 0.1 }}
		tl, err := m.Simulate(table)
		if err != nil {
			t.Fatal(err)
		}
		step := scheduler.StepOf(table, tl)
		step.Number, step.StepMS = 3, tl.Makespan+1
		d, err := ForBrowser(step)
		if err != nil {
			t.Fatal(err)
		}
		head, start, end := unpack(t, d.Bytes)
		if head.Planned == 0 || head.Note != "" {
			t.Errorf("there is no plan: %s", head.Note)
		}
		at := 0
		for r, row := range step.MS {
			var idle float64
			for _, ms := range head.Sums[r] {
				idle += ms
			}
			if all := idle + head.Busy[r]; math.Abs(all-head.StepMS) > 1e-6*head.StepMS {
				t.Errorf("rank %d works and waits for %g of %g ms", r, all, head.StepMS)
			}
			if head.Counts[r] != len(row) {
				t.Fatalf("rank %d has %d actions, not %d", r, head.Counts[r], len(row))
			}
			for _, times := range row {
				if float32(times[0]) != start[at] || float32(times[1]) != end[at] {
					t.Fatalf("action %d runs from %g to %g, not %v", at, start[at], end[at], times)
				}
				at++
			}
		}
		shares := 0.0
		for c, share := range d.Shares {
			shares += share
			if d.Ranks[c] != table.RankOf(c) {
				t.Errorf("chunk %d is on rank %d, not %d", c, d.Ranks[c], table.RankOf(c))
			}
		}
		if math.Abs(shares-1) > 1e-9 {
			t.Errorf("the chunks have %v of the time", d.Shares)
		}
	})
}

// unpack reads what encode has written, as far as the times.
func unpack(t interface {
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}, b []byte) (h stepHeader, start, end []float32) {
	if len(b) < 8 || string(b[:4]) != "TRP1" {
		t.Fatalf("%.20q", b)
	}
	n := int(binary.LittleEndian.Uint32(b[4:]))
	if err := json.Unmarshal(b[8:8+n], &h); err != nil {
		t.Fatal(err)
	}
	b = b[8+n:]
	actions := 0
	for _, c := range h.Counts {
		actions += c
	}
	want := actions * (8 + 8 + 2)
	if h.Planned > 0 {
		want += 8 * actions
	}
	want = (want + 3) &^ 3
	if want += h.Gaps * 26; len(b) != want {
		t.Fatalf("%d bytes behind the header, not %d", len(b), want)
	}
	floats := func(at int) (all []float32) {
		for i := range actions {
			all = append(all, math.Float32frombits(binary.LittleEndian.Uint32(b[4*(at+i):])))
		}
		return all
	}
	return h, floats(0), floats(actions)
}

// stepsIn are the drawings of a page, decoded.
func stepsIn(t *testing.T, page string) (all []stepHeader) {
	t.Helper()
	for _, m := range regexp.MustCompile(`data-step="([^"]*)"`).FindAllStringSubmatch(page, -1) {
		b, err := base64.StdEncoding.DecodeString(m[1])
		if err != nil {
			t.Fatal(err)
		}
		h, _, _ := unpack(t, b)
		all = append(all, h)
	}
	return all
}

// TestPage: the page has a plan as it is, and a measured step with its plan, once; its script is one, whole, and
// the only one that its policy lets run.
func TestPage(t *testing.T) {
	p := makePlan(t, goldenSpecs[0].spec)
	step := scheduler.StepOf(p.table, p.timeline)
	step.Number, step.Clocks = 7, []scheduler.Clock{{}, {Host: "far", OffsetMS: 1, UncertaintyMS: 2}, {}, {}}
	planned, measured, err := FromStep(step)
	if err != nil {
		t.Fatal(err)
	}
	page := drawn(t, HTML, p.chart(), planned, measured)
	steps := stepsIn(t, page)
	if len(steps) != 2 {
		t.Fatalf("%d drawings, want 2", len(steps))
	}
	if s := steps[0]; s.Step != 0 || s.Unit != Units || s.Planned != 0 || s.Makespan != p.timeline.Makespan || s.Critical == 0 {
		t.Errorf("the plan is %+v", s)
	}
	if s := steps[1]; s.Step != 7 || s.Unit != Milliseconds || s.Planned == 0 || s.Hosts[1] != "far" || s.Note != "" {
		t.Errorf("the step is %+v", s)
	}
	for _, want := range []string{"<b>planned: step 7, mean times</b>", "<b>measured: step 7</b>",
		"clock of far 1.000 ± ", "<noscript>\n<svg", "rank 1 on far"} {
		if !strings.Contains(page, want) {
			t.Errorf("it has no %q", want)
		}
	}
	if strings.Count(page, "<script") != 1 || !strings.Contains(page, `<script type="module">`+script+`</script>`) {
		t.Error("the script is not the one that the policy has")
	}
	if m := regexp.MustCompile(`(?m)^(import|export) .*`).FindString(script); m != "" {
		t.Errorf("the script has %q", m)
	}
	if strings.Contains(script, "</") || strings.Contains(script, "<!--") {
		t.Error("the script's text would end it")
	}
}

// TestLargePage: a page with more actions than a browser shows boxes of has numbers only.
func TestLargePage(t *testing.T) {
	p := makePlan(t, scheduler.Spec{Schedule: scheduler.OneFOneB, Ranks: 8, Chunks: 1, Microbatches: maxFallback/16 + 1})
	page := drawn(t, HTML, p.chart())
	says := fmt.Sprintf("drawing of %d actions", 16*(maxFallback/16+1))
	if len(stepsIn(t, page)) != 1 || strings.Contains(page, "<svg") || !strings.Contains(page, says) {
		t.Errorf("it has %d bytes", len(page))
	}
}

// TestForBrowserRefuses what is no step, and draws what has no plan.
func TestForBrowserRefuses(t *testing.T) {
	row := make([]scheduler.Action, MaxStepActions+1)
	if _, err := ForBrowser(&scheduler.Step{Table: &scheduler.Table{Ranks: [][]scheduler.Action{row}}}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("too many actions: %v", err)
	}
	if _, err := ForBrowser(&scheduler.Step{Table: scheduler.TableOf("", nil)}); !errors.Is(err, scheduler.ErrTable) {
		t.Errorf("no actions: %v", err)
	}
	f := scheduler.Action{Type: scheduler.F}
	replicas := scheduler.TableOf("", [][]scheduler.Action{{f}, {f}})
	twice := &scheduler.Step{Number: 1, Table: replicas, MS: [][][2]float64{{{0, 1}}, {{0, 1}}}}
	d, err := ForBrowser(twice)
	if err != nil {
		t.Fatal(err)
	}
	if h, _, _ := unpack(t, d.Bytes); !strings.Contains(h.Note, "plan cannot be drawn") || h.Makespan != 1 {
		t.Errorf("%+v", h)
	}
}
