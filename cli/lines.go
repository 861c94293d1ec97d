package cli

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/telemetry"
)

// lineColumns is the longest line of a step, where the output is no terminal.
const lineColumns = 80

// mean adds up values.
type mean struct {
	sum float64
	n   int
}

func (m *mean) add(x *float64) {
	if x != nil && !math.IsNaN(*x) && !math.IsInf(*x, 0) {
		m.sum, m.n = m.sum+*x, m.n+1
	}
}

// or returns the mean, or another value if there is none.
func (m mean) or(x *float64) *float64 {
	if m.n == 0 {
		return x
	}
	v := m.sum / float64(m.n)
	return &v
}

// since are the steps since the last line: one step alone says little.
type since struct {
	loss, mtp, bubble, peak mean
	tokens, seconds         float64
}

func (s *since) add(r telemetry.Record) {
	s.loss.add(r.Loss)
	s.mtp.add(r.MTPLoss)
	s.bubble.add(r.BubblePct)
	s.peak.add(r.PeakPct)
	if r.StepMS != nil && r.TokensPerS != nil {
		s.tokens += *r.TokensPerS * *r.StepMS / 1000
		s.seconds += *r.StepMS / 1000
	}
}

// over returns the event of a step with the means in place of the step's own values.
func (s *since) over(e troupe.StepEvent) troupe.StepEvent {
	e.Loss, e.MTPLoss, e.BubblePct, e.PeakPct = s.loss.or(e.Loss), s.mtp.or(e.MTPLoss), s.bubble.or(e.BubblePct), s.peak.or(e.PeakPct)
	if s.seconds > 0 {
		speed := s.tokens / s.seconds
		e.TokensPerS = &speed
	}
	return e
}

// lineField is a part of a line. Those with the largest rank are left out first if the line is too long; those of rank 0 stay.
type lineField struct {
	rank int
	text string
}

// fitting joins fields, without those for which there is no room.
func fitting(fields []lineField, columns int) string {
	long := func() int {
		n := -2
		for _, f := range fields {
			n += 2 + len([]rune(f.text))
		}
		return n
	}
	for long() > columns {
		worst := 0
		for i, f := range fields {
			if f.rank >= fields[worst].rank {
				worst = i
			}
		}
		if fields[worst].rank == 0 {
			break
		}
		fields = slices.Delete(fields, worst, worst+1)
	}
	parts := make([]string, len(fields))
	for i, f := range fields {
		parts[i] = f.text
	}
	return strings.Join(parts, "  ")
}

// fields formats a step, which has means in place of its own values. elapsed and left are 0 if they are not known.
func (t *textReporter) fields(e troupe.StepEvent, elapsed, left time.Duration) (all []lineField) {
	add := func(rank int, format string, args ...any) {
		all = append(all, lineField{rank, fmt.Sprintf(format, args...)})
	}
	for _, text := range losses(e) {
		add(0, "%s", text)
	}
	if e.Skipped {
		add(0, "skipped")
	}
	if e.GradNorm != nil {
		add(5, "norm %.3g", *e.GradNorm)
	}
	if e.LR != nil {
		add(3, "lr %.1e", *e.LR)
	}
	if e.TokensPerS != nil {
		add(1, "%s %s", words.Short(*e.TokensPerS), t.unit())
	}
	switch {
	case t.info.Stages > 1 && e.BubblePct != nil:
		add(2, "bubble %.0f%%", *e.BubblePct)
	case e.PeakPct != nil:
		add(4, "MFU %.0f%%", *e.PeakPct)
	}
	if elapsed > 0 {
		add(2, "%s", words.Duration(elapsed))
	}
	if left > 0 {
		add(1, "%s left", words.Duration(left))
	}
	return all
}

// losses formats the losses and the other metrics of a step.
func losses(e troupe.StepEvent) (fields []string) {
	if e.Loss != nil {
		fields = append(fields, fmt.Sprintf("loss %.4f", *e.Loss))
	}
	if e.MTPLoss != nil {
		fields = append(fields, fmt.Sprintf("mtp %.4f", *e.MTPLoss))
	}
	if e.ValLoss != nil {
		fields = append(fields, fmt.Sprintf("val %.4f", *e.ValLoss))
	}
	for _, name := range slices.Sorted(maps.Keys(e.ValLosses)) {
		fields = append(fields, fmt.Sprintf("%s %.4f", name, e.ValLosses[name]))
	}
	for _, of := range []struct {
		prefix  string
		figures map[string]float64
	}{{"", e.Metrics}, {"val ", e.ValMetrics}} {
		for _, name := range slices.Sorted(maps.Keys(of.figures)) {
			fields = append(fields, fmt.Sprintf("%s%s %.4g", of.prefix, name, of.figures[name]))
		}
	}
	return fields
}

// unit returns the unit of the speed.
func (t *textReporter) unit() string {
	if t.info.Samples {
		return "samples/s"
	}
	return "tok/s"
}

// nextCommands says what one can do with a run that has ended.
func nextCommands(i troupe.Info) string {
	use := "engine generate --from " + shellWord(i.Out)
	if i.Samples {
		use = "engine predict --from " + shellWord(i.Out)
	}
	return fmt.Sprintf("next: %s; engine report %s; engine ui %s", use, shellWord(i.Out), shellWord(i.Out))
}
