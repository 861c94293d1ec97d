package chat

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/nikolalohinski/gonja/v2/exec"
)

// filters are Jinja's, as transformers has them. Others are refused by name.
var filters map[string]func(v any, c *call) any

func init() { // map and select call filters and tests
	filters = map[string]func(v any, c *call) any{
		"tojson": filterToJSON, "items": filterItems, "indent": filterIndent, "dictsort": filterDictsort, "map": filterMap,
		"select": filterSelect(false, true), "reject": filterSelect(false, false), "selectattr": filterSelect(true, true),
		"rejectattr": filterSelect(true, false),
		"sort":       filterSort, "unique": filterUnique, "sum": filterSum, "round": filterRound, "int": filterInt, "float": filterFloat,
		"join": filterJoin, "batch": filterBatch,
		"default": filterDefault, "d": filterDefault, "max": extreme(1), "min": extreme(-1),
		"length": func(v any, c *call) any { c.need(0); return length(v) }, "count": func(v any, c *call) any { c.need(0); return length(v) },
		"list":      func(v any, c *call) any { c.need(0); return append([]any{}, iterate(v)...) },
		"string":    func(v any, c *call) any { c.need(0); return str(v) },
		"safe":      func(v any, c *call) any { c.need(0); return str(v) },
		"upper":     func(v any, c *call) any { c.need(0); return upper(str(v)) },
		"lower":     func(v any, c *call) any { c.need(0); return lower(str(v)) },
		"title":     func(v any, c *call) any { c.need(0); return titleWords(str(v)) },
		"wordcount": func(v any, c *call) any { c.need(0); return words(str(v)) },
		"e":         filterEscape, "escape": filterEscape, "forceescape": filterEscape,
		"capitalize": func(v any, c *call) any { c.need(0); return capitalize(str(v)) },
		"trim":       func(v any, c *call) any { return trim(str(v), c, strings.Trim, strings.TrimFunc) },
		"center": func(v any, c *call) any {
			return justify(str(v), c.number(or(c.bind("width"), "width", 80)), " ", '^')
		},
		"format": func(v any, c *call) any {
			if len(c.args) > 0 && len(c.kw) > 0 {
				failf("can't handle positional and keyword arguments at the same time")
			}
			if len(c.kw) > 0 {
				d := exec.NewDict()
				for name, value := range c.kw {
					d.Pairs = append(d.Pairs, &exec.Pair{Key: exec.AsValue(name), Value: exec.AsValue(value)})
				}
				return percent(str(v), d)
			}
			return percent(str(v), tuple(c.args))
		},
		"replace": func(v any, c *call) any {
			a := c.bind("old", "new", "count")
			n, ok := or(a, "count", -1).(int)
			if !ok {
				n = -1
			}
			return replace(str(v), str(a["old"]), str(a["new"]), n)
		},
		"abs": func(v any, c *call) any {
			c.need(0)
			i, f, isWhole, ok := numeric(v)
			switch {
			case !ok:
				failf("bad operand type for abs(): '%s'", typeName(v))
			case !isWhole:
				return math.Abs(f)
			}
			return max(i, -i)
		},
		"first": func(v any, c *call) any { c.need(0); return end(iterate(v), false) },
		"last": func(v any, c *call) any {
			c.need(0)
			if _, is := v.(*generator); is {
				failf("a generator can't be reversed")
			}
			return end(iterate(v), true)
		},
		"reverse": func(v any, c *call) any {
			c.need(0)
			list := append([]any{}, iterate(v)...)
			slices.Reverse(list)
			if _, is := v.(string); is {
				var b strings.Builder
				for _, r := range list {
					b.WriteString(r.(string))
				}
				return b.String()
			}
			return &generator{list}
		},
	}
}

// filtered calls a filter by its name.
func filtered(v any, c *call) any {
	f, ok := filters[c.name]
	if !ok {
		unsupported("the filter " + strconv.Quote(c.name))
	}
	return f(v, c)
}

