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
	F Type = iota + 1 // forward
	I                 // input gradient
	W                 // weight gradient
	B                 // backward: input gradient, then weight gradient
)

var typeNames = [...]string{"?", F: "F", I: "I", W: "W", B: "B",
	sendF: "SEND_F", recvF: "RECV_F", sendB: "SEND_B", recvB: "RECV_B", waitSendF: "WAIT_SEND_F", waitSendB: "WAIT_SEND_B",
	unshard: "UNSHARD", reshard: "RESHARD", reduceGrad: "REDUCE_GRAD", waitReduceGrad: "WAIT_REDUCE_GRAD"}

// String returns the type's letter.
func (t Type) String() string {
	if int(t) >= len(typeNames) {
		t = 0
	}
	return typeNames[t]
}

// Action is one pass of one microbatch through one chunk. The fields are 32 bits wide because a
// large table holds tens of millions of actions.
type Action struct {
	Chunk      int32 // from 0, in pipeline order over all ranks
	Type       Type
	Microbatch int32
	// Overlap joins this action and the next one on its rank, a forward and a backward, into one.
	// The pair starts when both inputs have arrived, takes as long as both actions together, and
	// delivers both outputs at its end (DualPipe's overlapped pair).
	Overlap bool
}

// String writes the action as chunk, type, microbatch: 0F3 is the forward of microbatch 3 on chunk
// 0.
func (a Action) String() string { return string(a.appendTo(nil)) }

func (a Action) appendTo(b []byte) []byte {
	b = strconv.AppendInt(b, int64(a.Chunk), 10)
	b = append(b, a.Type.String()...)
	if a.Type.isCollective() {
		return b
	}
	return strconv.AppendInt(b, int64(a.Microbatch), 10)
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
