package scheduler

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
)

// Type says which pass an action runs.
type Type uint8

// The types of actions. B is I followed by W in one action.
const (
	F  Type = iota + 1 // forward
	I                  // input gradient
	W                  // weight gradient
	B                  // backward: input gradient, then weight gradient
	FD                 // dispatch of an F: tokens travel to the ranks of their experts
	FC                 // combine of an F: results travel back
	BD                 // the same of an I or B
	BC
)

var typeNames = [...]string{"?", F: "F", I: "I", W: "W", B: "B", FD: "FD", FC: "FC", BD: "BD", BC: "BC",
	sendF: "SEND_F", recvF: "RECV_F", sendB: "SEND_B", recvB: "RECV_B", waitSendF: "WAIT_SEND_F", waitSendB: "WAIT_SEND_B",
	unshard: "UNSHARD", reshard: "RESHARD", reduceGrad: "REDUCE_GRAD", waitReduceGrad: "WAIT_REDUCE_GRAD"}

// String returns the type's letter.
func (t Type) String() string {
	if int(t) >= len(typeNames) {
		t = 0
	}
	return typeNames[t]
}

// IsExchange reports whether the type is an exchange of tokens with the ranks of their experts.
func (t Type) IsExchange() bool { return FD <= t && t <= BC }

// IsForward reports whether the type is that of a forward, or of one of its exchanges.
func (t Type) IsForward() bool { return t == F || t == FD || t == FC }

// Action is one pass of one microbatch through one chunk. The fields are 32 bits wide because a
// large table holds tens of millions of actions.
type Action struct {
	Chunk      int32 // from 0, in pipeline order over all ranks
	Type       Type
	Microbatch int32
	// Overlap joins this action and the next one on its rank, a forward and a backward, into one.
	// The pair starts when both inputs have arrived, takes as long as both actions together, and
	// delivers both outputs at its end (DualPipe's overlapped pair). Where the actions are cut into
	// parts, it joins all of them.
	Overlap bool
	// Part is the number, from 1, of a part of an action that is cut at its exchanges of tokens, or of
	// an exchange (FD, FC, BD, BC), which follows the part of its number; 0: the whole action. See
	// Table.Cut.
	Part uint16
}

// String writes the action as chunk, type, microbatch: 0F3 is the forward of microbatch 3 on chunk
// 0, and 0F3.2 its second part.
func (a Action) String() string { return string(a.appendTo(nil)) }

// whole returns the action that a part belongs to.
func (a Action) whole() Action {
	a.Overlap, a.Part = false, 0
	return a
}

// side is 0 for a forward and its exchanges, and 1 for a backward and its own: the two that take turns.
func (a Action) side() int {
	if a.Type.IsForward() {
		return 0
	}
	return 1
}

// edge returns the kind of edge that carries the action's inputs and outputs. Of an action in parts,
// the first stands for all.
func (a Action) edge() (EdgeKind, bool) {
	if a.Part > 1 {
		return ForwardEdge, false
	}
	return a.Type.edge()
}

func (a Action) appendTo(b []byte) []byte {
	b = strconv.AppendInt(b, int64(a.Chunk), 10)
	b = append(b, a.Type.String()...)
	if a.Type.isCollective() {
		return b
	}
	b = strconv.AppendInt(b, int64(a.Microbatch), 10)
	if a.Part > 0 {
		b = strconv.AppendUint(append(b, '.'), uint64(a.Part), 10)
	}
	return b
}

// parseType returns 0 for an unknown name.
func parseType(s string) Type { return Type(slices.Index(typeNames[1:], s) + 1) }

// cutNumber reads the decimal number at the start of s. It refuses numbers that no valid table can
// contain, so that sizes computed from them don't overflow.
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