func end(list []any, last bool) any {
	switch {
	case len(list) == 0:
		return nil
	case last:
		return plainValue(list[len(list)-1])
	}
	return plainValue(list[0])
}

func filterDefault(v any, c *call) any {
	a := c.bind("default_value", "boolean")
	if v == nil || truth(or(a, "boolean", false)) && !truth(v) {
		return or(a, "default_value", "")
	}
	return v
}

func filterEscape(v any, c *call) any {
	c.need(0)
	return strings.NewReplacer("&", "&amp;", ">", "&gt;", "<", "&lt;", "'", "&#39;", `"`, "&#34;").Replace(str(v))
}

// filterItems lists the members of a dict in their order.
func filterItems(v any, c *call) any {
	c.need(0)
	switch x := v.(type) {
	case nil:
		return &generator{}
	case *exec.Dict:
		return &generator{items(x)}
	}
	failf("can only get item pairs from a mapping")
	return nil
}

// filterIndent puts spaces, or another text, before all lines but the first.
func filterIndent(v any, c *call) any {
	a := c.bind("width", "first", "blank")
	text := c.text(v)
	by, ok := or(a, "width", 4).(string)
	if !ok {
		n := c.number(or(a, "width", 4))
		if n > maxTimes {
			unsupported("indent by " + strconv.Itoa(n))
		}
		by = strings.Repeat(" ", max(n, 0))
	}
	lines := splitlines(text+"\n", false)
	blank, n := truth(or(a, "blank", false)), 0
	for i := range lines {
		line := lines[i].(string)
		if i > 0 && (blank || line != "") || i == 0 && truth(or(a, "first", false)) {
			line = by + line
		}
		lines[i], n = line, n+len(line)+1
	}
	return limited(n, func() string {
		var b strings.Builder
		for i, line := range lines {
			if i > 0 {
				b.WriteByte('\n')
			}
			b.WriteString(line.(string))
		}
		return b.String()
	})
}

// folded is what texts are compared by where case counts for nothing.
func folded(v any, caseSensitive bool) any {
	if s, ok := v.(string); ok && !caseSensitive {
		return lower(s)
	}
	return v
}

func filterDictsort(v any, c *call) any {
	a := c.bind("case_sensitive", "by", "reverse")
	d, ok := v.(*exec.Dict)
	if !ok {
		failf("'%s' object has no attribute 'items'", typeName(v))
	}
	at, ok := map[any]int{"key": 0, "value": 1}[or(a, "by", "key")]
	if !ok {
		failf("you can only sort by either \"key\" or \"value\"")
	}
	sensitive := truth(or(a, "case_sensitive", false))
	list := items(d)
	sorted(list, truth(or(a, "reverse", false)), func(v any) any { return folded(v.(tuple)[at], sensitive) })
	return list
}

// sorted sorts as Python does: what is equal stays in its order, also in reverse.
func sorted(list []any, reverse bool, key func(v any) any) {
	slices.SortStableFunc(list, func(x, y any) int {
		if reverse {
			x, y = y, x
		}
		return order("<", key(plainValue(x)), key(plainValue(y)))
	})
}

// attribute follows a path such as a.0.b.
func attribute(v, path any) any {
	switch p := path.(type) {
	case int:
		return item(v, p)
	case string:
		for _, part := range strings.Split(p, ".") {
			if n, err := strconv.Atoi(part); err == nil && n >= 0 {
				v = item(v, n)
			} else {
				v = item(v, part)
			}
		}
		return v
	}
	failf("an attribute must be a str or an int, not %s", typeName(path))
	return nil
}

func attributeOf(a map[string]any, name string) func(v any) any {
	path := or(a, name, null)
	if path == any(null) {
		return func(v any) any { return v }
	}
	return func(v any) any { return attribute(v, path) }
}

// whereTrue are the elements of a value, none of one that is false: map and select don't look at that.
func whereTrue(v any) []any {
	if !truth(v) {
		return nil
	}
	return iterate(v)
}

