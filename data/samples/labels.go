package samples

import (
	"fmt"
	"math"
	"slices"
	"unicode/utf8"

	"github.com/troupe-ml/troupe/internal/base/strictjson"
)

// labels turns a file's text for a class into the id of the class. The first label determines
// whether labels are numbers or names.
type labels struct {
	classes int      // configured; 0: take the number from the data
	names   []string // configured, or in the order of their first occurrence
	ids     map[string]int32
	fixed   bool   // the names are configured
	first   string // the first label, and its place
	firstAt *PlaceError
	largest int32 // largest number
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

// id returns the id of a label. finish reorders the ids of names that are not configured.
func (l *labels) id(text string, at PlaceError) (int32, error) {
	if l.fixed {
		id, known := l.ids[text]
		if !known {
			return 0, fmt.Errorf("%w: found %s, which is not one of the %d classes %s", ErrLabel, shown(text), len(l.names), list(l.names))
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
		return 0, fmt.Errorf("%w: the label %s is a %s, but line %d of %s has the %s %s: labels must be all numbers or all names. Fix the line, or list all names in data.class_names",
			ErrLabel, shown(text), is, l.firstAt.Line, strictjson.Plain(l.firstAt.File), was, shown(l.first))
	}
	if isNumber {
		return l.number(text, number)
	}
	return l.name(text)
}

func (l *labels) number(text string, v float64) (int32, error) {
	if v != math.Trunc(v) {
		return 0, fmt.Errorf("%w: found %s, but labels must be integers from 0 or names: to predict numbers, set data.targets instead of data.label", ErrLabel, shown(text))
	}
	if err := classInRange(v, l.classes); err != nil {
		return 0, err
	}
	l.largest = max(l.largest, int32(v))
	return int32(v), nil
}

// classInRange checks that an integer is the number of a class; 0 classes: up to the limit.
func classInRange(v float64, classes int) error {
	switch most := orElse(classes, limitClasses); {
	case v < 0:
		return fmt.Errorf("%w: found %.0f, but classes are numbered from 0: renumber them, or use names", ErrLabel, v)
	case v < float64(most):
		return nil
	case classes == 0:
		return fmt.Errorf("%w: found %.0f, but the limit is %d classes", ErrLabel, v, most)
	default:
		return fmt.Errorf("%w: found %.0f, but the %d classes are numbered 0 to %d: fix it, or set data.classes", ErrLabel, v, most, most-1)
	}
}

func (l *labels) name(text string) (int32, error) {
	if text == "" {
		return 0, fmt.Errorf("%w: the label is missing", ErrLabel)
	}
	if id, known := l.ids[text]; known {
		return id, nil
	}
	if !utf8.ValidString(text) { // a run's files store the names and must be UTF-8
		return 0, fmt.Errorf("%w: the label %s is not UTF-8: save the file as UTF-8 (it may be Latin-1 or Windows-1252)", ErrFormat, shown(text))
	}
	most := min(orElse(l.classes, limitClassNames), limitClassNames)
	if len(l.names) == most {
		return 0, fmt.Errorf("%w: the name %s exceeds the limit of %d classes, which are %s: fix it, or set data.classes; to predict numbers, set data.targets instead of data.label",
			ErrLabel, shown(text), most, list(l.names))
	}
	id := int32(len(l.names))
	l.ids[text] = id
	l.names = append(l.names, text)
	return id, nil
}

// finish sorts the names and renumbers their ids in all accordingly. It returns the number of
// classes, and the names.
func (l *labels) finish(all []int32) (classes int, names []string) {
	switch {
	case l.fixed:
		return l.classes, l.names
	case len(l.names) == 0:
		return orElse(l.classes, int(l.largest)+1), nil
	}
	names = slices.Clone(l.names)
	slices.Sort(names)
	place := make([]int32, len(names)) // new id of each id
	for i, name := range names {
		place[l.ids[name]] = int32(i)
	}
	for i, id := range all {
		all[i] = place[id]
	}
	return orElse(l.classes, len(names)), names
}
