package scheduler

import "testing"

// TestOutOfOrder: Check names the passes whose order changes the last bits of gradients, and no
// others.
func TestOutOfOrder(t *testing.T) {
	for _, c := range []struct {
		name, csv string
		want      OutOfOrder
		text      string
	}{
		{"in order", "0F0,0F1,0I0,0I1,0W0,0W1\n", OutOfOrder{}, ""},
		{"weight gradients", "0F0,0F1,0I0,0I1,0W1,0W0\n", OutOfOrder{WeightGrads: true}, "weight gradients"},
		{"backwards", "0F0,0F1,0B1,0B0\n", OutOfOrder{WeightGrads: true}, "weight gradients"},
		{"the loss's forwards", "0F1,0F0,0B0,0B1\n", OutOfOrder{LossForwards: true}, "forwards of the last chunk"},
		{"the loss's forwards on the second rank", "0F0,0F1,0B0,0B1\n1F1,1F0,1B0,1B1\n", OutOfOrder{LossForwards: true},
			"forwards of the last chunk"},
		{"other forwards", "0F1,0F0,0B0,0B1\n1F0,1F1,1B0,1B1\n", OutOfOrder{}, ""},
		{"input gradients", "0F0,0F1,0I1,0I0,0W0,0W1\n", OutOfOrder{InputGrads: true}, "input gradients"},
		{"an input gradient before a backward", "0F0,0F1,0I1,0B0,0W1\n", OutOfOrder{InputGrads: true}, "input gradients"},
		{"an input gradient after a backward", "0F0,0F1,0B1,0I0,0W0\n", OutOfOrder{WeightGrads: true, InputGrads: true},
			"weight gradients and input gradients"},
		{"all", "0F1,0F0,0I1,0I0,0W1,0W0\n", OutOfOrder{true, true, true}, "weight gradients and forwards of the last chunk and input gradients"},
		{"forwards alone", "0F1,0F0\n", OutOfOrder{}, ""},
	} {
		if got := check(t, readCSV(t, c.csv)).OutOfOrder; got != c.want || got.String() != c.text || got.Any() != (c.text != "") {
			t.Errorf("%s: %+v, %q; want %+v, %q", c.name, got, got, c.want, c.text)
		}
	}
}