func filterMap(v any, c *call) any {
	list := whereTrue(v)
	mapped := make([]any, len(list))
	if len(c.args) == 0 {
		a := c.bind("attribute", "default")
		if _, ok := a["attribute"]; !ok {
			failf("map requires a filter argument")
		}
		get := attributeOf(a, "attribute")
		for i := range list {
			if mapped[i] = get(plainValue(list[i])); mapped[i] == nil {
				mapped[i] = or(a, "default", nil)
			}
		}
		return &generator{mapped}
	}
	for i := range list {
		c.b.spend(1)
		mapped[i] = filtered(plainValue(list[i]), &call{c.b, c.text(c.args[0]), c.args[1:], c.kw})
	}
	if len(list) == 0 && filters[c.text(c.args[0])] == nil {
		unsupported("the filter " + strconv.Quote(str(c.args[0])))
	}
	return &generator{mapped}
}

// filterSelect is select, reject, selectattr or rejectattr.
func filterSelect(byAttribute, keep bool) func(v any, c *call) any {
	return func(v any, c *call) any {
		get, args := func(v any) any { return v }, c.args
		if byAttribute {
			if len(args) == 0 {
				failf("%s: missing parameter for attribute name", c.name)
			}
			path := args[0]
			get, args = func(v any) any { return attribute(v, path) }, args[1:]
		}
		chosen := []any{}
		for _, one := range whereTrue(v) {
			c.b.spend(1)
			value := get(plainValue(one))
			var is bool
			if len(args) == 0 {
				is = truth(value)
			} else {
				is = tested(value, &call{c.b, c.text(args[0]), args[1:], c.kw})
			}
			if is == keep {
				chosen = append(chosen, plainValue(one))
			}
		}
		return &generator{chosen}
	}
}

func filterSort(v any, c *call) any {
	a := c.bind("reverse", "case_sensitive", "attribute")
	sensitive, key := truth(or(a, "case_sensitive", false)), func(v any) any { return v }
	if path, ok := or(a, "attribute", null).(string); ok && strings.Contains(path, ",") {
		key = func(v any) any {
			var all tuple
			for _, part := range strings.Split(path, ",") {
				all = append(all, folded(attribute(v, part), sensitive))
			}
			return all
		}
	} else {
		key = attributeOf(a, "attribute")
	}
	list := append([]any{}, iterate(v)...)
	sorted(list, truth(or(a, "reverse", false)), func(v any) any { return tuple{folded(key(v), sensitive)} }) // equal ones need no order
	return list
}

func filterUnique(v any, c *call) any {
	a := c.bind("case_sensitive", "attribute")
	sensitive, get := truth(or(a, "case_sensitive", false)), attributeOf(a, "attribute")
	var seen, chosen []any
	for _, one := range iterate(v) {
		key := folded(get(plainValue(one)), sensitive)
		hashable(key)
		c.b.spend(1 + len(seen)/100)
		if !slices.ContainsFunc(seen, func(v any) bool { return equal(v, key) }) {
			seen, chosen = append(seen, key), append(chosen, one)
		}
	}
	return &generator{chosen}
}

func filterSum(v any, c *call) any {
	a := c.bind("attribute", "start")
	get, sum := attributeOf(a, "attribute"), or(a, "start", 0)
	for _, one := range iterate(v) {
		if s, is := sum.(string); is {
			failf("sum() can't sum strings: %s", shorter(s))
		}
		sum = binary(c.b, "+", sum, get(plainValue(one)))
	}
	return sum
}

// extreme is max or min.
func extreme(sign int) func(v any, c *call) any {
	return func(v any, c *call) any {
		a := c.bind("case_sensitive", "attribute")
		sensitive, get := truth(or(a, "case_sensitive", false)), attributeOf(a, "attribute")
		var best, bestKey any
		for i, one := range iterate(v) {
			value := plainValue(one)
			key := folded(get(value), sensitive)
			if i == 0 || sign*order(map[int]string{1: ">", -1: "<"}[sign], key, bestKey) > 0 {
				best, bestKey = value, key
			}
		}
		return best
	}
}

