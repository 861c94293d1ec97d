package samples

import (
	"fmt"
	"strconv"
	"strings"
)

// ClassCounts holds the number of samples of each class of a label.
type ClassCounts struct {
	Field string
	Names []string // by id; nil: the classes are numbers
	Train []int    // training samples, by id
	Val   []int
}

// CountClasses counts the labels of data that Open has read. It returns nil for other data, which
// may be too large.
func CountClasses(d Data) []ClassCounts {
	if d.Train == nil {
		return nil
	}
	var all []ClassCounts
	for i, f := range d.Train.Fields() {
		if f.Classes == 0 {
			continue
		}
		c := ClassCounts{Field: f.Name, Names: ClassNames(d.Train), Train: make([]int, f.Classes), Val: make([]int, f.Classes)}
		if !count(d.Train, i, c.Train) || d.Val != nil && !count(d.Val, i, c.Val) {
			return nil
		}
		all = append(all, c)
	}
	return all
}

// count adds, for a field, the number of labels with each id. It reports whether the dataset is one
// that it can count.
func count(d Dataset, field int, into []int) bool {
	at, n := d, d.Len()
	index := func(i int) int { return i }
	for {
		s, ok := at.(*subset)
		if !ok {
			break
		}
		inner := index
		index = func(i int) int { return s.indices[inner(i)] }
		at = s.of
	}
	var label func(i int) []int32
	switch d := at.(type) {
	case *table:
		label = func(i int) []int32 { return d.columns[field].sample(i).Int }
	case *idx:
		label = func(i int) []int32 {
			s, err := d.At(i)
			if err != nil {
				return nil
			}
			return s[field].Int
		}
	default:
		return false
	}
	for i := range n {
		for _, id := range label(index(i)) {
			if id >= 0 && int(id) < len(into) {
				into[id]++
			}
		}
	}
	return true
}

func (c ClassCounts) name(id int) string {
	if id < len(c.Names) {
		return shown(c.Names[id])
	}
	return strconv.Itoa(id)
}

// String returns the number of classes, and the number of training samples of the first classes
// that occur.
func (c ClassCounts) String() string {
	text := fmt.Sprintf("%d classes", len(c.Train))
	if len(c.Train) == 1 {
		text = "1 class"
	}
	var some []string
	used := 0
	for id, n := range c.Train {
		if n == 0 {
			continue
		}
		if used++; used <= shownNames {
			some = append(some, fmt.Sprintf("%s (%d)", c.name(id), n))
		}
	}
	if used < len(c.Train) {
		text += fmt.Sprintf(", %d with training samples", used)
	}
	text += ": " + strings.Join(some, ", ")
	if used > shownNames {
		text += fmt.Sprintf(" and %d more", used-shownNames)
	}
	return text
}

// Warnings lists the classes without training samples.
func (c ClassCounts) Warnings() (text []string) {
	var none, onlyVal []int
	val, used := 0, 0
	for id, n := range c.Train {
		switch {
		case n > 0:
			used++
		case c.Val[id] > 0:
			onlyVal, val = append(onlyVal, id), val+c.Val[id]
		default:
			none = append(none, id)
		}
	}
	if len(none) > 0 {
		text = append(text,
			fmt.Sprintf("%d of the %d classes of %s have no sample: %s. Check the labels for typing errors; number the classes from 0 without gaps, or name them",
				len(none), len(c.Train), shown(c.Field), c.listed(none)))
	}
	if len(onlyVal) > 0 {
		text = append(text,
			fmt.Sprintf("%d of the %d classes of %s have validation samples (%d) but no training samples: %s. The model cannot learn them",
				len(onlyVal), len(c.Train), shown(c.Field), val, c.listed(onlyVal)))
	}
	if used == 1 {
		text = append(text, fmt.Sprintf("all training samples have the same class of %s: the model has nothing to distinguish", shown(c.Field)))
	}
	return text
}

// listed names the first of some classes.
func (c ClassCounts) listed(ids []int) string {
	var names []string
	for _, id := range ids[:min(len(ids), shownNames)] {
		names = append(names, c.name(id))
	}
	text := strings.Join(names, ", ")
	if more := len(ids) - shownNames; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
