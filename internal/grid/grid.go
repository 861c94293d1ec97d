// Package grid maps ranks to their coordinates in the grid of tensor, context, pipeline and data parallelism, and lists the
// groups of ranks that work together. A Grid is computed from the sizes and the order in [parallel]. An Edge lists the pieces
// in which a tensor crosses between tensor groups of different sizes.
//
// The configuration's checks, internal/plan, the actors and the cluster all use it. It is arithmetic: it knows no process, no
// message and no model.
package grid

import (
	"errors"
	"fmt"
	"github.com/troupe-ml/troupe/internal/base/words"
	"slices"
	"strconv"
	"strings"
)

// ErrGrid: the sizes or the order of the parallel dimensions are impossible.
var ErrGrid = errors.New("invalid grid of ranks")

// MaxRanks bounds the ranks of a grid.
const MaxRanks = 1 << 20

// Dimension is a dimension of parallelism.
type Dimension int

// The dimensions.
const (
	Tensor   Dimension = iota // a layer's weights
	Context                   // a sequence's positions
	Pipeline                  // the model's layers
	Data                      // a step's sequences
	numDimensions
)

// Dimensions that are made of the others. A group of one of them has no other dimension.
const (
	// Copies stands for Context and Data together. Ranks that differ only in these hold copies of the same weights and add their
	// gradients. With expert groups that is true of all weights but those of experts.
	Copies = numDimensions + iota
	// Expert divides the ranks of a stage into groups that share the experts: see Sizes.Expert.
	Expert
	// ExpertCopies has the ranks with the same experts, or the same part of them.
	ExpertCopies
	// NumDimensions is the number of all dimensions, for arrays by dimension.
	NumDimensions
)

var dimensionNames = [...]string{"tp", "cp", "pp", "dp", "copies", "ep", "edp"}

func (d Dimension) String() string { return dimensionNames[d] }

// along resolves Copies. Without context groups it is Data and has Data's name.
func (g *Grid) along(dims []Dimension) []Dimension {
	i := slices.Index(dims, Copies)
	switch {
	case i < 0:
		return dims
	case g.size[Context] == 1:
		return slices.Replace(slices.Clone(dims), i, i+1, Data)
	}
	return slices.Replace(slices.Clone(dims), i, i+1, Context, Data)
}

// DefaultOrder gives adjacent numbers to the ranks of a tensor group, then to those of a context group, then of a pipeline. The
// replicas come last.
const DefaultOrder = "tp-cp-pp-dp"

// Sizes has the size of each dimension; 0 stands for 1.
type Sizes struct {
	// Tensor has the size of each stage's tensor groups; a single number applies to all stages.
	Tensor                  []int
	Context, Pipeline, Data int
	// Order names the dimensions; ranks along the first one are adjacent. A rank's number is the sum of each coordinate times
	// the sizes of the dimensions before it. Dimensions of size 1 may be left out. "" is DefaultOrder. If stages have tensor
	// groups of different sizes, no other order is possible.
	Order string
	// World is the required number of ranks; 0: the product of the sizes.
	World int
	// Expert is the number of ranks that share the experts of a layer: that number of consecutive ranks of ExpertSharers. It must divide
	// their number.
	Expert int
	// ExpertTensor is the number of ranks that share each expert: the tensor size, or 1 for whole experts. 0 is the tensor size.
	ExpertTensor int
}

// Coordinates holds a rank's coordinate along each dimension, indexed by Dimension.
type Coordinates [numDimensions]int

// Grid numbers the ranks of a run.
type Grid struct {
	size   Coordinates // by dimension; Tensor: the largest
	stride Coordinates
	tensor []int // each stage's tensor size if they differ; otherwise nil
	before []int // sum of the tensor sizes of the stages before each stage; the last entry is the total
	expert int
	whole  bool // experts are whole in tensor groups
	order  string
}

