package config

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
)

// A value that load returns is an int64, float64, string, bool, []string, []int64 or [][2]float64.

// load returns the field's value in c.
func (f *field) load(c *Config) any {
	switch p := f.at(c).(type) {
	case *int:
		return int64(*p)
	case *uint64:
		return int64(*p)
	case *float64:
		return *p
	case *string:
		return *p
	case *bool:
		return *p
	case *[]string:
		return *p
	case *[][2]float64:
		return *p
	case *[]int:
		list := make([]int64, len(*p))
		for i, n := range *p {
			list[i] = int64(n)
		}
		return list
	}
	panic("config: " + f.key + " has a type that no key may have")
}

// store sets the field in c to a value that load could have returned.
func (f *field) store(c *Config, v any) {
	switch p := f.at(c).(type) {
	case *int:
		*p = int(v.(int64))
	case *uint64:
		*p = uint64(v.(int64))
	case *float64:
		*p = v.(float64)
	case *string:
		*p = v.(string)
	case *bool:
		*p = v.(bool)
	case *[]string:
		*p = v.([]string)
	case *[][2]float64:
		*p = v.([][2]float64)
	case *[]int:
		*p = nil
		for _, n := range v.([]int64) {
			*p = append(*p, int(n))
		}
	}
}

// render writes a value as TOML.
func render(v any) string {
	switch v := v.(type) {
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		s := strings.ToLower(strconv.FormatFloat(v, 'g', -1, 64)) // nan and +inf as in TOML
		if !strings.ContainsAny(s, ".en") {                       // else TOML reads an integer
			s += ".0"
		}
		return s
	case string:
		return quote(v)
	case bool:
		return strconv.FormatBool(v)
	case []int64:
		if len(v) == 1 { // as people write it
			return render(v[0])
		}
		items := make([]string, len(v))
		for i, n := range v {
			items[i] = render(n)
		}
		return "[" + strings.Join(items, ", ") + "]"
	case [][2]float64:
		items := make([]string, len(v))
		for i, pair := range v {
			items[i] = "[" + render(int64(pair[0])) + ", " + render(pair[1]) + "]"
		}
		return "[" + strings.Join(items, ", ") + "]"
	case []string:
		items := make([]string, len(v))
		for i, s := range v {
			items[i] = quote(s)
		}
		return "[" + strings.Join(items, ", ") + "]"
	}
	panic(fmt.Sprintf("config: no key has a value of type %T", v))
}

// quote writes a TOML basic string.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case !unicode.IsPrint(r) && r > 0xFFFF:
			fmt.Fprintf(&b, `\U%08X`, r)
		case !unicode.IsPrint(r): // it could control a terminal
			fmt.Fprintf(&b, `\u%04X`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
