package config

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// check judges a value by itself and says what is wrong and what to do; msg is
// empty where nothing is.
type check func(v any) (msg, hint string)

// whole checks for an integer from low to high.
func whole(low, high int64) check {
	return func(v any) (string, string) {
		n := v.(int64)
		return outside(v, n < low, n > high, fmt.Sprintf("use %d to %d", low, high))
	}
}

// number checks for a number from low to high.
func number(low, high float64) check {
	return func(v any) (string, string) {
		x := v.(float64)
		return outside(v, x < low, x > high, fmt.Sprintf("use %g to %g", low, high))
	}
}

// numberBelow checks for a number from low to just below high.
func numberBelow(low, high float64) check {
	return func(v any) (string, string) {
		x := v.(float64)
		return outside(v, x < low, x >= high, fmt.Sprintf("use %g or more, but less than %g", low, high))
	}
}

// numberAbove checks for a number from just above low to high.
func numberAbove(low, high float64) check {
	return func(v any) (string, string) {
		x := v.(float64)
		return outside(v, x <= low, x > high, fmt.Sprintf("use more than %g, up to %g", low, high))
	}
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

// oneOf checks for one of a few words.
func oneOf(words ...string) check {
	return func(v any) (string, string) {
		word := v.(string)
		if slices.Contains(words, word) {
			return "", ""
		}
		hint := "it is one of " + strings.Join(words, ", ")
		if len(words) == 1 {
			hint = "only " + words[0] + " is known"
		}
		if near := nearest(strings.ToLower(word), words); near != "" {
			hint = fmt.Sprintf("did you mean %q? %s", near, hint)
		}
		return "unknown value " + quoted(word), hint
	}
}

// orEmpty lets the empty string, which stands for the default, through.
func orEmpty(c check) check {
	return func(v any) (string, string) {
		if v == "" {
			return "", ""
		}
		return c(v)
	}
}

// orFile accepts the name of a file with an extension, too.
func orFile(c check, extension string) check {
	return func(v any) (string, string) {
		if hasExtension(v.(string), extension) {
			return textUpTo(maxPathBytes)(v)
		}
		problem, hint := c(v)
		if problem != "" {
			hint += ", or a file's name that ends in " + extension
		}
		return problem, hint
	}
}

// tokenizerName accepts the tokenizers that have a name, and paths.
func tokenizerName(v any) (string, string) {
	if isPath(v.(string)) {
		return textUpTo(maxPathBytes)(v)
	}
	problem, hint := oneOf("bytes", "chars")(v)
	if problem != "" {
		hint += ", or the path of a tokenizer.json or of a folder with one, such as ./model"
	}
	return problem, hint
}

// isPath tells a path from the name of a tokenizer.
func isPath(s string) bool { return strings.ContainsAny(s, `/\`) || strings.HasSuffix(s, ".json") }

// textUpTo checks for a string of a length that someone might have meant.
func textUpTo(most int) check {
	return func(v any) (string, string) {
		if n := len(v.(string)); n > most {
			return fmt.Sprintf("%d bytes are too long", n), fmt.Sprintf("use at most %d", most)
		}
		return "", ""
	}
}

func pathName(v any) (string, string) {
	if v == "" {
		return "the path is empty", "name a file or folder"
	}
	return textUpTo(maxPathBytes)(v)
}

// listUpTo checks each entry of a list, and that there are not too many.
func listUpTo(most int, each check) check {
	return func(v any) (string, string) {
		list := v.([]string)
		if len(list) > most {
			return fmt.Sprintf("the list has more than %d entries", most), fmt.Sprintf("use at most %d", most)
		}
		for i, entry := range list {
			if msg, hint := each(entry); msg != "" {
				return fmt.Sprintf("entry %d: %s", i+1, msg), hint
			}
		}
		return "", ""
	}
}

// patterns checks for files and globs.
func patterns(v any) (string, string) {
	if len(v.([]string)) > maxPatterns {
		return fmt.Sprintf("the list has more than %d entries", maxPatterns), `a glob such as "data/*.txt" stands for many files`
	}
	return listUpTo(maxPatterns, pathName)(v)
}

// folderName checks for a name that run.out can end in.
func folderName(v any) (string, string) {
	name := v.(string)
	odd := func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("._- ", r)
	}
	if name == "" || strings.HasPrefix(name, ".") || strings.ContainsFunc(name, odd) {
		return quoted(name) + " can't name a folder", "use letters, digits, blanks and . _ -, with no dot in front"
	}
	return textUpTo(maxNameBytes)(v)
}

var wordPattern = regexp.MustCompile(`^[a-z][a-z0-9_-]*$`)

// lowerCaseWord checks for the name of something that others know.
func lowerCaseWord(v any) (string, string) {
	word := v.(string)
	if !wordPattern.MatchString(word) || len(word) > maxWordBytes {
		return quoted(word) + " is not a plain lower-case word", `use a word such as "auto" or "go"`
	}
	return "", ""
}

// lowerCaseName checks for a name that something of any program may have.
func lowerCaseName(v any) (string, string) {
	if msg, _ := scheduleWord(v); msg != "" {
		return quoted(v.(string)) + " is no name", fmt.Sprintf("it has small letters, digits, - and _, at most %d", maxScheduleBytes)
	}
	return "", ""
}

var scheduleWordPattern = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]*$`)

// scheduleWord checks for a name that a schedule of any program may have.
func scheduleWord(v any) (string, string) {
	word := v.(string)
	if !scheduleWordPattern.MatchString(word) || len(word) > maxScheduleBytes {
		return quoted(word) + " is no name of a schedule", fmt.Sprintf("it has small letters, digits, - and _, at most %d", maxScheduleBytes)
	}
	return "", ""
}

// eachWhole checks a number, or one for each of something.
func eachWhole(low int64, entries int, high int64) check {
	return func(v any) (string, string) {
		list := v.([]int64)
		if len(list) == 0 || len(list) > entries {
			return fmt.Sprintf("the list has %d entries", len(list)), fmt.Sprintf("use a number, or a list of 1 to %d", entries)
		}
		for _, n := range list {
			if msg, hint := whole(low, high)(n); msg != "" {
				return msg, hint
			}
		}
		return "", ""
	}
}

func rankOrder(v any) (string, string) {
	const hint = `name each once, such as "tp-cp-pp-dp"`
	seen := make(map[string]bool)
	for name := range strings.SplitSeq(v.(string), "-") {
		if seen[name] || !slices.Contains([]string{"tp", "cp", "pp", "dp"}, name) {
			return quoted(v.(string)) + " is not an order of tp, cp, pp and dp", hint
		}
		seen[name] = true
	}
	return "", ""
}
