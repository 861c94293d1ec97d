package chat

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"sort"
	"strconv"
	"strings"

	"github.com/nikolalohinski/gonja/v2/exec"
)

// filterItems lists the members of a dict in their order.
func filterItems(_ *exec.Evaluator, in *exec.Value, _ *exec.VarArgs) *exec.Value {
	if in.IsError() || isNone(in) {
		return exec.AsValue([]any{})
	}
	return exec.AsValue(items(in))
}

// items are pairs of key and value.
func items(of *exec.Value) []any {
	list := []any{}
	for _, p := range pairs(of) {
		list = append(list, []any{p.Key.Interface(), p.Value.Interface()})
	}
	return list
}

// pairs are the members of a dict: in their order, or in that of their names where it has none.
func pairs(of *exec.Value) []*exec.Pair {
	if d, ok := of.Interface().(*exec.Dict); ok {
		return d.Pairs
	}
	var list []*exec.Pair
	keys := append(exec.ValuesList{}, of.Keys()...)
	sort.SliceStable(keys, func(i, j int) bool { return keys[i].String() < keys[j].String() })
	for _, key := range keys {
		v, _ := of.GetItem(key.Interface())
		list = append(list, &exec.Pair{Key: key, Value: v})
	}
	return list
}

func filterLast(_ *exec.Evaluator, in *exec.Value, _ *exec.VarArgs) *exec.Value {
	if in.IsError() || in.Len() == 0 {
		return in
	}
	return exec.AsValue(in.Index(in.Len() - 1).Interface())
}

func filterReplace(e *exec.Evaluator, in *exec.Value, args *exec.VarArgs) *exec.Value {
	v, err := replace(in.String(), args)
	if err != nil {
		return exec.AsValue(err)
	}
	return exec.AsValue(v)
}

// filterIndent puts spaces before all lines but the first.
func filterIndent(_ *exec.Evaluator, in *exec.Value, args *exec.VarArgs) *exec.Value {
	width, first, blank := 4, false, false
	get := func(i int, name string) *exec.Value {
		if v, ok := args.KwArgs[name]; ok {
			return v
		}
		if i < len(args.Args) {
			return args.Args[i]
		}
		return nil
	}
	if v := get(0, "width"); v != nil {
		width = v.Integer()
	}
	if v := get(1, "first"); v != nil {
		first = v.IsTrue()
	}
	if v := get(2, "blank"); v != nil {
		blank = v.IsTrue()
	}
	if width < 0 || width > maxTimes {
		return exec.AsValue(fmt.Errorf("indent by %d, it must be 0 to %d", width, maxTimes))
	}
	lines := strings.Split(in.String(), "\n")
	for i := range lines {
		if (i > 0 || first) && (blank || lines[i] != "") {
			lines[i] = strings.Repeat(" ", width) + lines[i]
		}
	}
	return exec.AsValue(strings.Join(lines, "\n"))
}

// filterToJSON writes as Python's json.dumps(x, ensure_ascii=False) does: with a space behind
// colons and commas, members in their order, or indented.
func filterToJSON(_ *exec.Evaluator, in *exec.Value, args *exec.VarArgs) *exec.Value {
	if in.IsError() {
		return in
	}
	indent := -1
	if v, ok := args.KwArgs["indent"]; ok && !isNone(v) {
		if indent = v.Integer(); indent < 0 || indent > maxTimes {
			return exec.AsValue(fmt.Errorf("tojson indented by %d, it must be 0 to %d", indent, maxTimes))
		}
	}
	for name := range args.KwArgs {
		if name != "indent" && name != "ensure_ascii" && name != "separators" && name != "sort_keys" {
			return exec.AsValue(fmt.Errorf("tojson knows no %q", name))
		}
	}
	w := jsonWriter{indent: indent, comma: ", ", colon: ": "}
	if indent >= 0 {
		w.comma = ","
	}
	if v, ok := args.KwArgs["ensure_ascii"]; ok {
		w.ascii = v.IsTrue()
	}
	if v, ok := args.KwArgs["sort_keys"]; ok {
		w.sorted = v.IsTrue()
	}
	if v, ok := args.KwArgs["separators"]; ok && v.Len() == 2 {
		w.comma, w.colon = v.Index(0).String(), v.Index(1).String()
	}
	if err := w.write(in, 0); err != nil {
		return exec.AsValue(err)
	}
	return exec.AsSafeValue(w.String())
}

type jsonWriter struct {
	strings.Builder
	indent        int // -1: on one line
	comma, colon  string
	ascii, sorted bool
}

func (w *jsonWriter) write(v *exec.Value, depth int) error {
	const deepest = 100
	if depth > deepest {
		return fmt.Errorf("tojson of a value in more than %d others", deepest)
	}
	switch {
	case isNone(v):
		w.WriteString("null")
	case v.IsBool():
		w.WriteString(strconv.FormatBool(v.Bool()))
	case v.IsInteger():
		w.WriteString(strconv.Itoa(v.Integer()))
	case v.IsFloat():
		w.WriteString(number(v.Float()))
	case v.IsString():
		return w.text(v.String())
	case v.IsList():
		return w.list("[", "]", v.Len(), depth, func(i int) error { return w.write(v.Index(i), depth+1) })
	case v.IsDict():
		members := pairs(v)
		if w.sorted {
			members = append([]*exec.Pair{}, members...)
			sort.SliceStable(members, func(i, j int) bool { return members[i].Key.String() < members[j].Key.String() })
		}
		return w.list("{", "}", len(members), depth, func(i int) error {
			if err := w.text(members[i].Key.String()); err != nil {
				return err
			}
			w.WriteString(w.colon)
			return w.write(members[i].Value, depth+1)
		})
	default:
		return fmt.Errorf("tojson of %T", v.Interface())
	}
	return nil
}

func (w *jsonWriter) list(open, end string, n, depth int, element func(i int) error) error {
	w.WriteString(open)
	for i := range n {
		if i > 0 {
			w.WriteString(w.comma)
		}
		w.line(depth + 1)
		if err := element(i); err != nil {
			return err
		}
	}
	if n > 0 {
		w.line(depth)
	}
	w.WriteString(end)
	return nil
}

func (w *jsonWriter) line(depth int) {
	if w.indent >= 0 {
		w.WriteByte('\n')
		w.WriteString(strings.Repeat(" ", w.indent*depth))
	}
}

func (w *jsonWriter) text(s string) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		return err
	}
	text := strings.TrimSuffix(b.String(), "\n")
	// These two Go escapes and Python doesn't; those below the other way round.
	text = strings.NewReplacer(`\u2028`, "\u2028", `\u2029`, "\u2029", `\\`, `\\`, "\x7f", "\x7f").Replace(text)
	if !w.ascii {
		w.WriteString(text)
		return nil
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
	return nil
}

// number is a float as Python prints it.
func number(x float64) string {
	switch {
	case math.IsNaN(x):
		return "NaN"
	case math.IsInf(x, 0):
		return strings.Replace("-Infinity", "-", map[bool]string{true: "-", false: ""}[x < 0], 1)
	case x == math.Trunc(x) && math.Abs(x) < 1e16:
		return strconv.FormatFloat(x, 'f', 1, 64)
	case math.Abs(x) >= 1e-4 && math.Abs(x) < 1e16:
		return strconv.FormatFloat(x, 'f', -1, 64)
	}
	return strconv.FormatFloat(x, 'e', -1, 64)
}