// New returns the grid with the given sizes. Errors wrap ErrGrid.
func New(s Sizes) (*Grid, error) {
	g := &Grid{size: Coordinates{Tensor: 1, Context: max(s.Context, 1), Pipeline: max(s.Pipeline, 1), Data: max(s.Data, 1)}}
	if len(s.Tensor) > 1 && len(s.Tensor) != g.size[Pipeline] {
		return nil, fmt.Errorf("%w: %d tensor sizes %v for %s; give one for all, or one for each", ErrGrid, len(s.Tensor), s.Tensor,
			words.Plural(g.size[Pipeline], "stage"))
	}
	for _, n := range append(slices.Clone(s.Tensor), s.Context, s.Pipeline, s.Data) {
		if n < 0 || n > MaxRanks {
			return nil, fmt.Errorf("%w: size %d is outside of 1 to %d", ErrGrid, n, MaxRanks)
		}
	}
	for _, n := range s.Tensor {
		g.size[Tensor] = max(g.size[Tensor], n)
	}
	if slices.ContainsFunc(s.Tensor, func(n int) bool { return max(n, 1) != g.size[Tensor] }) {
		g.before = append(g.before, 0)
		for _, n := range s.Tensor {
			g.tensor = append(g.tensor, max(n, 1))
			g.before = append(g.before, g.before[len(g.before)-1]+max(n, 1))
		}
	}
	if err := g.bounded(); err != nil {
		return nil, err
	}
	if err := g.number(s.Order); err != nil {
		return nil, err
	}
	if err := g.setExpert(s.Expert, s.ExpertTensor); err != nil {
		return nil, err
	}
	if s.World != 0 && s.World != g.World() {
		return nil, fmt.Errorf("%w: the world has %s, but %s has %d", ErrGrid, words.Plural(s.World, "rank"), g, g.World())
	}
	return g, nil
}

// bounded rejects a grid of more than MaxRanks.
func (g *Grid) bounded() error {
	ranks := g.size[Tensor] * g.size[Pipeline] // no product overflows: each size is bounded
	if g.tensor != nil {
		ranks = g.before[len(g.tensor)]
	}
	for _, n := range []int{1, g.size[Context], g.size[Data]} {
		if ranks > MaxRanks/n {
			return fmt.Errorf("%w: %s has more than %d ranks, the limit", ErrGrid, g, MaxRanks)
		}
		ranks *= n
	}
	return nil
}

// number computes the strides from an order.
func (g *Grid) number(order string) error {
	if order == "" {
		order = DefaultOrder
	}
	var dims []Dimension
	for _, name := range strings.Split(order, "-") {
		d := Dimension(slices.Index(dimensionNames[:numDimensions], name))
		if d < 0 || slices.Contains(dims, d) {
			return fmt.Errorf("%w: the order %q must name tp, cp, pp and dp at most once each, such as %q", ErrGrid, order, DefaultOrder)
		}
		dims = append(dims, d)
	}
	for d, n := range g.size {
		if slices.Contains(dims, Dimension(d)) {
			continue
		}
		if n > 1 {
			return fmt.Errorf("%w: the order %q lacks %v, which has size %d", ErrGrid, order, Dimension(d), n)
		}
		dims = append(dims, Dimension(d))
	}
	stride, names := 1, make([]string, 0, len(dims))
	for _, d := range dims {
		g.stride[d] = stride
		stride *= g.size[d]
		names = append(names, d.String())
	}
	g.order = strings.Join(names, "-")
	if g.tensor != nil && g.order != DefaultOrder {
		return fmt.Errorf("%w: with tensor sizes %v, one for each stage, the order must be %q, not %q", ErrGrid, g.tensor, DefaultOrder, order)
	}
	return nil
}

// String lists the sizes.
func (g *Grid) String() string {
	tensor := strconv.Itoa(g.size[Tensor])
	if g.tensor != nil {
		parts := make([]string, len(g.tensor))
		for i, n := range g.tensor {
			parts[i] = strconv.Itoa(n)
		}
		tensor = "(" + strings.Join(parts, " + ") + " over the stages)"
		return fmt.Sprintf("tp %s × cp %d × dp %d", tensor, g.size[Context], g.size[Data])
	}
	return fmt.Sprintf("tp %s × cp %d × pp %d × dp %d", tensor, g.size[Context], g.size[Pipeline], g.size[Data])
}

// Order returns the order of the dimensions; ranks along the first one are adjacent.
func (g *Grid) Order() string { return g.order }

// World returns the number of ranks.
func (g *Grid) World() int {
	if g.tensor != nil {
		return g.before[len(g.tensor)] * g.size[Context] * g.size[Data]
	}
	return g.size[Tensor] * g.size[Context] * g.size[Pipeline] * g.size[Data]
}

