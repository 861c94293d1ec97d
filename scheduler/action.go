package scheduler

import (
	"errors"
	"fmt"
	"strconv"
)

// Type is what an action computes.
type Type uint8

// The types of actions. B is I, then W, in one action.
const (
	F Type = iota + 1 // forward
	I                 // input gradient
	W                 // weight gradient
	B                 // backward: input gradient, then weight gradient
)

const typeLetters = "?FIWB"

// String returns the type's letter.
func (t Type) String() string {
	if t < F || t > B {
		t = 0
	}
	return typeLetters[t : t+1]
}

// Action is one microbatch's visit to one stage. The fields are 32 bits wide
// because a large table holds tens of millions of actions.
type Action struct {
	Stage      int32 // the virtual stage
	Type       Type
	Microbatch int32
	// Overlap makes one action of this and the next on its rank, a forward and a
	// backward: it starts when both inputs are there, takes as long as both, and
	// has both outputs at its end (DualPipe's overlapped pair).
	Overlap bool
}

// String writes the action as stage, type, microbatch: 0F3.
func (a Action) String() string { return string(a.appendTo(nil)) }

func (a Action) appendTo(b []byte) []byte {
	b = strconv.AppendInt(b, int64(a.Stage), 10)
	b = append(b, a.Type.String()...)
	return strconv.AppendInt(b, int64(a.Microbatch), 10)
}

// ParseAction reads what String writes, and nothing else: no spaces, no leading
// zeros, no trailing text. Sends, receives and collectives are no actions of a
// table, they follow from it.
func ParseAction(s string) (Action, error) {
	a, err := readAction(s)
	if err != nil {
		return Action{}, fmt.Errorf("%w: action %q: %w", ErrSyntax, shorten(s), err)
	}
	return a, nil
}

func parseType(s string) Type {
	for t := F; t <= B; t++ {
		if s == t.String() {
			return t
		}
	}
	return 0
}

// cutNumber reads the decimal number at the start of s. It refuses numbers
// that no legal table can reach, so that sizes computed from them don't
// overflow.
func cutNumber(s string) (n int32, rest string, err error) {
	digits := 0
	for digits < len(s) && isDigit(s[digits]) {
		digits++
	}
	switch {
	case digits == 0:
		return 0, s, errors.New("no number")
	case digits > 1 && s[0] == '0':
		return 0, s, fmt.Errorf("%s has a leading zero", shorten(s[:digits]))
	}
	v, err := strconv.ParseInt(s[:digits], 10, 32)
	if err != nil || v >= MaxActions {
		return 0, s, fmt.Errorf("%s is above the limit of %d", shorten(s[:digits]), MaxActions-1)
	}
	return int32(v), s[digits:], nil
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
