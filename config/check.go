package config

import (
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/troupe-ml/troupe/internal/base/points"
)

// check judges a value by itself.
type check struct {
	allows string                         // the values that it accepts, for docs/config.md
	judge  func(v any) (msg, hint string) // says what is wrong and how to fix it; msg is "" if nothing is
}

// whole checks for an integer from low to high.
func whole(low, high int64) *check {
	allows := fmt.Sprintf("%d to %d", low, high)
	return &check{allows, func(v any) (string, string) {
		n := v.(int64)
		return outside(v, n < low, n > high, "use "+allows)
	}}
}

// number checks for a number from low to high.
func number(low, high float64) *check {
	return within(fmt.Sprintf("%g to %g", low, high), func(x float64) (below, above bool) { return x < low, x > high })
}

// numberBelow checks for a number from low to just below high.
func numberBelow(low, high float64) *check {
	return within(fmt.Sprintf("%g or more, but less than %g", low, high), func(x float64) (below, above bool) { return x < low, x >= high })
}

// numberAbove checks for a number from just above low to high.
func numberAbove(low, high float64) *check {
	return within(fmt.Sprintf("more than %g, up to %g", low, high), func(x float64) (below, above bool) { return x <= low, x > high })
}

// within checks for a number between bounds; outOf tells on which side of them it lies.
func within(allows string, outOf func(x float64) (below, above bool)) *check {
	return &check{allows, func(v any) (string, string) {
		below, above := outOf(v.(float64))
		return outside(v, below, above, "use "+allows)
	}}
}

func outside(v any, below, above bool, hint string) (string, string) {
	x, isReal := v.(float64)
	switch {
	case isReal && (math.IsNaN(x) || math.IsInf(x, 0)):
		return render(v) + " is not a finite number", hint
	case below:
		return render(v) + " is too small", hint
	case above:
		return render(v) + " is too large", hint
	}
	return "", ""
}

// oneOf checks for one of a few words. They are asked for at each check, because a program may register more.
func oneOf(list func() []string) *check {
	return &check{enumerate(list()), func(v any) (string, string) {
		words, word := list(), v.(string)
		if slices.Contains(words, word) {
			return "", ""
		}
		hint := "use one of " + strings.Join(words, ", ")
		if near := nearest(strings.ToLower(word), words); near != "" {
			hint = fmt.Sprintf("did you mean %q? %s", near, hint)
		}
		return "unknown value " + quoted(word), hint
	}}
}

// among checks for one of these words.
func among(list ...string) *check { return oneOf(func() []string { return list }) }

// enumerate writes values as TOML, with commas.
func enumerate(words []string) string {
	list := make([]string, len(words))
	for i, word := range words {
		list[i] = quote(word)
	}
	return strings.Join(list, ", ")
}

// orEmpty also accepts the empty string, which stands for the default.
func orEmpty(c *check) *check {
	return &check{`"", ` + c.allows, func(v any) (string, string) {
		if v == "" {
			return "", ""
		}
		return c.judge(v)
	}}
}

// orFile also accepts the path of a file with an extension.
func orFile(c *check, extension string) *check {
	return &check{c.allows + ", a path that ends in " + extension, func(v any) (string, string) {
		if hasExtension(v.(string), extension) {
			return textUpTo(maxPathBytes).judge(v)
		}
		problem, hint := c.judge(v)
		if problem != "" {
			hint += ", or the path of a file that ends in " + extension
		}
		return problem, hint
	}}
}

// tokenizerName accepts the tokenizers that have a name, and paths.
var tokenizerName = &check{`"bytes", "chars", a path`, func(v any) (string, string) {
	if isPath(v.(string)) {
		return textUpTo(maxPathBytes).judge(v)
	}
	problem, hint := among("bytes", "chars").judge(v)
	if problem != "" {
		hint += ", or the path of a tokenizer.json or of a folder with one, such as ./model"
	}
	return problem, hint
}}

