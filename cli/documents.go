package cli

import (
	"fmt"
	"strconv"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/internal/base/words"
)

// maxPieceBytes bounds how much of each piece of an example is printed.
const maxPieceBytes = 400

// documentLines describe documents of which a part is learned, in a few lines.
func documentLines(i troupe.Info) []string {
	d := i.Documents
	lines := []string{
		fmt.Sprintf("data      %s tokens in %s for training, %s in %s for validation", words.Count(i.TrainTokens),
			words.Plural(d.Train, "document"), words.Count(i.ValTokens), words.Plural(d.Val, "document")),
		fmt.Sprintf("learned   %s of %s tokens for training (%s), %s of %s for validation", words.Count(d.TrainLearned),
			words.Count(i.TrainTokens), percent(d.TrainLearned, i.TrainTokens), words.Count(d.ValLearned), words.Count(i.ValTokens)),
		"lengths   " + lengths(d, float64(i.TrainTokens)/float64(max(1, d.Train))),
	}
	if len(d.Example) == 0 {
		return lines
	}
	lines = append(lines, fmt.Sprintf("example   %s, row %d", words.OneLine(d.File), d.Row))
	for _, p := range d.Example {
		kind := "given"
		if p.Learned {
			kind = "learned"
		}
		lines = append(lines, fmt.Sprintf("  %-7s %s", kind, strconv.Quote(words.Cut(p.Text, maxPieceBytes))))
	}
	return lines
}

// packingLines say how full packed sequences are.
func packingLines(i troupe.Info) []string {
	p := i.Packing
	if p == nil {
		return nil
	}
	return []string{fmt.Sprintf("packing   %s: %s documents in a sequence, %.0f%% full on average; a step has about %s targets", p.Mode,
		few(p.Documents), p.FullPct, words.Count(int64(p.Targets)))}
}

// lengths says how long documents are, and whether the context holds them. mean is in tokens.
func lengths(d *troupe.Documents, mean float64) string {
	text := fmt.Sprintf("%s tokens on average, %s at most; ", few(mean), words.Count(int64(d.Longest)))
	needs := max(1, d.Longest-1) // the last token is only predicted
	if needs <= d.Context {
		return text + fmt.Sprintf("the context of %s holds all, and is %.0f%% full on average; the longest needs %s",
			words.Count(int64(d.Context)),
			100*max(0, mean-1)/float64(d.Context), words.Count(int64(needs)))
	}
	text += fmt.Sprintf("the context of %s cuts %d", words.Count(int64(d.Context)), d.Cut)
	if d.Dropped > 0 {
		text += fmt.Sprintf(" and drops %d", d.Dropped)
	}
	return text + fmt.Sprintf(" of %s; the longest needs %s", words.Plural(d.Train+d.Val+d.Dropped, "document"), words.Count(int64(needs)))
}

// percent formats a part of a whole.
func percent(part, whole int64) string {
	return fmt.Sprintf("%.0f%%", 100*float64(part)/float64(max(1, whole)))
}

// summarizeData prints what a config's data is.
func (a *app) summarizeData(i troupe.Info) {
	var lines []string
	switch {
	case i.Documents != nil:
		lines = documentLines(i)
	case i.Samples:
		lines = []string{fmt.Sprintf("data      %s samples for training, %s for validation", words.Count(i.TrainTokens),
			words.Count(i.ValTokens))}
	default:
		lines = []string{fmt.Sprintf("data      %s tokens for training, %s for validation", words.Count(i.TrainTokens), words.Count(i.ValTokens))}
	}
	lines = append(lines, packingLines(i)...)
	if i.Text != "" {
		lines = append(lines, "text      "+words.OneLine(i.Text))
	}
	for _, line := range lines {
		a.printf("  %s\n", line)
	}
}
