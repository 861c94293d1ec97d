package view

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/internal/show/term"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// Draw draws the view with width columns and at most height lines.
func (v *View) Draw(width, height int) []string {
	head := []string{v.bar().Render(width)}
	head = append(head, wrap(v.figures(), width, 3)...)
	foot := v.foot(width)
	room := max(0, height-len(head)-len(foot))
	stages := v.stages()
	hosts := hostsOf(stages)
	want := len(stages) + hosts + 1 // and a headline
	curve := 0
	if len(v.loss.points) >= 2 && room >= 8 {
		curve = min(9, max(4, room-want))
	}
	lines := append(head, v.pipeline(stages, hosts > 0, width, max(0, room-curve))...)
	lines = append(lines, v.curve(width, curve-1)...) // and a row for the steps
	lines = append(lines, foot...)
	return lines[:min(len(lines), height)]
}

func (v *View) bar() term.Bar {
	b := term.Bar{Done: v.last.Step, Total: v.info.Steps}
	if left := v.meter.Remaining(v.info.Steps - v.last.Step); left > 0 {
		b.Fields = append(b.Fields, words.Duration(left)+" left")
	}
	if v.paused {
		b.Fields = append(b.Fields, "paused")
	}
	return b
}

// figures returns the metrics of the last step.
func (v *View) figures() (f []string) {
	r := v.last
	number := func(name, format string, x *float64) {
		if x != nil {
			f = append(f, fmt.Sprintf(name+" "+format, *x))
		}
	}
	number("loss", "%.4f", r.Loss)
	number("val", "%.4f", v.val)
	number("norm", "%.3g", r.GradNorm)
	number("lr", "%.2e", r.LR)
	if speed := v.meter.TokensPerS(); speed > 0 {
		unit := "tok/s"
		if v.info.Samples {
			unit = "samples/s"
		}
		f = append(f, words.Short(speed)+" "+unit)
	}
	switch {
	case v.info.Chunks > 1 && r.BubblePct != nil:
		f = append(f, fmt.Sprintf("bubble %.1f%% (ideal %.1f%%)", *r.BubblePct, v.ideal))
	case r.PeakPct != nil:
		f = append(f, fmt.Sprintf("MFU %.0f%%", *r.PeakPct))
	}
	if r.PeakMemBytes > 0 {
		f = append(f, "memory "+words.Bytes(r.PeakMemBytes))
	}
	return f
}

// wrap puts fields on lines.
func wrap(fields []string, width, most int) (lines []string) {
	for _, f := range fields {
		if n := len(lines); n > 0 && len(lines[n-1])+2+len(f) <= width {
			lines[n-1] += "  " + f
		} else if n < most {
			lines = append(lines, cut(f, width))
		}
	}
	return lines
}

// foot returns the lines below the curve: a stall, the last warning and the last checkpoint.
func (v *View) foot(width int) (lines []string) {
	for i, line := range v.stall {
		if i == maxChain {
			lines = append(lines, fmt.Sprintf("  and %d more", len(v.stall)-i))
			break
		}
		prefix := "stall: "
		if i > 0 {
			prefix = strings.Repeat("  ", i)
		}
		lines = append(lines, cut(prefix+words.OneLine(line), width))
	}
	if v.sample != "" {
		lines = append(lines, cut(words.OneLine(v.sample), width))
	}
	if v.warning != "" {
		lines = append(lines, cut("warning: "+words.OneLine(v.warning), width))
	}
	if v.checkpoint != "" {
		lines = append(lines, cut(words.OneLine(v.checkpoint), width))
	}
	return lines
}

func hostsOf(stages []event.Snapshot) int {
	seen := make(map[string]bool)
	for _, s := range stages {
		if s.Host != "" {
			seen[s.Host] = true
		}
	}
	return len(seen)
}

// pipeline draws a summary line and a row for each stage.
func (v *View) pipeline(stages []event.Snapshot, byHost bool, width, height int) []string {
	if len(stages) == 0 || height < 2 {
		return nil
	}
	if v.info.Chunks == 1 && len(stages) == 1 {
		return []string{cut(v.alone(stages[0], width), width)}
	}
	from, to := v.window()
	name := 0
	for _, s := range stages {
		name = max(name, len(s.Actor))
	}
	doing := min(34, max(16, (width-name)*2/5))
	columns := max(0, width-name-doing-4)
	var rows []string
	host := ""
	for _, s := range stages {
		if byHost && s.Host != host {
			host = s.Host
			rows = append(rows, cut(host+":", width))
		}
		text := cut(fmt.Sprintf("%-*s  %-*s  ", name, s.Actor, doing, cut(v.doing(s, doing), doing)), width)
		rows = append(rows, text+v.colour(v.rank(s.Rank).draw(from, to, columns, '-')))
	}
	room := height - 1
	v.scroll = min(v.scroll, max(0, len(rows)-room))
	shown := rows[v.scroll:min(len(rows), v.scroll+room)]
	text := v.summary(stages, to.Sub(from))
	if len(shown) < len(rows) {
		text = fmt.Sprintf("rows %d to %d of %d (↑ ↓)  ", v.scroll+1, v.scroll+len(shown), len(rows)) + text
		if !v.o.Unicode {
			text = strings.Replace(text, "↑ ↓", "arrows", 1)
		}
	}
	return append([]string{cut(text, width)}, shown...)
}