// Size returns the number of ranks along a dimension; for Tensor, the largest over the stages.
func (g *Grid) Size(d Dimension) int {
	switch d {
	case Copies:
		return g.size[Context] * g.size[Data]
	case Expert:
		return g.expert
	case ExpertCopies:
		return g.expertSharers() / g.expert
	}
	return g.size[d]
}

// TensorSize returns the number of ranks that share each layer of a stage.
func (g *Grid) TensorSize(stage int) int {
	if g.tensor != nil {
		return g.tensor[stage]
	}
	return g.size[Tensor]
}

// Rank returns the number of the rank at the given coordinates.
func (g *Grid) Rank(at Coordinates) int {
	if g.tensor != nil {
		stage := at[Pipeline]
		return (at[Data]*g.before[len(g.tensor)]+g.before[stage])*g.size[Context] + at[Context]*g.tensor[stage] + at[Tensor]
	}
	rank := 0
	for d, stride := range g.stride {
		rank += at[d] * stride
	}
	return rank
}

// Coordinates returns the coordinates of a rank.
func (g *Grid) Coordinates(rank int) (at Coordinates) {
	if g.tensor == nil {
		for d, stride := range g.stride {
			at[d] = rank / stride % g.size[d]
		}
		return at
	}
	replica := g.before[len(g.tensor)] * g.size[Context]
	at[Data], rank = rank/replica, rank%replica
	for rank >= g.before[at[Pipeline]+1]*g.size[Context] {
		at[Pipeline]++
	}
	rank -= g.before[at[Pipeline]] * g.size[Context]
	n := g.tensor[at[Pipeline]]
	at[Context], at[Tensor] = rank/n, rank%n
	return at
}

// Group lists, in ascending order, the ranks that differ from the given rank only in the given dimensions. It includes the
// rank itself.
func (g *Grid) Group(rank int, dims ...Dimension) []int {
	if slices.Equal(dims, []Dimension{Expert}) || slices.Equal(dims, []Dimension{ExpertCopies}) {
		return g.expertGroup(rank, dims[0])
	}
	var all []int
	at, dims := g.Coordinates(rank), g.along(dims)
	var vary func(i int)
	vary = func(i int) {
		if i == len(dims) {
			if at[Tensor] < g.TensorSize(at[Pipeline]) {
				all = append(all, g.Rank(at))
			}
			return
		}
		own := at[dims[i]]
		for at[dims[i]] = range g.size[dims[i]] {
			vary(i + 1)
		}
		at[dims[i]] = own
	}
	vary(0)
	slices.Sort(all)
	return slices.Compact(all)
}

// Groups lists all groups of ranks that differ only in the given dimensions, in the order of their first ranks.
func (g *Grid) Groups(dims ...Dimension) [][]int {
	var groups [][]int
	for rank := range g.World() {
		if group := g.Group(rank, dims...); group[0] == rank {
			groups = append(groups, group)
		}
	}
	return groups
}

// Name names a rank's group along the given dimensions by the coordinates that its members share, such as
// "dp of pp 1, tp 0".
func (g *Grid) Name(rank int, dims ...Dimension) string {
	if slices.Equal(dims, []Dimension{Expert}) || slices.Equal(dims, []Dimension{ExpertCopies}) {
		return g.expertName(rank, dims[0])
	}
	at, dims := g.Coordinates(rank), g.along(dims)
	names := make([]string, 0, len(dims))
	var common []string
	for d, n := range g.size {
		switch dim := Dimension(d); {
		case slices.Contains(dims, dim):
			names = append(names, dim.String())
		case n > 1:
			common = append(common, fmt.Sprintf("%v %d", dim, at[d]))
		}
	}
	if len(common) == 0 {
		return strings.Join(names, "-")
	}
	return strings.Join(names, "-") + " of " + strings.Join(common, ", ")
}

// OfStages selects one rank's entry for each stage from a list with one entry for each rank: the first replica's first tensor and
// context rank. The other ranks of a stage have the same table. If g is nil, or the list's length is not the number of ranks, it
// returns the whole list.
func OfStages[T any](g *Grid, ofRanks []T) []T {
	if g == nil || len(ofRanks) != g.World() {
		return ofRanks
	}
	first := make([]T, g.Size(Pipeline))
	for stage := range first {
		first[stage] = ofRanks[g.Rank(Coordinates{Pipeline: stage})]
	}
	return first
}
