package grid

import "fmt"

// Way is how a tensor travels from the ranks of one tensor group to the ranks of the next one, or of the same one.
type Way uint8

// The values of Way. If each rank holds a slice of the positions, only Direct is possible.
const (
	// Auto is Broadcast if the receiving group is larger, so that each tensor crosses between stages once; otherwise Direct.
	Auto Way = iota
	// Direct sends each rank the parts that it lacks, from a rank that holds them.
	Direct
	// Broadcast sends from the first rank to the first rank, which then broadcasts within its group.
	Broadcast
	// Scatter sends each receiving rank one part; the receiving group then gathers the whole tensor.
	Scatter
	numWays
)

var wayNames = [numWays]string{"auto", "direct", "broadcast", "scatter"}

func (w Way) String() string {
	if w >= numWays {
		return fmt.Sprintf("way(%d)", uint8(w))
	}
	return wayNames[w]
}

// ParseWay returns the Way with the given name.
func ParseWay(name string) (Way, error) {
	for w, n := range wayNames {
		if n == name {
			return Way(w), nil
		}
	}
	return 0, fmt.Errorf("%w: unknown way %q; use one of %q", ErrGrid, name, wayNames)
}

// Piece is one message of a tensor that crosses an edge. The positions are divided into Edge.Units equal parts, and the piece
// carries the parts [First, Limit). An empty piece carries no numbers: the receiver gets the tensor from its own group.
type Piece struct {
	Sender, Receiver int // places in their groups
	Part             int // its number among the pieces that the receiver gets
	First, Limit     int
}

// Empty reports whether a piece carries no numbers.
func (p Piece) Empty() bool { return p.First == p.Limit }

// Edge describes how a tensor crosses from one tensor group to another.
type Edge struct {
	From, To int  // ranks
	Slices   bool // each rank holds a slice of the positions; otherwise every rank holds all of them
	Way      Way
	Units    int // equal parts of the positions that pieces are made of
	Pieces   []Piece
}

// NewEdge returns the edge between groups of from and to ranks. With slices, each rank holds an equal slice of the positions, in
// the order of the ranks.
func NewEdge(from, to int, slices bool, way Way) Edge {
	e := Edge{From: from, To: to, Slices: slices, Way: way, Units: 1}
	switch {
	case slices || from == 1 && to == 1:
		e.Way = Direct
	case way == Auto && from < to:
		e.Way = Broadcast
	case way == Auto, way == Broadcast && to == 1:
		e.Way = Direct
	}
	switch {
	case slices || e.Way == Scatter:
		e.Units = lcm(from, to)
		for receiver := range to {
			part := 0
			for sender := range from {
				first := max(e.Units/from*sender, e.Units/to*receiver)
				limit := min(e.Units/from*(sender+1), e.Units/to*(receiver+1))
				if first < limit {
					e.Pieces = append(e.Pieces, Piece{sender, receiver, part, first, limit})
					part++
				}
			}
		}
	default:
		for receiver := range to {
			p := Piece{Receiver: receiver, Limit: 1}
			switch {
			case e.Way == Broadcast && receiver > 0:
				p.Limit = 0
			case e.Way == Broadcast:
			case from >= to:
				p.Sender = receiver
			default:
				p.Sender = receiver * from / to
			}
			e.Pieces = append(e.Pieces, p)
		}
	}
	return e
}

// Has returns the units [first, limit) that a rank of the sending group holds.
func (e Edge) Has(sender int) (first, limit int) {
	if !e.Slices {
		return 0, e.Units
	}
	return e.Units / e.From * sender, e.Units / e.From * (sender + 1)
}

// Wants returns the units [first, limit) that a rank of the receiving group gets over the edge. With Scatter it gathers the
// rest within its group.
func (e Edge) Wants(receiver int) (first, limit int) {
	if e.Units == 1 {
		return 0, 1
	}
	return e.Units / e.To * receiver, e.Units / e.To * (receiver + 1)
}

// Sends returns the pieces that a rank of the sending group sends.
func (e Edge) Sends(sender int) (all []Piece) {
	for _, p := range e.Pieces {
		if p.Sender == sender {
			all = append(all, p)
		}
	}
	return all
}

// Takes returns the pieces that a rank of the receiving group gets, in the order of their parts.
func (e Edge) Takes(receiver int) (all []Piece) {
	for _, p := range e.Pieces {
		if p.Receiver == receiver {
			all = append(all, p)
		}
	}
	return all
}

// Copies returns how many times the whole tensor crosses from one group to the other.
func (e Edge) Copies() float64 {
	n := 0
	for _, p := range e.Pieces {
		n += p.Limit - p.First
	}
	return float64(n) / float64(e.Units)
}

// String describes the edge in words.
func (e Edge) String() string {
	switch {
	case e.Slices && e.From == e.To && e.To > 1:
		return fmt.Sprintf("direct: each of %d ranks sends its positions to its counterpart", e.From)
	case e.Slices && e.To > 1 || e.Slices && e.From > 1:
		return fmt.Sprintf("direct: the %d receiving get their positions from the %d sending", e.To, e.From)
	case e.Way == Scatter && e.From == 1:
		return fmt.Sprintf("scatter: rank 0 sends parts, and %d gather them", e.To)
	case e.Way == Scatter:
		return fmt.Sprintf("scatter: each of %d ranks sends parts, and %d gather them", e.From, e.To)
	case e.Way == Broadcast:
		return fmt.Sprintf("broadcast: rank 0 of %d sends, and rank 0 of %d broadcasts", e.From, e.To)
	case e.To == 1 && e.From > 1:
		return fmt.Sprintf("direct: rank 0 of %d sends", e.From)
	case e.From == 1 && e.To == 1:
		return "direct"
	case e.From >= e.To:
		return fmt.Sprintf("direct: ranks 0 to %d send to their counterparts", e.To-1)
	}
	return fmt.Sprintf("direct: %d ranks send to %d", e.From, e.To)
}

// DescribeEdges returns a line for each edge between two stages that says how tensors cross it. It returns no line if each stage
// has one rank. chunks lists the stage of each chunk.
func (g *Grid) DescribeEdges(chunks []int, slices bool, way Way) (lines []string) {
	if g.size[Tensor] == 1 {
		return nil
	}
	seen := make(map[[2]int]bool)
	for v := 1; v < len(chunks); v++ {
		from, to := chunks[v-1], chunks[v]
		if from == to || seen[[2]int{from, to}] {
			continue
		}
		seen[[2]int{from, to}] = true
		a, b := g.TensorSize(from), g.TensorSize(to)
		lines = append(lines, fmt.Sprintf("stage %d to %d: %v; gradients back: %v", from, to, NewEdge(a, b, slices, way),
			NewEdge(b, a, slices, way)))
	}
	return lines
}

// lcm returns the least common multiple.
func lcm(a, b int) int {
	x, y := a, b
	for y > 0 {
		x, y = y, x%y
	}
	return a / x * b
}

// Positions returns the number that must divide the length of a sequence. Each rank of a context group then holds two equal
// blocks; with tensor, every tensor group can also divide a rank's positions equally.
func (g *Grid) Positions(tensor bool) int {
	n, ranks := 1, g.size[Context]
	for stage := range g.size[Pipeline] {
		if tensor {
			n = lcm(n, g.TensorSize(stage))
		}
	}
	if ranks == 1 {
		return n
	}
	return ranks * lcm(n, 2)
}
