package rundir

import (
	"reflect"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/telemetry/event"
)

func TestChanges(t *testing.T) {
	for _, tt := range []struct {
		text string
		want []event.Change
		err  string
	}{
		{"", nil, ""},
		{`{"kind":"pause","step":3}` + "\n" + `{"kind":"rate","step":4,"lr":0.5,"min_lr":0.1}` + "\n",
			[]event.Change{{Kind: event.ChangePause, Step: 3}, {Kind: event.ChangeRate, Step: 4, LR: 0.5, MinLR: 0.1}}, ""},
		{`{"kind":"pause","step":3}` + "\nx", nil, "row 2"},
		{`{"kind":"pause","step":3} {}`, nil, "row 1: there is text after the object"},
		{`{"kind":"jump","step":3}`, nil, `row 1: unknown change "jump"`},
		{`{"kind":"pause","steps":3}`, nil, "row 1"},
		{`{"kind":"rate","step":3}`, nil, "row 1: learning rate with peak 0 and floor 0"},
		{`{"kind":"rate","step":3,"lr":1e999}`, nil, "row 1"},
		{"\n", nil, "row 1"},
		{strings.Repeat(`{"kind":"pause","step":3}`+"\n", limitChanges+1), nil, "more than 10000 rows"},
	} {
		got, err := parseChanges([]byte(tt.text))
		if !reflect.DeepEqual(got, tt.want) || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%.60q: %v, %v", tt.text, got, err)
		}
	}
}

// FuzzChanges: whatever the journal holds, it is read or refused.
func FuzzChanges(f *testing.F) {
	f.Add([]byte(`{"kind":"pause","step":3}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		all, err := parseChanges(text)
		for _, c := range all {
			if err == nil && c.Check() != nil {
				t.Errorf("%+v is taken", c)
			}
		}
	})
}
