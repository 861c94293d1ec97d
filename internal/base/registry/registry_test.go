package registry_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/internal/base/registry"
)

// panicOf is what a function panics with; "" if it does not.
func panicOf(f func()) (text string) {
	defer func() {
		if v := recover(); v != nil {
			text = fmt.Sprint(v)
		}
	}()
	f()
	return ""
}

func TestSet(t *testing.T) {
	t.Cleanup(registry.Restore())
	before := registry.Names()
	s := registry.New[int]("thing", "old")
	s.Add("zebra", 1)
	s.Add("ape_2-x", 2)
	for _, c := range []struct {
		name, want string
	}{
		{"ape_2-x", "registered twice"},
		{"old", "built in"},
		{"", "lower-case word"},
		{"Mine", "lower-case word"},
		{"-x", "lower-case word"},
		{"mine.csv", "lower-case word"},
		{"a b", "lower-case word"},
		{"a\n", "lower-case word"},
		{strings.Repeat("a", registry.MaxNameBytes+1), "at most 64 bytes"},
	} {
		if got := panicOf(func() { s.Add(c.name, 3) }); !strings.Contains(got, c.want) {
			t.Errorf("Add(%q) panics with %q, want %q in it", c.name, got, c.want)
		}
	}
	if got := s.Names(); !slices.Equal(got, []string{"ape_2-x", "zebra"}) {
		t.Errorf("Names() = %v", got)
	}
	if v, ok := s.Get("zebra"); !ok || v != 1 {
		t.Errorf("Get = %v, %v", v, ok)
	}
	if _, ok := s.Get("old"); ok {
		t.Error("what is built in counts as registered")
	}
	// The same name may be of two kinds.
	registry.New[string]("other").Add("zebra", "")
	if got := registry.Missing(before, registry.Names()); !slices.Equal(got, []string{"other zebra", "thing ape_2-x", "thing zebra"}) {
		t.Errorf("all names: %v", got)
	}
	if got := panicOf(func() {
		for i := range registry.MaxNames + 1 {
			s.Add(fmt.Sprintf("many-%d", i), i)
		}
	}); !strings.Contains(got, "256 things, the limit") {
		t.Errorf("the most things: panics with %q", got)
	}
	if err := registry.Check(registry.Names()); err != nil {
		t.Errorf("its own names: %v", err)
	}
}

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		list []string
		want string
	}{
		{nil, ""},
		{[]string{"schedule mine", "layer a-b"}, ""},
		{[]string{"schedule"}, "is not the name"},
		{[]string{"schedule a b"}, "is not the name"},
		{[]string{"schedule \x1b[2J"}, "is not the name"},
		{[]string{"schedule " + strings.Repeat("a", 1000)}, "is not the name"},
		{make([]string, registry.MaxNames+1), "257 registered things"},
	} {
		err := registry.Check(c.list)
		if (err == nil) != (c.want == "") || err != nil && (!strings.Contains(err.Error(), c.want) || len(err.Error()) > 300) {
			t.Errorf("Check(%.40q) = %v, want %q in it", c.list, err, c.want)
		}
	}
}

func TestList(t *testing.T) {
	var list []string
	for i := range 10 {
		list = append(list, fmt.Sprint("thing ", i))
	}
	for _, c := range []struct {
		list []string
		want string
	}{{nil, "nothing"}, {list[:2], "thing 0, thing 1"},
		{list, "thing 0, thing 1, thing 2, thing 3, thing 4, thing 5, thing 6, thing 7 and 2 more"}} {
		if got := registry.List(c.list); got != c.want {
			t.Errorf("List(%v) = %q, want %q", c.list, got, c.want)
		}
	}
}