// isPath tells a path from the name of a tokenizer.
func isPath(s string) bool { return strings.ContainsAny(s, `/\`) || strings.HasSuffix(s, ".json") }

// asPath makes a path of a word that is the name of a file or folder and not of a tokenizer: people train a tokenizer
// "--to words" and write tokenizer = "words".
func asPath(s string) string {
	if msg, _ := tokenizerName.judge(s); msg == "" {
		return s
	}
	if _, err := os.Stat(s); err != nil {
		return s // the check rejects it
	}
	return TokenizerAt(s)
}

// textUpTo bounds the length of a string.
func textUpTo(most int) *check {
	return &check{fmt.Sprintf("up to %d bytes", most), func(v any) (string, string) {
		if n := len(v.(string)); n > most {
			return fmt.Sprintf("%d bytes are too long", n), fmt.Sprintf("use at most %d", most)
		}
		return "", ""
	}}
}

var pathName = &check{"a path", func(v any) (string, string) {
	if v == "" {
		return "the path is empty", "name a file or folder"
	}
	return textUpTo(maxPathBytes).judge(v)
}}

// listUpTo checks each entry of a list, and its length.
func listUpTo(most int, each *check) *check {
	return &check{fmt.Sprintf("up to %d entries, each %s", most, each.allows), func(v any) (string, string) {
		list := v.([]string)
		if len(list) > most {
			return fmt.Sprintf("the list has more than %d entries", most), fmt.Sprintf("use at most %d", most)
		}
		for i, entry := range list {
			if msg, hint := each.judge(entry); msg != "" {
				return fmt.Sprintf("entry %d: %s", i+1, msg), hint
			}
		}
		return "", ""
	}}
}

// patterns checks for files and patterns of them.
var patterns = &check{fmt.Sprintf("up to %d paths", maxPatterns), func(v any) (string, string) {
	if len(v.([]string)) > maxPatterns {
		return fmt.Sprintf("the list has more than %d entries", maxPatterns), `use a pattern such as "data/*.txt" for many files`
	}
	return listUpTo(maxPatterns, pathName).judge(v)
}}

// folderName checks for a name that run.out can end in.
var folderName = &check{fmt.Sprintf("up to %d bytes: letters, digits, spaces and . _ -", maxNameBytes), func(v any) (string, string) {
	name := v.(string)
	odd := func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("._- ", r)
	}
	if name == "" || strings.HasPrefix(name, ".") || strings.ContainsFunc(name, odd) {
		return quoted(name) + " is not a valid folder name", "use letters, digits, spaces and . _ -, without a leading dot"
	}
	return textUpTo(maxNameBytes).judge(v)
}}

var wordPattern = regexp.MustCompile(`^[a-z][a-z0-9_-]*$`)

// lowerCaseWord checks for the name of something that another package knows.
var lowerCaseWord = &check{"a lower-case word", func(v any) (string, string) {
	word := v.(string)
	if !wordPattern.MatchString(word) || len(word) > maxWordBytes {
		return quoted(word) + " is not a lower-case word", `use a word such as "auto" or "go"`
	}
	return "", ""
}}

// scheduleWord and lowerCaseName check for names that any program may have registered.
var (
	scheduleWord  = registeredName(" is not a valid name of a schedule")
	lowerCaseName = registeredName(" is not a valid name")
)

var registeredPattern = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]*$`)

func registeredName(problem string) *check {
	return &check{"a lower-case name", func(v any) (string, string) {
		word := v.(string)
		if !registeredPattern.MatchString(word) || len(word) > maxScheduleBytes {
			return quoted(word) + problem, fmt.Sprintf("use lower-case letters, digits, - and _, at most %d", maxScheduleBytes)
		}
		return "", ""
	}}
}

// eachWhole checks a number, or a list with one for each of something.
func eachWhole(low int64, entries int, high int64) *check {
	return &check{fmt.Sprintf("%d to %d, or a list of them", low, high), func(v any) (string, string) {
		list := v.([]int64)
		if len(list) == 0 || len(list) > entries {
			return fmt.Sprintf("the list has %d entries", len(list)), fmt.Sprintf("use a number, or a list of 1 to %d", entries)
		}
		for _, n := range list {
			if msg, hint := whole(low, high).judge(n); msg != "" {
				return msg, hint
			}
		}
		return "", ""
	}}
}

// ratePoints checks a table of learning rates; none is given without decay = "points".
var ratePoints = &check{fmt.Sprintf("up to %d pairs [step, rate] in the order of their steps", points.Most), func(v any) (string, string) {
	if all := v.([][2]float64); len(all) > 0 {
		if err := points.Check(all, MaxSteps, maxLR); err != nil {
			msg, hint, _ := strings.Cut(err.Error(), ": ")
			return msg, hint
		}
	}
	return "", ""
}}

var rankOrder = &check{"tp, cp, pp and dp in any order, joined by -", func(v any) (string, string) {
	const hint = `name each once, such as "tp-cp-pp-dp"`
	seen := make(map[string]bool)
	for name := range strings.SplitSeq(v.(string), "-") {
		if seen[name] || !slices.Contains([]string{"tp", "cp", "pp", "dp"}, name) {
			return quoted(v.(string)) + " is not an order of tp, cp, pp and dp", hint
		}
		seen[name] = true
	}
	return "", ""
}}
