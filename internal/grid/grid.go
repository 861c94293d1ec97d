// Package grid says which rank of a run has which place in the grid of tensor, context,
// pipeline and data parallelism, and which ranks form the groups that work together. A Grid follows from the
// sizes and the order in [parallel]. An Edge says in which pieces a tensor crosses between tensor groups of different
// sizes.
//
// The configuration's checks, internal/plan, the actors and the cluster all ask it. It is arithmetic: it knows no
// process, no message and no model.
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

// Dimension is one of the ways to divide the work.
type Dimension int

// The dimensions.
const (
	Tensor   Dimension = iota // a layer's weights
	Context                   // a sequence's positions
	Pipeline                  // the model's layers
	Data                      // a step's sequences
	numDimensions
)

// Copies is no dimension of its own. Ranks form groups along it that have copies of the same weights, whose gradients they
// add: those which differ in Context and Data.
const Copies = numDimensions

var dimensionNames = [numDimensions]string{"tp", "cp", "pp", "dp"}

func (d Dimension) String() string {
	if d == Copies {
		return "copies"
	}
	return dimensionNames[d]
}

// along are the dimensions that a group is along. Where sequences are not shared copies are Data's, and have its name.
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

// DefaultOrder numbers the ranks of a tensor group one after the other, then those of a
// context group, of a pipeline, and the replicas last.
const DefaultOrder = "tp-cp-pp-dp"

// Sizes are those of a grid; 0 stands for 1.
type Sizes struct {
	// Tensor is the size of a tensor group, of each stage; one number is all stages'.
	Tensor                  []int
	Context, Pipeline, Data int
	// Order names the dimensions, the one whose ranks are adjacent first: rank = the sum of
	// each coordinate times the sizes of those before it. Dimensions of size 1 may be left out.
	// "": DefaultOrder. Where stages have tensor groups of different sizes no other is possible.
	Order string
	// World is how many ranks there must be; 0: the product of the sizes.
	World int
}

// Coordinates are the place of a rank along each dimension, by Dimension.
type Coordinates [numDimensions]int

// Grid numbers the ranks of a run.
type Grid struct {
	size   Coordinates // by dimension; Tensor: the largest
	stride Coordinates
	tensor []int // of each stage, where they differ; else nil
	before []int // the tensor sizes of the stages before each, and at the end of all
	order  string
}

// New makes a grid.
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
	if s.World != 0 && s.World != g.World() {
		return nil, fmt.Errorf("%w: the world has %s, but %s has %d", ErrGrid, words.Plural(s.World, "rank"), g, g.World())
	}
	return g, nil
}

// bounded refuses a grid of too many ranks.
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

// number takes the strides from an order.
func (g *Grid) number(order string) error {
	if order == "" {
		order = DefaultOrder
	}
	var dims []Dimension
	for _, name := range strings.Split(order, "-") {
		d := Dimension(slices.Index(dimensionNames[:], name))
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

// String gives the sizes.
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

// Order names the dimensions, the one whose ranks are adjacent first.
func (g *Grid) Order() string { return g.order }

// World is the number of ranks.
func (g *Grid) World() int {
	if g.tensor != nil {
		return g.before[len(g.tensor)] * g.size[Context] * g.size[Data]
	}
	return g.size[Tensor] * g.size[Context] * g.size[Pipeline] * g.size[Data]
}

// Size is the number of ranks along a dimension; of Tensor the largest.
func (g *Grid) Size(d Dimension) int {
	if d == Copies {
		return g.size[Context] * g.size[Data]
	}
	return g.size[d]
}

// TensorSize is the number of ranks that share each layer of a stage.
func (g *Grid) TensorSize(stage int) int {
	if g.tensor != nil {
		return g.tensor[stage]
	}
	return g.size[Tensor]
}

// Rank is the number of the rank at a place.
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

// Coordinates are the place of a rank.
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

// Group are the ranks that differ from a rank in the given dimensions alone, itself among them, in
// their order.
func (g *Grid) Group(rank int, dims ...Dimension) []int {
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

// Groups lists the groups of ranks that differ in the given dimensions alone, by their first rank.
func (g *Grid) Groups(dims ...Dimension) [][]int {
	var groups [][]int
	for rank := range g.World() {
		if group := g.Group(rank, dims...); group[0] == rank {
			groups = append(groups, group)
		}
	}
	return groups
}

// Name names a rank's group of given dimensions by what its members have in common, such as
// "dp of pp 1, tp 0".
func (g *Grid) Name(rank int, dims ...Dimension) string {
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

// OfStages takes of what is known of each rank that of one rank of each stage: the first replica's, and of tensor and context
// groups the first. The others of a stage have the same table. Without a grid, and of other ranks than its own, it is all.
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
