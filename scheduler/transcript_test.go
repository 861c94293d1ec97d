package scheduler

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the outputs in testdata/*.txt")

// TestTranscripts plays testdata/*.txt. A file is prose (lines that start with
// #) and commands. A command has lines of input, a line "----", and the output
// that is expected, up to an empty line. A file has one table at a time: that of
// the last generate or table command.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := playTranscript(t, string(text))
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != string(text) {
				t.Errorf("output differs from %s (go test -update rewrites it):\n%s", file, firstDifference(string(text), got))
			}
		})
	}
}

// playTranscript returns the transcript with the outputs as they are.
func playTranscript(t *testing.T, text string) string {
	var out strings.Builder
	var table *Table
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	for i := 0; i < len(lines); i++ {
		out.WriteString(lines[i] + "\n")
		if lines[i] == "" || strings.HasPrefix(lines[i], "#") {
			continue
		}
		name, options, _ := strings.Cut(lines[i], " ")
		var input []string
		for i++; i < len(lines) && lines[i] != "----"; i++ {
			input = append(input, lines[i])
			out.WriteString(lines[i] + "\n")
		}
		out.WriteString("----\n")
		for i < len(lines) && lines[i] != "" {
			i++
		}
		out.WriteString(run(t, &table, name, parseOptions(t, options), strings.Join(input, "\n")))
		if i < len(lines) {
			out.WriteString("\n")
		}
	}
	return out.String()
}

func run(t *testing.T, table **Table, name string, o options, input string) string {
	var result string
	var err error
	switch name {
	case "generate":
		*table, err = Generate(o.spec())
		if err == nil {
			result = (*table).String()
		}
	case "table":
		*table = parseTable(t, input)
		o.set(&(*table).NumChunks, "chunks")
		o.set(&(*table).Microbatches, "microbatches")
		result = fmt.Sprintf("%d ranks, %d chunks, %d microbatches, placement %s",
			(*table).NumRanks(), (*table).NumChunks, (*table).Microbatches, (*table).Placement)
	case "skips":
		var skips []Skip
		for _, field := range strings.Fields(input) {
			var s Skip
			if _, err := fmt.Sscanf(field, "%d>%d", &s.From, &s.To); err != nil {
				t.Fatalf("skip %q: %v", field, err)
			}
			skips = append(skips, s)
		}
		if err = (*table).SetSkips(skips); err == nil {
			result = fmt.Sprint((*table).Skips)
		}
	case "check":
		var report *Report
		report, err = Check(*table)
		if err == nil {
			result = describe(report)
		}
	case "simulate":
		var tl *Timeline
		if tl, err = o.machine().Simulate(*table); err == nil {
			result = fmt.Sprintf("makespan %v, bubble %.1f %%\nbusy %v\nidle %v", tl.Makespan, 100*tl.BubbleFraction, tl.Busy, tl.Idle)
			if o.has("draw") {
				result += "\n" + draw(*table, tl)
			}
		}
	case "critical", "idle":
		var tl *Timeline
		m := o.machine()
		if o.has("credits") {
			var report *Report
			if report, err = Check(*table); err != nil {
				break
			}
			m.Credits = &report.Credits
		}
		if tl, err = m.Simulate(*table); err != nil {
			break
		}
		step := StepOf(*table, tl)
		step.Credits = m.Credits
		if o.has("step") {
			step.StepMS = o.float("step")
		}
		if name == "critical" {
			result, err = describePath(step)
		} else {
			result, err = describeGaps(step)
		}
	case "layout":
		var l *Layout
		l, err = ParseLayout(input)
		if err == nil && o.has("layers") {
			err = l.Validate(o.layoutSpec())
		}
		if err == nil {
			result = fmt.Sprintf("%s\n%d chunks", l, len(l.Chunks))
		}
	case "balance":
		var l *Layout
		costs := LayerCosts{o.float("embedding"), o.float("layer"), o.float("head")}
		s := o.layoutSpec()
		if !o.has("ranks") {
			s.Ranks = max(1, o.int("chunks"))
		}
		l, err = BalancedLayout(costs, 0, s, o.int("chunks"))
		if err == nil {
			result = l.String()
		}
	default:
		t.Fatalf("unknown command %q", name)
	}
	if err != nil {
		result = "error: " + err.Error()
	}
	return result + "\n"
}

func describePath(step *Step) (string, error) {
	p, err := step.Critical()
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, s := range p.Steps {
		fmt.Fprintf(&b, "%v to %v  rank %d  %v  %v", s.Start, s.End, s.Rank, s.Action, s.Why)
		if s.Wait > 0 {
			fmt.Fprintf(&b, ", %v", s.Wait)
		}
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, "%v = computing %v + messages %v + credits %v + same rank %v + before %v", p.TotalMS(), p.ComputeMS, p.MessageMS,
		p.CreditMS, p.RankMS, p.BeginMS)
	return b.String(), nil
}

func describeGaps(s *Step) (string, error) {
	gaps, err := s.Idle()
	if err != nil {
		return "", err
	}
	var lines []string
	for r, row := range gaps {
		for _, g := range row {
			line := fmt.Sprintf("rank %d  %v to %v  %v", r, g.Start, g.End, g.Cause)
			if g.From >= 0 {
				line += fmt.Sprintf(" for %v of rank %d", g.Needs, g.From)
			}
			if g.MessageMS > 0 {
				line += fmt.Sprintf(", %v of it for the message", g.MessageMS)
			}
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n"), nil
}

func describe(r *Report) string {
	order := "weight gradients  ascending"
	if r.OutOfOrder.Any() {
		order = fmt.Sprintf("out of order      %v", r.OutOfOrder)
	}
	skips := ""
	if c := r.Credits; len(c.SkipForward) > 0 {
		skips = fmt.Sprintf("of skips          %v and %v\n", c.SkipForward, c.SkipBackward)
	}
	return fmt.Sprintf("peak in flight    %v\nforward credits   %v\nbackward credits  %v\n%s%s",
		r.PeakInFlight, r.Credits.Forward, r.Credits.Backward, skips, order)
}

// draw shows unit-cost times: a column for each unit, "==" where an action goes
// on, "." where the rank waits.
func draw(t *Table, tl *Timeline) string {
	width := 0
	for _, row := range t.Ranks {
		for _, a := range row {
			width = max(width, len(a.String()))
		}
	}
	lines := make([]string, t.NumRanks())
	for r, row := range t.Ranks {
		units := make([]string, int(tl.Makespan))
		for u := range units {
			units[u] = "."
		}
		for i, a := range row {
			for u := int(tl.Start[r][i]); u < int(tl.End[r][i]); u++ {
				units[u] = strings.Repeat("=", len(a.String()))
			}
			units[int(tl.Start[r][i])] = a.String()
		}
		for _, u := range units {
			lines[r] += fmt.Sprintf("%-*s ", width, u)
		}
		lines[r] = strings.TrimRight(lines[r], " ")
	}
	return strings.Join(lines, "\n")
}

// options are a command's key=value pairs.
type options struct {
	t      *testing.T
	values map[string]string
}

func parseOptions(t *testing.T, text string) options {
	o := options{t, map[string]string{}}
	for _, field := range strings.Fields(text) {
		key, value, _ := strings.Cut(field, "=")
		o.values[key] = value
	}
	return o
}

func (o options) has(key string) bool { _, ok := o.values[key]; return ok }

func (o options) float(key string) float64 {
	v, err := strconv.ParseFloat(o.values[key], 64)
	if err != nil {
		o.t.Fatalf("option %s=%q: %v", key, o.values[key], err)
	}
	return v
}

func (o options) int(key string) int { return int(o.float(key)) }

func (o options) set(n *int, key string) {
	if o.has(key) {
		*n = o.int(key)
	}
}

// machine is what a table is played on: unit costs, a link, shared cores.
func (o options) machine() Machine {
	m := Machine{Costs: UnitCosts}
	if o.has("far") { // beyond the next rank
		m.Link = func(from, to int) float64 {
			if from-to == 1 || to-from == 1 {
				return 0
			}
			return o.float("far")
		}
	}
	if o.has("link") {
		m.Link = func(_, _ int) float64 { return o.float("link") }
	}
	if o.has("cores") {
		m.Share = SharedCores(o.float("cores"))
	}
	return m
}

func (o options) spec() Spec {
	s := Spec{Schedule: o.values["schedule"], Ranks: 1, Chunks: 1, ForwardOnly: o.has("forward-only")}
	o.set(&s.Ranks, "ranks")
	o.set(&s.Chunks, "chunks")
	o.set(&s.Microbatches, "microbatches")
	o.set(&s.MicrobatchGroupSize, "group")
	return s
}

func (o options) layoutSpec() LayoutSpec {
	s := LayoutSpec{Layers: o.int("layers"), Ranks: 1, Chunks: 1}
	o.set(&s.MTPLayers, "mtp")
	o.set(&s.Ranks, "ranks")
	o.set(&s.Chunks, "chunks")
	for p := Loop; p <= U; p++ {
		if o.values["placement"] == p.String() {
			s.Placement = p
		}
	}
	return s
}

func firstDifference(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range min(len(w), len(g)) {
		if w[i] != g[i] {
			return fmt.Sprintf("line %d\nwant %s\ngot  %s", i+1, w[i], g[i])
		}
	}
	return fmt.Sprintf("want %d lines, got %d", len(w), len(g))
}
