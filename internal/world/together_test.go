package world

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/scheduler"
)

// TestOneList: the operations of a pair stand in the order of its parts, and each waits for the exchange that it has begun.
func TestOneList(t *testing.T) {
	pass := func(name string) []Op { // a part, an exchange, a part, an exchange, a part
		begin := func(what string) Op { return Op{What: name + what, Later: true, Exchange: true, Back: what == "<"} }
		return []Op{{What: name + "1"}, begin(">"), AwaitOne(1), {What: name + "2"}, begin("<"), AwaitOne(2), {What: name + "3"}}
	}
	pair := []scheduler.Action{{Type: scheduler.F, Microbatch: 1}, {Type: scheduler.B}}
	for _, c := range []struct {
		order []int // nil: in turns
		want  string
	}{
		{nil, "f1 f> b1 b> 1 f2 f< 2 b2 b< 3 f3 4 b3"},
		{[]int{0, 0, 1, 0, 1, 1}, "f1 f> 1 f2 f< b1 b> 2 f3 3 b2 b< 4 b3"},
		{[]int{1, 1, 1, 0, 0, 0}, "b1 b> 1 b2 b< 2 b3 f1 f> 3 f2 f< 4 f3"},
	} {
		ops, err := inOneList(pair, [][]Op{pass("f"), pass("b")}, true, func(exchanges ...[]scheduler.Type) ([]int, error) {
			if want := [][]scheduler.Type{{scheduler.FD, scheduler.FC}, {scheduler.BD, scheduler.BC}}; !reflect.DeepEqual(exchanges, want) {
				t.Errorf("the exchanges are %v, want %v", exchanges, want)
			}
			if c.order != nil {
				return c.order, nil
			}
			return scheduler.Turns(3, 3), nil
		})
		var words []string
		for _, o := range ops {
			if o.Group < 0 {
				o.What = fmt.Sprint(o.Number)
			}
			words = append(words, o.What)
		}
		if got := strings.Join(words, " "); err != nil || got != c.want {
			t.Errorf("order %v: %s, %v, want %s", c.order, got, err, c.want)
		}
	}
	for _, ops := range [][][]Op{{pass("f")}, {pass("f"), pass("b")}} {
		if _, err := inOneList(pair, ops, true, func(exchanges ...[]scheduler.Type) ([]int, error) {
			if len(exchanges[0]) != 2 || len(exchanges) != len(ops) {
				t.Errorf("%d passes have the exchanges %v", len(ops), exchanges)
			}
			return nil, scheduler.ErrExchange
		}); !errors.Is(err, scheduler.ErrExchange) {
			t.Errorf("%d passes with exchanges of another model: %v", len(ops), err)
		}
	}
}
