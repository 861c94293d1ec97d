package scheduler

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// communication is what the cell of a file says besides actions: a transfer between
// stages or a collective within one. A table has none of them: they follow from it.
type communication struct {
	stage, microbatch int32
	op                op
	column            int32 // of its cell in the row, from 1
}

// op is what a communication does.
type op uint8

// The communications. From opUnshard on they are collectives of a stage's ranks, which
// concern its parameters and have no microbatch.
const (
	opSendF op = iota + 1
	opRecvF
	opSendB
	opRecvB
	opUnshard
	opReshard
	opReduceGrad
)

var opNames = [...]string{opSendF: "SEND_F", opRecvF: "RECV_F", opSendB: "SEND_B", opRecvB: "RECV_B",
	opUnshard: "UNSHARD", opReshard: "RESHARD", opReduceGrad: "REDUCE_GRAD"}

// parseOp returns 0 for a name that is none.
func parseOp(s string) op { return op(max(0, slices.Index(opNames[1:], s)+1)) }

// isTransfer says whether it is a send or a receive.
func (o op) isTransfer() bool { return o < opUnshard }

// isSend is for transfers.
func (o op) isSend() bool { return o == opSendF || o == opSendB }

// edge is for transfers.
func (o op) edge() EdgeKind {
	if o == opSendB || o == opRecvB {
		return BackwardEdge
	}
	return ForwardEdge
}

// sendOn and receiveOn are the transfers of an edge.
func sendOn(k EdgeKind) op    { return opSendF + 2*op(k) }
func receiveOn(k EdgeKind) op { return opRecvF + 2*op(k) }

func (c communication) String() string { return string(c.appendTo(nil)) }

func (c communication) appendTo(b []byte) []byte {
	b = strconv.AppendInt(b, int64(c.stage), 10)
	b = append(b, opNames[c.op]...)
	if c.op.isTransfer() {
		b = strconv.AppendInt(b, int64(c.microbatch), 10)
	}
	return b
}

// cell is what a cell of a file holds: an action, a pair of them, or a communication.
type cell struct {
	actions       [2]Action
	numActions    int // 0: a communication
	communication communication
}

// parseCell reads a cell that is not empty, as strictly as ParseAction.
func parseCell(s string) (cell, error) {
	c, err := readCell(s)
	if err != nil {
		return cell{}, fmt.Errorf("%w: cell %q: %w", ErrSyntax, shorten(s), err)
	}
	return c, nil
}

func readCell(s string) (cell, error) {
	if isPair(s) {
		pair, err := readPair(s)
		return cell{actions: pair, numActions: 2}, err
	}
	stage, name, rest, err := cutType(s)
	if err != nil {
		return cell{}, err
	}
	o := parseOp(name)
	switch {
	case parseType(name) != 0:
		a, err := readAction(s)
		return cell{actions: [2]Action{a}, numActions: 1}, err
	case o == 0:
		return cell{}, unknownType(name, "F, I, W, B, "+strings.Join(opNames[1:opReduceGrad], ", ")+" or "+opNames[opReduceGrad])
	case !o.isTransfer() && rest != "":
		return cell{}, fmt.Errorf("%q after %s, which has no microbatch", shorten(rest), name)
	}
	c := cell{communication: communication{stage: stage, op: o}}
	if o.isTransfer() {
		c.communication.microbatch, err = onlyNumber(rest)
	}
	return c, err
}

func isPair(s string) bool { return strings.HasPrefix(s, "(") }

// readPair reads (a;b)OVERLAP_F_B. The forward may stand second, but comes first in
// what is returned.
func readPair(s string) ([2]Action, error) {
	inner, ok := strings.CutSuffix(s[1:], pairSuffix)
	if !ok {
		return [2]Action{}, fmt.Errorf("no %q at the end", pairSuffix)
	}
	first, second, _ := strings.Cut(inner, ";")
	if second == "" || strings.Contains(second, ";") {
		return [2]Action{}, fmt.Errorf("%d actions, want 2", 1+strings.Count(strings.TrimSuffix(inner, ";"), ";"))
	}
	a, err := readAction(first)
	if err != nil {
		return [2]Action{}, fmt.Errorf("first action: %w", err)
	}
	b, err := readAction(second)
	if err != nil {
		return [2]Action{}, fmt.Errorf("second action: %w", err)
	}
	if a.Type != F {
		a, b = b, a
	}
	if a.Type != F || b.Type != B && b.Type != I {
		return [2]Action{}, errors.New("a pair is an F, and a B or I")
	}
	if a.Stage == b.Stage && a.Microbatch == b.Microbatch {
		return [2]Action{}, fmt.Errorf("%v needs %v and cannot run with it", b, a)
	}
	a.Overlap = true
	return [2]Action{a, b}, nil
}

func readAction(s string) (Action, error) {
	stage, name, rest, err := cutType(s)
	if err != nil {
		return Action{}, err
	}
	typ := parseType(name)
	if typ == 0 {
		return Action{}, unknownType(name, "F, I, W or B")
	}
	microbatch, err := onlyNumber(rest)
	if err != nil {
		return Action{}, err
	}
	return Action{Stage: stage, Type: typ, Microbatch: microbatch}, nil
}

// cutType splits STAGE TYPE [MICROBATCH]; the type is anything up to a digit.
func cutType(s string) (stage int32, name, rest string, err error) {
	stage, rest, err = cutNumber(s)
	if err != nil {
		return 0, "", "", fmt.Errorf("stage: %w", err)
	}
	letters := 0
	for letters < len(rest) && !isDigit(rest[letters]) {
		letters++
	}
	return stage, rest[:letters], rest[letters:], nil
}

// onlyNumber reads a microbatch, behind which nothing may stand.
func onlyNumber(s string) (int32, error) {
	n, rest, err := cutNumber(s)
	if err != nil {
		return 0, fmt.Errorf("microbatch: %w", err)
	}
	if rest != "" {
		return 0, fmt.Errorf("%q after the microbatch", shorten(rest))
	}
	return n, nil
}

func unknownType(name, want string) error {
	if name == "BW" {
		return errors.New("BW was the full backward until November 2024, and B the input gradient: write B for BW, and I for that B")
	}
	return fmt.Errorf("unknown type %q, want %s after the stage", shorten(name), want)
}
