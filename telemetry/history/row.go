package history

import (
	"bytes"
	"maps"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/troupe-ml/troupe/telemetry"
)

// limitFigures bounds telemetry.Figures: a row has a bit for each.
const limitFigures = 24

// The keys of a line: first the figures, by index of telemetry.Figures.
const (
	keyStep = limitFigures + iota
	keyTokens
	keySkipped
	keyUpdate
	keyMetrics                            // and the other groups
	keyOther   = keyMetrics + len(groups) // a key of a later version
)

var keys, keyStepMS = func() (map[string]int, int) {
	keys := map[string]int{"step": keyStep, "tokens": keyTokens, "skipped": keySkipped, "update": keyUpdate,
		"metrics": keyMetrics, "val_metrics": keyMetrics + 1, "val_losses": keyMetrics + 2}
	for k := range telemetry.Figures {
		keys[telemetry.Figures[k].Name] = k
	}
	return keys, keys["step_ms"]
}()

// keyOf finds a key.
func keyOf(name []byte) int {
	if k, ok := keys[string(name)]; ok {
		return k
	}
	return keyOther
}

// row is a parsed line.
type row struct {
	step    int
	tokens  int64
	skipped bool
	has     uint32 // a bit for each figure that the line has
	figures [limitFigures]float64
	metrics []metric
}

// metric is a value with a name of its own.
type metric struct {
	group int // in groups
	name  []byte
	value float64
}

// read reads a line, which ends with its line break. The row's metrics share its memory.
func (r *row) read(text []byte) error {
	if r.scan(text) {
		return nil
	}
	var record telemetry.Record
	if err := record.UnmarshalJSON(text[:len(text)-1]); err != nil {
		return err
	}
	r.take(&record)
	return nil
}

// take fills the row from a record. What is infinite is null in a file, and NaN here.
func (r *row) take(record *telemetry.Record) {
	*r = row{step: record.Step, tokens: record.Tokens, skipped: record.Skipped, metrics: r.metrics[:0]}
	for k := range telemetry.Figures {
		if v := telemetry.Figures[k].Get(record); v != nil {
			r.figures[k] = numberOrNaN(*v)
			r.has |= 1 << k
		}
	}
	for group, values := range [len(groups)]map[string]float64{record.Metrics, record.ValMetrics, record.ValLosses} {
		for _, name := range slices.Sorted(maps.Keys(values)) {
			r.metrics = append(r.metrics, metric{group, []byte(name), numberOrNaN(values[name])})
		}
	}
}

func numberOrNaN(v float64) float64 {
	if math.IsInf(v, 0) {
		return math.NaN()
	}
	return v
}

// scan reads a line as telemetry.Writer writes it, and reports whether it is one: an object of
// known keys, each once, without blanks or escapes; or with others whose values are plain. Of any
// other line it can't even tell whether it is a record. The line break at the end is what no value
// has, so that no index runs beyond it.
func (r *row) scan(text []byte) bool {
	*r = row{metrics: r.metrics[:0]}
	if text[0] != '{' {
		return false
	}
	seen := uint32(0)
	for at := 1; ; at++ {
		key, next := word(text, at)
		if next < 0 || text[next] != ':' {
			return false
		}
		k, bit := keyOf(key), uint32(1)
		if bit <<= k; seen&bit != 0 && k != keyOther {
			return false
		}
		seen |= bit
		if at = r.value(k, text, next+1); at < 0 {
			return false
		}
		switch text[at] {
		case ',':
		case '}':
			return text[at+1] == '\n' && seen&(1<<keyStep) != 0
		default:
			return false
		}
	}
}

// value reads the value of a key and returns the position after it; -1: the fast scanner cannot read it.
func (r *row) value(k int, text []byte, at int) int {
	switch k {
	case keyStep:
		n, next := whole(text, at)
		if r.step = int(n); int64(r.step) != n {
			return -1
		}
		return next
	case keyTokens:
		r.tokens, at = whole(text, at)
		return at
	case keySkipped:
		if bytes.HasPrefix(text[at:], []byte("true")) {
			r.skipped = true
			return at + len("true")
		}
		return literal(text, at, "false")
	case keyUpdate:
		_, next := word(text, at)
		return next
	case keyMetrics, keyMetrics + 1, keyMetrics + 2:
		return r.named(k-keyMetrics, text, at)
	case keyOther:
		return other(text, at)
	}
	if telemetry.Figures[k].Whole() {
		n, next := whole(text, at)
		if n != 0 {
			r.figures[k] = float64(n)
			r.has |= 1 << k
		}
		return next
	}
	v, next := number(text, at)
	r.figures[k] = v
	r.has |= 1 << k
	return next
}

