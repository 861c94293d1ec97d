package samples

import (
	"fmt"
	"math"
	"slices"
	"unicode/utf8"

	"github.com/troupe-ml/troupe/internal/base/strictjson"
)

// labels turns what stands in a file for a class into the class' id. The first label says
// whether labels are numbers or names.
type labels struct {
	classes int      // given; 0: whatever the data has
	names   []string // given, or in the order in which they were first seen
	ids     map[string]int32
	fixed   bool   // the names were given
	first   string // the first label, and where it stood
	firstAt *PlaceError
	largest int32 // of numbers
}

func newLabels(o Options) *labels {
	l := &labels{classes: o.Classes, ids: make(map[string]int32), fixed: len(o.ClassNames) > 0, largest: -1}
	if l.fixed {
		l.classes = max(o.Classes, len(o.ClassNames))
	}
	for i, name := range o.ClassNames {
		l.ids[name] = int32(i)
		l.names = append(l.names, name)
	}
	return l
}

// id is that of a label. Ids of names that were not given are for finish to put in order.
func (l *labels) id(text string, at PlaceError) (int32, error) {
	if l.fixed {
		id, known := l.ids[text]
		if !known {
			return 0, fmt.Errorf("%w: found %s, which is none of the %d classes %s", ErrLabel, shown(text), len(l.names), list(l.names))
		}
		return id, nil
	}
	number, isNumber := parseNumber(text)
	if l.firstAt == nil {
		l.first, l.firstAt = text, &at
	} else if named := len(l.names) > 0; isNumber == named {
		is, was := "name", "number"
		if isNumber {
			is, was = was, is
		}
		return 0, fmt.Errorf("%w: the label %s is a %s, but line %d of %s has the %s %s: labels are all numbers or all names; mend the line, or give all names by data.class_names",
			ErrLabel, shown(text), is, l.firstAt.Line, strictjson.Plain(l.firstAt.File), was, shown(l.first))
	}
	if isNumber {
		return l.number(text, number)
	}
	return l.name(text)
}

func (l *labels) number(text string, v float64) (int32, error) {
	if v != math.Trunc(v) {
		return 0, fmt.Errorf("%w: found %s, labels are whole numbers from 0 up or names: to predict numbers set data.targets in place of data.label", ErrLabel, shown(text))
	}
	if err := classInRange(v, l.classes); err != nil {
		return 0, err
	}
	l.largest = max(l.largest, int32(v))
	return int32(v), nil
}

// classInRange says whether a whole number is one of as many classes; 0: as many as there may be.
func classInRange(v float64, classes int) error {
	switch most := orElse(classes, limitClasses); {
	case v < 0:
		return fmt.Errorf("%w: found %.0f, classes are numbered from 0 up: number them so, or give names for them", ErrLabel, v)
	case v < float64(most):
		return nil
	case classes == 0:
		return fmt.Errorf("%w: found %.0f, but there may be %d classes at most", ErrLabel, v, most)
	default:
		return fmt.Errorf("%w: found %.0f, but the %d classes are 0 to %d: mend it, or set data.classes", ErrLabel, v, most, most-1)
	}
}

func (l *labels) name(text string) (int32, error) {
	if text == "" {
		return 0, fmt.Errorf("%w: there is no label", ErrLabel)
	}
	if id, known := l.ids[text]; known {
		return id, nil
	}
	if !utf8.ValidString(text) { // a run's files, which keep the names, could not have it
		return 0, fmt.Errorf("%w: the label %s is not UTF-8: is the file in Latin-1 or Windows-1252? Save it as UTF-8", ErrFormat, shown(text))
	}
	most := min(orElse(l.classes, limitClassNames), limitClassNames)
	if len(l.names) == most {
		return 0, fmt.Errorf("%w: the name %s is one more than %d classes, which are %s: mend it, or set data.classes; to predict numbers set data.targets in place of data.label",
			ErrLabel, shown(text), most, list(l.names))
	}
	id := int32(len(l.names))
	l.ids[text] = id
	l.names = append(l.names, text)
	return id, nil
}

// finish puts the ids of names, which are in all, in the order of the names. It returns
// the number of classes, and the names.
func (l *labels) finish(all []int32) (classes int, names []string) {
	switch {
	case l.fixed:
		return l.classes, l.names
	case len(l.names) == 0:
		return orElse(l.classes, int(l.largest)+1), nil
	}
	names = slices.Clone(l.names)
	slices.Sort(names)
	place := make([]int32, len(names)) // of each id
	for i, name := range names {
		place[l.ids[name]] = int32(i)
	}
	for i, id := range all {
		all[i] = place[id]
	}
	return orElse(l.classes, len(names)), names
}
