package config

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The schema has a row for each field of Config, in the order of the fields, and
// under the name in its tag.
func TestSchemaIsConfig(t *testing.T) {
	var want []string
	var c Config
	walk(&want, t, &c, "", reflect.ValueOf(&c).Elem(), 0)
	if got := keys; !slices.Equal(got, want) {
		t.Errorf("keys = %q, want %q", got, want)
	}
	for _, a := range arrays {
		if !slices.Contains(sections, a.section) {
			t.Errorf("[[%s]] has no row in the schema", a.section)
		}
	}
}

// walk visits the fields of a section, or of the nth table of an array: its own keys first, then those of sections in it.
func walk(keys *[]string, t *testing.T, c *Config, section string, v reflect.Value, nth int) {
	var inner []func()
	for f := range v.Type().Fields() {
		if !f.IsExported() {
			continue
		}
		key, place := strings.TrimPrefix(section+"."+f.Tag.Get("toml"), "."), v.FieldByIndex(f.Index)
		switch {
		case place.Kind() == reflect.Struct:
			inner = append(inner, func() { walk(keys, t, c, key, place, 0) })
		case isTables(place.Type()):
			inner = append(inner, func() {
				if arrayOf(key) == nil {
					t.Errorf("%s is not in arrays", key)
					return
				}
				c.makeTables(key, 2)
				walk(keys, t, c, key, place.Index(1), 2)
			})
		default:
			*keys = append(*keys, key)
			row := lookup(key)
			if row != nil && nth > 0 {
				row = lookup(row.inTable(nth).key)
			}
			if row == nil || row.at(c) != place.Addr().Interface() {
				t.Errorf("the schema's row %s is not %s.%s", key, section, f.Name)
			}
		}
	}
	for _, f := range inner {
		f()
	}
}

// A row's example is a value that the row's own check lets through, and integers
// are bounded, because an int may have 32 bits.
func TestSchemaRows(t *testing.T) {
	for _, f := range schema {
		e := setEntry(f.key, f.example, Pos{Set: f.key + "=" + f.example})
		if err := f.assign(&Config{}, e, false, lookupIn(nil)); err != nil {
			t.Errorf("the example of %s: %v", f.key, err)
		}
		if _, isInt := f.at(&Config{}).(*int); isInt {
			for _, n := range []int64{-1, 1 << 31} {
				if f.checkValue(n, Pos{}, false) == nil {
					t.Errorf("%s may be %d", f.key, n)
				}
			}
		}
	}
}

func TestTemplate(t *testing.T) {
	defaults := parse(t, "data.train = ['data/*.txt']")
	c := parse(t, string(Template()))
	if changes := everyDifference(defaults, c); changes != nil {
		t.Errorf("the template departs from the defaults: %v", changes)
	}
	// With its commented keys put in force it says the same and has every key.
	commented := regexp.MustCompile(`(?m)^# (\w+ *= )`)
	c = parse(t, commented.ReplaceAllString(string(Template()), "$1"))
	if changes := everyDifference(defaults, c); changes != nil {
		t.Errorf("the template's comments depart from the defaults: %v", changes)
	}
	for _, key := range keys {
		if row := lookup(key); arrayOf(row.section()) != nil && strings.Contains(string(Template()), "#   "+row.name()+" = ") {
			continue
		}
		if !c.IsSet(key) {
			t.Errorf("the template lacks %s", key)
		}
	}
}

func TestNearestKey(t *testing.T) {
	for _, c := range []struct{ section, name, want string }{
		{"model", "hiden", "model.hidden"},
		{"model", "microbatch", "batch.microbatch"},
		{"batch", "mircobatch", "batch.microbatch"},
		{"", "microbatches", "batch.microbatch"},
		{"optimzer", "name", "optimizer.name"},
		{"rnu", "name", "run.name"},
		{"optimizer", "warmup", "optimizer.warmup_steps"},
		{"pipeline", "sched", "pipeline.schedule"},
		{"model", "layer", "model.layers"},
		{"run", "nam", "run.name"},
		{"model", "foo", ""},
		{"", "", ""},
	} {
		if got := nearestKey(c.section, c.name); got != c.want {
			t.Errorf("nearestKey(%q, %q) = %q, want %q", c.section, c.name, got, c.want)
		}
	}
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"", "ab", 2}, {"ab", "", 2}, {"abc", "abc", 0}, {"abc", "abd", 1},
		{"abc", "acb", 1}, {"abcd", "bc", 2}, {"kitten", "sitting", 3}, {"war", "warmup_steps", 1}, {"wa", "warm", 2},
	} {
		if got := distance(c.a, c.b); got != c.want {
			t.Errorf("distance(%q, %q) = %d, want %d", c.a, c.b, got, c.want)
		}
	}
}

func ExampleParse() {
	text := `
[model]
hidden = 100
heads  = 3
layrs  = 2

[data]
train = ["data/*.txt"]
`
	_, err := Parse("config.toml", []byte(text), []string{"run.steps=0"}, nil)
	fmt.Println(err)
	// Output:
	// config.toml:3:10: model.hidden: 100 is not divisible by model.heads = 3 (remainder 1); make hidden a multiple of heads
	// config.toml:5:1: model.layrs: unknown key; did you mean model.layers?
	// --set run.steps=0: run.steps: 0 is too small; use 1 to 1000000000
}
