package optest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/troupe-ml/troupe/tensorops"
)

// Tally is how far Check came.
type Tally struct {
	Cases   int // compared with the oracle's, each twice
	Refused int // of operations that the device says it does not know
	Of      int // of the table, without those that Options skip
}

// Check holds a device to the table of cases as Run does, for a program instead of a test: until
// one fails, until all are through, or until the context's deadline. Each case is run twice, for
// the oracle's numbers and for the same bits again. It is enough if there was time for one case
// of each kind of operation, with which it begins.
func Check(ctx context.Context, dev tensorops.Device, opt Options) (Tally, error) {
	s := dev.NewStream("self-test")
	defer s.Close()
	oracle := opt.Oracle
	if oracle == nil {
		oracle = new(Oracle)
	}
	cases := turns(Cases(opt))
	if opt.Most > 0 {
		cases = cases[:min(opt.Most, len(cases))]
	}
	first := min(len(kindsOf(cases)), len(cases))
	t := Tally{Of: len(cases)}
	for i, c := range cases {
		if err := ctx.Err(); err != nil {
			if i >= first && errors.Is(err, context.DeadlineExceeded) {
				return t, enough(t)
			}
			return t, fmt.Errorf("after %d of %d cases: %w", i, len(cases), err)
		}
		switch err := c.compareTwice(s, oracle, opt.widens(c.Kind)); {
		case err == nil:
			t.Cases++
		case errors.Is(err, tensorops.ErrUnsupported):
			t.Refused++
		default:
			return t, fmt.Errorf("case %s: %w", c.Name, err)
		}
	}
	return t, enough(t)
}

// enough refuses a device that refuses nearly all.
func enough(t Tally) error {
	if t.Cases <= t.Refused {
		return fmt.Errorf("it knows no more than %d of %d cases", t.Cases, t.Cases+t.Refused)
	}
	return nil
}

// compareTwice is compare, and a second run that has to have the same bits.
func (c Case) compareTwice(dev tensorops.Stream, oracle *Oracle, widen float64) error {
	got, err := c.compared(dev, oracle, widen)
	if err != nil {
		return err
	}
	again, err := c.run(dev)
	if err != nil {
		return err
	}
	for i, o := range got {
		if !bytes.Equal(o.host, again[i].host) {
			return fmt.Errorf("%s: a second run has other bits", o.name)
		}
	}
	return nil
}

// turns has the cases of the kinds by turns, the quickest of each first, so that however many
// there is time for, they are of all kinds.
func turns(cases []Case) []Case {
	of := make(map[tensorops.Kind][]Case)
	for _, c := range cases {
		of[c.Kind] = append(of[c.Kind], c)
	}
	kinds := kindsOf(cases)
	for _, k := range kinds {
		slices.SortStableFunc(of[k], func(a, b Case) int { return a.effort() - b.effort() })
	}
	var all []Case
	for len(all) < len(cases) {
		for _, k := range kinds {
			if len(of[k]) > 0 {
				all, of[k] = append(all, of[k][0]), of[k][1:]
			}
		}
	}
	return all
}

// effort orders cases by how long they take the oracle: products that sweep over sizes longest,
// then those that are large.
func (c Case) effort() int {
	for i, word := range []string{"variants", "long", "split", "sizes"} {
		if strings.Contains(c.Name, word) {
			return i
		}
	}
	return 1
}

// kindsOf are the kinds that cases are of, in the order of their first.
func kindsOf(cases []Case) []tensorops.Kind {
	var kinds []tensorops.Kind
	for _, c := range cases {
		if !slices.Contains(kinds, c.Kind) {
			kinds = append(kinds, c.Kind)
		}
	}
	return kinds
}
