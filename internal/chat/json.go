package chat

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/nikolalohinski/gonja/v2/exec"
)

// filterToJSON writes as transformers' tojson does, which is Python's json.dumps(x, ensure_ascii=False): with a space behind
// colons and commas, members in their order, or indented.
func filterToJSON(v any, c *call) any {
	a := c.bind("ensure_ascii", "indent", "separators", "sort_keys")
	w := jsonWriter{indent: -1, comma: ", ", colon: ": ", ascii: truth(or(a, "ensure_ascii", false)), sorted: truth(or(a, "sort_keys", false))}
	if n, ok := or(a, "indent", null).(int); ok {
		if w.indent, w.comma = n, ","; n < 0 || n > maxTimes {
			unsupported(fmt.Sprintf("tojson indented by %d", n))
		}
	}
	if list, ok := listOf(or(a, "separators", null)); ok && len(list) == 2 {
		w.comma, w.colon = c.text(plainValue(list[0])), c.text(plainValue(list[1]))
	}
	w.write(v, 0)
	return w.String()
}

type jsonWriter struct {
	strings.Builder
	indent        int // -1: on one line
	comma, colon  string
	ascii, sorted bool
}

func (w *jsonWriter) write(v any, depth int) {
	if depth > deepest {
		failf("tojson of a value nested more than %d deep", deepest)
	}
	switch x := v.(type) {
	case none:
		w.WriteString("null")
	case bool:
		w.WriteString(strconv.FormatBool(x))
	case int:
		w.WriteString(strconv.Itoa(x))
	case float64:
		w.WriteString(jsonNumber(x))
	case string:
		w.text(x)
	case []any, tuple:
		list, _ := listOf(v)
		w.list("[", "]", len(list), depth, func(i int) { w.write(plainValue(list[i]), depth+1) })
	case *exec.Dict:
		members := x.Pairs
		if w.sorted {
			members = append([]*exec.Pair{}, members...)
			slices.SortStableFunc(members, func(a, b *exec.Pair) int { return order("<", plainValue(a.Key), plainValue(b.Key)) })
		}
		w.list("{", "}", len(members), depth, func(i int) {
			w.text(jsonKey(plainValue(members[i].Key)))
			w.WriteString(w.colon)
			w.write(plainValue(members[i].Value), depth+1)
		})
	default:
		failf("object of type %s is not JSON serializable", typeName(v))
	}
}

func jsonKey(v any) string {
	switch x := v.(type) {
	case string:
		return x
	case none:
		return "null"
	case bool:
		return strconv.FormatBool(x)
	case int:
		return strconv.Itoa(x)
	case float64:
		return jsonNumber(x)
	}
	failf("keys must be str, int, float, bool or None, not %s", typeName(v))
	return ""
}

func (w *jsonWriter) list(open, end string, n, depth int, element func(i int)) {
	w.WriteString(open)
	for i := range n {
		if i > 0 {
			w.WriteString(w.comma)
		}
		w.line(depth + 1)
		element(i)
	}
	if n > 0 {
		w.line(depth)
	}
	w.WriteString(end)
}

func (w *jsonWriter) line(depth int) {
	if w.indent >= 0 {
		w.WriteByte('\n')
		w.WriteString(strings.Repeat(" ", w.indent*depth))
	}
}

func (w *jsonWriter) text(s string) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		failf("tojson: %v", err)
	}
	text := strings.TrimSuffix(b.String(), "\n")
	// These two Go escapes and Python doesn't.
	text = strings.NewReplacer(`\u2028`, "\u2028", `\u2029`, "\u2029", `\\`, `\\`).Replace(text)
	if !w.ascii {
		w.WriteString(text)
		return
	}
	for _, r := range text {
		switch {
		case r < 0x80:
			w.WriteRune(r)
		case r >= 0x10000:
			r -= 0x10000
			fmt.Fprintf(w, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		default:
			fmt.Fprintf(w, `\u%04x`, r)
		}
	}
}

// jsonNumber is a float as json.dumps writes it.
func jsonNumber(x float64) string {
	switch {
	case math.IsNaN(x):
		return "NaN"
	case math.IsInf(x, 1):
		return "Infinity"
	case math.IsInf(x, -1):
		return "-Infinity"
	}
	return floatText(x)
}