func filterJoin(v any, c *call) any {
	a := c.bind("d", "attribute")
	between, get, n := str(or(a, "d", "")), attributeOf(a, "attribute"), 0
	var parts []string
	for _, one := range iterate(v) {
		part := str(get(plainValue(one)))
		parts, n = append(parts, part), n+len(part)+len(between)
	}
	return limited(n, func() string { return strings.Join(parts, between) })
}

func filterBatch(v any, c *call) any {
	a := c.bind("linecount", "fill_with")
	n := c.number(a["linecount"])
	if n < 1 || n > maxRange {
		unsupported("batch by " + strconv.Itoa(n))
	}
	var all []any
	for part := range slices.Chunk(iterate(v), n) {
		part = append([]any{}, part...)
		if fill := or(a, "fill_with", null); fill != any(null) {
			c.b.spend(n)
			for len(part) < n {
				part = append(part, fill)
			}
		}
		all = append(all, part)
	}
	return &generator{all}
}

// filterRound rounds halves to even, as Python does.
func filterRound(v any, c *call) any {
	a := c.bind("precision", "method")
	precision, how := c.number(or(a, "precision", 0)), c.text(or(a, "method", "common"))
	i, f, isWhole, ok := numeric(v)
	if !ok {
		failf("type %s doesn't define __round__", typeName(v))
	}
	if precision > maxTimes || precision < -maxTimes {
		unsupported("round to " + strconv.Itoa(precision) + " places")
	}
	scale := math.Pow(10, float64(precision))
	switch how {
	case "ceil":
		return math.Ceil(f*scale) / scale
	case "floor":
		return math.Floor(f*scale) / scale
	case "common":
	default:
		failf("method must be common, ceil or floor")
	}
	switch {
	case isWhole && precision >= 0:
		return i
	case isWhole:
		return int(math.RoundToEven(f*scale) * math.Pow(10, float64(-precision)))
	case precision < 0:
		return math.RoundToEven(f*scale) / scale
	}
	rounded, err := strconv.ParseFloat(strconv.FormatFloat(f, 'f', precision, 64), 64)
	if err != nil {
		return f
	}
	return rounded
}

func filterInt(v any, c *call) any {
	a := c.bind("default", "base")
	otherwise, base := or(a, "default", 0), c.number(or(a, "base", 10))
	switch x := v.(type) {
	case nil:
		failf("an undefined value is not a number")
	case bool, int:
		i, _, _, _ := numeric(v)
		return i
	case float64:
		return truncated(x, otherwise)
	case string:
		text := strings.TrimFunc(x, space)
		if base == 16 || base == 8 || base == 2 {
			text = strings.TrimPrefix(lower(text), map[int]string{16: "0x", 8: "0o", 2: "0b"}[base])
		}
		if base < 2 || base > 36 {
			unsupported("int to the base " + strconv.Itoa(base))
		}
		if n, err := strconv.ParseInt(text, base, 64); err == nil {
			return int(n)
		}
		if f, ok := pythonFloat(x); ok {
			return truncated(f, otherwise)
		}
	}
	return otherwise
}

func truncated(x float64, otherwise any) any {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return otherwise
	}
	if math.Abs(x) >= 1<<62 {
		unsupported(tooWide)
	}
	return int(x)
}

// pythonFloat is float() of a text.
func pythonFloat(s string) (float64, bool) {
	s = strings.TrimFunc(s, space)
	if strings.ContainsAny(s, "xXpP") {
		return 0, false
	}
	f, err := strconv.ParseFloat(s, 64)
	return f, err == nil || math.IsInf(f, 0)
}

func filterFloat(v any, c *call) any {
	otherwise := or(c.bind("default"), "default", 0.0)
	if v == nil {
		failf("an undefined value is not a number")
	}
	if _, f, _, ok := numeric(v); ok {
		return f
	}
	if s, ok := v.(string); ok {
		if f, ok := pythonFloat(s); ok {
			return f
		}
	}
	return otherwise
}
