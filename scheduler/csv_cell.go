package scheduler

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// The types of the other cells of a file: transfers between chunks, waits for the ends of sends,
// and collectives of a chunk's ranks, which concern its parameters and have no microbatch. A table
// has none of them, since they follow from its actions.
const (
	sendF Type = BC + 1 + iota
	recvF
	sendB
	recvB
	waitSendF
	waitSendB
	unshard
	reshard
	reduceGrad
	waitReduceGrad
	numTypes
)

// isCommunication reports whether the type stands in files only.
func (t Type) isCommunication() bool { return t >= sendF }

func (t Type) isTransfer() bool { return sendF <= t && t <= recvB }

func (t Type) isSend() bool { return t == sendF || t == sendB }

func (t Type) isWaitSend() bool { return t == waitSendF || t == waitSendB }

func (t Type) isCollective() bool { return t >= unshard }

// transferEdge returns the kind of edge of a transfer or of a wait for a send.
func (t Type) transferEdge() EdgeKind {
	switch t {
	case sendB, recvB, waitSendB:
		return BackwardEdge
	}
	return ForwardEdge
}

// sendOn, receiveOn and waitSendOn return the types of an edge's send, receive and wait for the
// send.
func sendOn(k EdgeKind) Type     { return sendF + 2*Type(k) }
func receiveOn(k EdgeKind) Type  { return recvF + 2*Type(k) }
func waitSendOn(k EdgeKind) Type { return waitSendF + Type(k) }

// csvCell is the content of one cell: an action, a pair of actions, a pair in parts, or a
// communication.
type csvCell struct {
	actions [2]Action
	width   int
	parts   *[]Action // instead of actions
}

func (c *csvCell) all() []Action {
	if c.parts != nil {
		return *c.parts
	}
	return c.actions[:c.width]
}

// parseCell reads a cell that is not empty and has no spaces around it.
func parseCell(s string) (csvCell, error) {
	c, err := readCell(s)
	if err != nil {
		if mark := strayMark(s); mark != "" {
			return csvCell{}, fmt.Errorf("%w: cell %q has %s", ErrSyntax, shorten(s), mark)
		}
		return csvCell{}, fmt.Errorf("%w: cell %q: %w", ErrSyntax, shorten(s), err)
	}
	return c, nil
}

func readCell(s string) (csvCell, error) {
	if isPair(s) {
		if strings.Contains(s, ".") {
			parts, err := readParts(s)
			return csvCell{parts: &parts}, err
		}
		pair, err := readPair(s)
		return csvCell{actions: pair, width: 2}, err
	}
	a, err := readTyped(s, numTypes-1)
	if err == nil && a.Type.IsExchange() {
		err = fmt.Errorf("%s stands alone: an exchange of tokens stands between the parts of a pair", a.Type)
	}
	return csvCell{actions: [2]Action{a}, width: 1}, err
}

// readParts reads (part;part;…)OVERLAP_F_B. Check says whether the parts are whole and in order.
func readParts(s string) ([]Action, error) {
	inner, ok := strings.CutSuffix(s[1:], pairSuffix)
	if !ok {
		return nil, fmt.Errorf("%q is missing at the end", pairSuffix)
	}
	var parts []Action
	for text := range strings.SplitSeq(inner, ";") {
		text = strings.TrimSpace(text)
		whole, part, cut := strings.Cut(text, ".")
		if !cut {
			return nil, fmt.Errorf("%q has no number of a part: cut both actions of a pair, or none", shorten(text))
		}
		a, err := readTyped(whole, BC)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", shorten(text), err)
		}
		n, rest, err := cutNumber(part)
		switch {
		case err != nil:
			return nil, fmt.Errorf("%q: part: %w", shorten(text), err)
		case rest != "":
			return nil, fmt.Errorf("%q: unexpected %q after the part", shorten(text), shorten(rest))
		case n < 1 || n > MaxParts:
			return nil, fmt.Errorf("%q: part %d: want 1 to %d", shorten(text), n, MaxParts)
		}
		a.Part, a.Overlap = uint16(n), true
		parts = append(parts, a)
	}
	parts[len(parts)-1].Overlap = false
	return parts, nil
}

func isPair(s string) bool { return strings.HasPrefix(s, "(") }

// readPair reads (a;b)OVERLAP_F_B. The forward may stand second in the text; it comes first in the
// result.
func readPair(s string) ([2]Action, error) {
	inner, ok := strings.CutSuffix(s[1:], pairSuffix)
	if !ok {
		return [2]Action{}, fmt.Errorf("%q is missing at the end", pairSuffix)
	}
	first, second, _ := strings.Cut(inner, ";")
	if second == "" || strings.Contains(second, ";") {
		return [2]Action{}, fmt.Errorf("the pair has %d actions, want 2", 1+strings.Count(strings.TrimSuffix(inner, ";"), ";"))
	}
	a, err := readAction(strings.TrimSpace(first))
	if err != nil {
		return [2]Action{}, fmt.Errorf("first action: %w", err)
	}
	b, err := readAction(strings.TrimSpace(second))
	if err != nil {
		return [2]Action{}, fmt.Errorf("second action: %w", err)
	}
	if a.Type != F {
		a, b = b, a
	}
	if a.Type != F || b.Type != B && b.Type != I {
		return [2]Action{}, errors.New("a pair must be an F and a B or I")
	}
	if a.Chunk == b.Chunk && a.Microbatch == b.Microbatch {
		return [2]Action{}, fmt.Errorf("%v depends on %v, so they cannot run together", b, a)
	}
	a.Overlap = true
	return [2]Action{a, b}, nil
}

func readAction(s string) (Action, error) { return readTyped(s, B) }

// readTyped reads a cell with one of the types up to last.
func readTyped(s string, last Type) (Action, error) {
	chunk, name, rest, err := cutType(s)
	if err != nil {
		return Action{}, err
	}
	a := Action{Chunk: chunk, Type: parseType(name)}
	switch {
	case a.Type == 0 || a.Type > last:
		names := typeNames[F:last]
		if last > BC { // an exchange stands in parts only
			names = slices.Concat(typeNames[F:FD], typeNames[sendF:last])
		}
		return Action{}, unknownType(name, strings.Join(names, ", ")+" or "+last.String())
	case !a.Type.isCollective():
		a.Microbatch, err = onlyNumber(rest)
	case rest != "":
		err = fmt.Errorf("unexpected %q after %s, which has no microbatch", shorten(rest), name)
	}
	return a, err
}

// cutType splits STAGE TYPE [MICROBATCH]; the type is anything up to a digit.
func cutType(s string) (chunk int32, name, rest string, err error) {
	chunk, rest, err = cutNumber(s)
	if err != nil {
		return 0, "", "", fmt.Errorf("chunk: %w", err)
	}
	letters := 0
	for letters < len(rest) && !isDigit(rest[letters]) {
		letters++
	}
	return chunk, rest[:letters], rest[letters:], nil
}

// onlyNumber reads a microbatch, which must end the text.
func onlyNumber(s string) (int32, error) {
	n, rest, err := cutNumber(s)
	if err != nil {
		return 0, fmt.Errorf("microbatch: %w", err)
	}
	if rest != "" {
		return 0, fmt.Errorf("unexpected %q after the microbatch", shorten(rest))
	}
	return n, nil
}

func unknownType(name, want string) error {
	if name == "BW" {
		return errors.New("type BW: until November 2024 PyTorch wrote BW for the full backward and B for the input gradient. Write B for BW, and I for the old B")
	}
	return fmt.Errorf("unknown type %q, want %s after the chunk", shorten(name), want)
}