// named reads an object with the values of a group.
func (r *row) named(group int, text []byte, at int) int {
	if text[at] != '{' {
		return -1
	}
	if text[at+1] == '}' {
		return at + 2
	}
	for at++; ; at++ {
		name, next := quoted(text, at)
		if next < 0 || text[next] != ':' {
			return -1
		}
		v, next := number(text, next+1)
		if next < 0 {
			return -1
		}
		r.metrics = append(r.metrics, metric{group, name, v})
		switch at = next; text[at] {
		case ',':
		case '}':
			return at + 1
		default:
			return -1
		}
	}
}

// other skips the value of an unknown key, if it is simple.
func other(text []byte, at int) int {
	switch text[at] {
	case '"':
		_, next := quoted(text, at)
		return next
	case 't':
		return literal(text, at, "true")
	case 'f':
		return literal(text, at, "false")
	}
	_, next := number(text, at)
	return next
}

// literal returns the position after a literal.
func literal(text []byte, at int, want string) int {
	if !bytes.HasPrefix(text[at:], []byte(want)) {
		return -1
	}
	return at + len(want)
}

// word reads a string of lower-case letters, digits and underscores and returns the position after it. Only such keys
// are unambiguous: encoding/json ignores case and matches look-alike letters.
func word(text []byte, at int) ([]byte, int) {
	if text[at] != '"' {
		return nil, -1
	}
	at++
	for i := at; ; i++ {
		switch c := text[i]; {
		case 'a' <= c && c <= 'z', c == '_', '0' <= c && c <= '9':
		case c == '"':
			return text[at:i], i + 1
		default:
			return nil, -1
		}
	}
}

// quoted reads a string without escapes.
func quoted(text []byte, at int) ([]byte, int) {
	if text[at] != '"' {
		return nil, -1
	}
	at++
	ascii := true
	for i := at; ; i++ {
		switch c := text[i]; {
		case c == '"':
			if !ascii && !utf8.Valid(text[at:i]) {
				return nil, -1
			}
			return text[at:i], i + 1
		case c == '\\', c < ' ':
			return nil, -1
		case c >= utf8.RuneSelf:
			ascii = false
		}
	}
}

// whole reads an integer of at most 18 digits.
func whole(text []byte, at int) (n int64, next int) {
	const most = 18
	next = at
	for ; digit(text[next]); next++ {
		if next-at == most {
			return 0, -1
		}
		n = n*10 + int64(text[next]-'0')
	}
	if next == at || text[at] == '0' && next > at+1 {
		return 0, -1
	}
	return n, next
}

// number reads a value; null is NaN.
func number(text []byte, at int) (v float64, next int) {
	if text[at] == 'n' {
		return math.NaN(), literal(text, at, "null")
	}
	next = at
	if text[next] == '-' {
		next++
	}
	first := next
	if next = digits(text, next); next < 0 || text[first] == '0' && next > first+1 {
		return 0, -1
	}
	if text[next] == '.' {
		if next = digits(text, next+1); next < 0 {
			return 0, -1
		}
	}
	if text[next] == 'e' || text[next] == 'E' {
		if next++; text[next] == '+' || text[next] == '-' {
			next++
		}
		if next = digits(text, next); next < 0 {
			return 0, -1
		}
	}
	v, err := strconv.ParseFloat(string(text[at:next]), 64)
	if err != nil { // out of range
		return 0, -1
	}
	return v, next
}

// digits returns the position after at least one digit.
func digits(text []byte, at int) int {
	next := at
	for digit(text[next]) {
		next++
	}
	if next == at {
		return -1
	}
	return next
}

func digit(c byte) bool { return '0' <= c && c <= '9' }
