// Package grid says which process has which place in the grid of tensor, pipeline and
// data parallelism. Sizes above one are refused where the configuration is read, until
// tensor and data parallelism come.
//
// It is arithmetic: it knows no process and no message.
package grid

import (
	"errors"
	"fmt"
	"strings"
)

// ErrGrid: the sizes or the order of the parallel dimensions are impossible.
var ErrGrid = errors.New("impossible process grid")

// MaxProcesses bounds the processes of a grid.
const MaxProcesses = 1 << 20

// Grid numbers the processes of a run. The world is tp·pp·dp; in the order
// "tp-pp-dp" the rank is dp·PP·TP + pp·TP + tp: the first named runs fastest.
type Grid struct {
	size   [3]int // by dimension
	stride [3]int
}

// Dimension is one of the ways to divide the work.
type Dimension int

// The dimensions.
const (
	Tensor Dimension = iota
	Pipeline
	Data
)

var dimensionNames = [...]string{"tp", "pp", "dp"}

func (d Dimension) String() string { return dimensionNames[d] }

// NewGrid makes a grid; order names the dimensions, fastest first.
func NewGrid(pipeline, tensor, data int, order string) (*Grid, error) {
	g := &Grid{size: [3]int{Tensor: tensor, Pipeline: pipeline, Data: data}}
	world := 1
	for d, n := range g.size {
		if n < 1 || n > MaxProcesses || world*n > MaxProcesses {
			return nil, fmt.Errorf("%w: %v is %d, the world %d × that; each is at least 1 and the world at most %d", ErrGrid, Dimension(d), n, world, MaxProcesses)
		}
		world *= n
	}
	stride := 1
	for _, name := range strings.Split(order, "-") {
		d, ok := map[string]Dimension{"tp": Tensor, "pp": Pipeline, "dp": Data}[name]
		if !ok || g.stride[d] != 0 {
			return nil, fmt.Errorf("%w: order %q must name tp, pp and dp once each, as tp-pp-dp", ErrGrid, order)
		}
		g.stride[d] = stride
		stride *= g.size[d]
	}
	for d, s := range g.stride {
		if s == 0 {
			return nil, fmt.Errorf("%w: order %q lacks %v", ErrGrid, order, Dimension(d))
		}
	}
	return g, nil
}

// World is the number of processes.
func (g *Grid) World() int { return g.size[Tensor] * g.size[Pipeline] * g.size[Data] }

// Coordinate is the place of a rank along a dimension.
func (g *Grid) Coordinate(rank int, d Dimension) int { return rank / g.stride[d] % g.size[d] }

// Groups lists, for a dimension, the groups of ranks that differ only in it.
func (g *Grid) Groups(d Dimension) [][]int {
	var groups [][]int
	for rank := range g.World() {
		if g.Coordinate(rank, d) != 0 {
			continue
		}
		group := make([]int, g.size[d])
		for i := range group {
			group[i] = rank + i*g.stride[d]
		}
		groups = append(groups, group)
	}
	return groups
}