// alone describes a run of one stage, which has no pipeline to draw.
func (v *View) alone(s event.Snapshot, width int) string {
	parts := []string{words.Duration(v.at.Sub(v.began)) + " so far"}
	if v.bestAt >= 0 {
		parts = append(parts, fmt.Sprintf("best validation %.4f at step %d", v.best, v.bestAt))
	}
	return strings.Join(append(parts, v.doing(s, width)), "  ")
}

// window returns the range of time of the timelines: about two steps, up to the last known action.
func (v *View) window() (from, to time.Time) {
	for r := range v.ranks {
		if t := v.ranks[r].latest(); t.After(to) {
			to = t
		}
	}
	if to.Before(v.status.Time.Add(-stale)) {
		to = v.status.Time
	}
	long := 10 * time.Second
	exact := len(v.ranks) > 0 && v.ranks[0].exact
	if v.last.StepMS != nil && exact {
		long = time.Duration(2 * *v.last.StepMS * float64(time.Millisecond))
	}
	return to.Add(-min(mostStrip, max(leastStrip, long))), to
}

// summary counts the activities of the stages.
func (v *View) summary(stages []event.Snapshot, strip time.Duration) string {
	running := make(map[byte]int)
	waiting, others := 0, 0
	for _, s := range stages {
		switch s.Doing {
		case event.Running:
			running[s.Action.Type.String()[0]]++
		case event.Waiting:
			waiting++
		default:
			others++
		}
	}
	var parts []string
	for _, kind := range []byte("FBIW") {
		if n := running[kind]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %c", n, kind))
		}
	}
	if waiting > 0 {
		parts = append(parts, fmt.Sprintf("%d waiting", waiting))
	}
	if others > 0 {
		parts = append(parts, fmt.Sprintf("%d other", others))
	}
	how := "last "
	if len(v.ranks) > 0 && !v.ranks[0].exact {
		how = "sampled, last "
	}
	return words.Plural(len(stages), "stage") + ": " + strings.Join(parts, ", ") + "; " + how + words.Duration(strip)
}

// waits are short names of what a stage waits for.
var waits = map[event.Wait]string{
	event.WaitTokens: "tokens", event.WaitCredit: "credit", event.WaitTied: "tied gradient", event.WaitOrder: "order",
	event.WaitStages:   "reports",
	event.WaitDecision: "decision", event.WaitDisk: "disk", event.WaitRoom: "room", event.WaitGroup: "group",
	event.WaitState: "state", event.WaitShadow: "shadows",
}

// doing describes briefly what a stage does, or what it waits for, from which actor and for how long.
func (v *View) doing(s event.Snapshot, width int) string {
	since := v.status.Time.Sub(s.Since)
	text := s.Doing.String()
	if s.Doing == event.Running {
		text = fmt.Sprintf("%c%d", s.Action.Type.String()[0], s.Action.Microbatch)
		if v.info.Chunks > v.info.Stages {
			text += fmt.Sprintf(" of chunk %d", s.Action.Chunk)
		}
	}
	if v.paused && s.Wait == event.WaitOrder {
		return "paused"
	}
	if s.Wait != event.WaitNothing {
		what := waits[s.Wait]
		if what == "" {
			what = s.Needs.String()
		}
		text = "waits: " + what
		if s.From != "" && s.Wait != event.WaitOrder && s.Wait != event.WaitDecision {
			if from := text + " from " + s.From; len(from)+6 <= width {
				text = from
			} else {
				text += " " + shortName(s.From)
			}
		}
	}
	if since >= 100*time.Millisecond {
		text += " " + words.Duration(since)
	}
	return text
}

// shortName makes "s3" of "stage 3".
func shortName(actor string) string {
	if kind, rest, ok := strings.Cut(actor, " "); ok && kind != "" {
		return kind[:1] + rest
	}
	return actor
}

// colours are the terminal's colors of a timeline's letters.
var colours = map[byte]string{'F': "34", 'B': "33", 'I': "36", 'W': "35", 'U': "1"}

// colour colors a timeline: what follows a letter gets the letter's color.
func (v *View) colour(row []byte) string {
	if !v.o.Colour {
		return string(row)
	}
	var b strings.Builder
	at := ""
	for _, c := range row {
		next := at
		if code, ok := colours[c]; ok {
			next = code
		} else if c == '.' {
			next = ""
		}
		if next != at {
			if at = next; at == "" {
				b.WriteString("\x1b[0m")
			} else {
				b.WriteString("\x1b[0;" + at + "m")
			}
		}
		b.WriteByte(c)
	}
	if at != "" {
		b.WriteString("\x1b[0m")
	}
	return b.String()
}

// cut shortens a line to at most width characters.
func cut(text string, width int) string {
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	if width < 1 {
		return ""
	}
	return string([]rune(text)[:width-1]) + ">"
}
