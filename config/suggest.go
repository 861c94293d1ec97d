package config

import (
	"fmt"
	"slices"
	"strings"
)

// renamed maps the names that keys had in earlier versions to their new names. Parse rejects the old names and
// says the new one; ParseStored accepts them.
var renamed = map[string]string{
	"pipeline.group": "pipeline.microbatch_group_size",
	"pipeline.bound": "pipeline.max_in_flight",
}

// unknownKey suggests the key that was probably meant, or lists the keys.
func (r *reader) unknownKey(path []string, pos Pos) *Error {
	err := &Error{Pos: pos, Key: joined(path), Msg: "unknown key"}
	if now := renamed[err.Key]; now != "" {
		err.Msg, err.Hint = "this key was renamed", "use "+now
		r.suspect[now] = true
		return err
	}
	section, name := path[0], strings.Join(path[1:], ".")
	if len(path) == 1 {
		section, name = "", path[0]
	}
	for _, a := range arrays {
		if rest, ok := strings.CutPrefix(err.Key, a.section+"."); ok {
			section, name = a.section, rest
		}
	}
	if s, known := synonyms[strings.ReplaceAll(strings.ToLower(name), "-", "_")]; known {
		r.suspect[s.key] = true
		if err.Hint = "use " + s.key; s.note != "" {
			err.Hint += ": " + s.note
		}
	} else if near := nearestKey(strings.ToLower(section), strings.ToLower(name)); near != "" {
		r.suspect[near] = true
		err.Hint = fmt.Sprintf("did you mean %s?", near)
	} else if slices.Contains(sections, section) {
		err.Hint = fmt.Sprintf("use one of the keys of %s: %s", bracketed(section), strings.Join(keysOf(section), ", "))
	} else {
		err.Hint = "use one of the sections " + strings.Join(sections, ", ")
	}
	return err
}

// unknownSection does the same for a header.
func (r *reader) unknownSection(path []string, pos Pos) *Error {
	err := &Error{Pos: pos, Key: joined(path), Msg: "unknown section"}
	if near := nearest(strings.ToLower(err.Key), sections); near != "" {
		err.Hint = fmt.Sprintf("did you mean %s?", bracketed(near))
		r.suspectSection(near)
	} else if lookup(err.Key) != nil {
		err.Msg = "this is a key, not a section"
		err.Hint = fmt.Sprintf("write %s and %s = … below", bracketed(lookup(err.Key).section()), lookup(err.Key).name())
		r.suspect[err.Key] = true
	} else {
		err.Hint = "use one of the sections " + strings.Join(sections, ", ")
	}
	return err
}

func (r *reader) suspectSection(section string) {
	for _, name := range keysOf(section) {
		r.suspect[section+"."+name] = true
	}
}

func keysOf(section string) []string {
	var names []string
	for _, f := range schema {
		if f.section() == section {
			names = append(names, f.name())
		}
	}
	return names
}

// nearestKey returns the key that section and name probably mean, in this
// section or another; "" if none is near.
func nearestKey(section, name string) string {
	if len(section) > maxSuggestBytes {
		return ""
	}
	// A key of the same section first, then the nearest name, then the nearest
	// section: "batch.microbatches" before any other, and "optimzer.name" is not
	// run.name.
	best, bestScore := "", [2]int{}
	for _, f := range schema {
		d := distance(name, f.name())
		if !plausible(name, d) {
			continue
		}
		if f.section() != section {
			d++
		}
		score := [2]int{d, distance(section, f.section())}
		if best == "" || slices.Compare(score[:], bestScore[:]) < 0 {
			best, bestScore = f.key, score
		}
	}
	return best
}

// nearest returns the word of a list that is probably meant; ""
// if none is near.
func nearest(word string, list []string) string {
	best, bestDistance := "", 0
	for _, candidate := range list {
		if d := distance(word, candidate); plausible(word, d) && (best == "" || d < bestDistance) {
			best, bestDistance = candidate, d
		}
	}
	return best
}

// plausible reports whether so many typing errors in a word are likely: about one
// in three letters.
func plausible(word string, distance int) bool { return distance <= max(1, (len(word)+1)/3) }

// distance is the number of letters to add, drop, replace or swap with their
// neighbor to turn a into b. An abbreviation is one letter away from its word, and
// overlong words are far from everything.
func distance(a, b string) int {
	if len(a) > maxSuggestBytes {
		return len(a)
	}
	if len(a) >= 3 && len(a) < len(b) && strings.HasPrefix(b, a) {
		return 1
	}
	// d[i][j] is the distance between the first i letters of a and j of b.
	d := make([][]int, len(a)+1)
	for i := range d {
		d[i] = make([]int, len(b)+1)
		for j := range d[i] {
			switch {
			case i == 0 || j == 0:
				d[i][j] = i + j
				continue
			case a[i-1] == b[j-1]:
				d[i][j] = d[i-1][j-1]
			default:
				d[i][j] = 1 + min(d[i-1][j-1], d[i-1][j], d[i][j-1])
			}
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d[i][j] = min(d[i][j], d[i-2][j-2]+1)
			}
		}
	}
	return d[len(a)][len(b)]
}
