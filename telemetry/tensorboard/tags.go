package tensorboard

import (
	"maps"
	"slices"
	"strings"

	"github.com/troupe-ml/troupe/telemetry"
)

// scalarsOf returns the measured figures of a record. The ideal bubble is not part of a record; negative: it is not
// known.
func scalarsOf(r telemetry.Record, idealBubblePct float64) []scalar {
	var all []scalar
	add := func(tag string, v *float64) {
		if v != nil {
			all = append(all, scalar{tag, float32(*v)})
		}
	}
	for i := range telemetry.Figures {
		f := &telemetry.Figures[i]
		add(f.Tag, f.Get(&r))
		if f.Name == "bubble_pct" && r.BubblePct != nil && idealBubblePct >= 0 {
			add("speed/bubble_ideal_pct", &idealBubblePct)
		}
	}
	for _, of := range []struct {
		group   string
		figures map[string]float64
	}{{"train/", r.Metrics}, {"val/", r.ValMetrics}, {"val_loss/", r.ValLosses}} {
		names := slices.Sorted(maps.Keys(of.figures))
		for _, name := range names[:min(len(names), limitMetrics)] {
			v := of.figures[name]
			add(of.group+clip(name, limitTagBytes), &v)
		}
	}
	return all
}

// clip cuts a text to at most a number of bytes, between two characters.
func clip(text string, bytes int) string {
	if len(text) <= bytes {
		return text
	}
	return strings.ToValidUTF8(text[:bytes], "")
}

// asCode returns a text as a Markdown code block, so that TensorBoard shows it unchanged.
func asCode(text string) string {
	var b strings.Builder
	for line := range strings.Lines(clip(strings.ToValidUTF8(text, "\uFFFD"), limitTextBytes)) {
		b.WriteString("    ")
		b.WriteString(line)
	}
	return b.String()
}
