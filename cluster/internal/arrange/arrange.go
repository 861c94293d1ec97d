// Package arrange divides the ranks of a run among workers: by memory and by cores, with the ranks
// that communicate most near each other. It knows the grid and numbers, and must never know
// processes or connections.
package arrange

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/troupe-ml/troupe/internal/grid"
	"github.com/troupe-ml/troupe/internal/plan"
)

// Ranks divides a grid's ranks among workers. bytes and work are the memory and the FLOPs of each
// rank, and hosts is the host of each worker; workers of one host must be adjacent. parts are the
// ranks of each worker. A tensor group communicates in every layer, so it stays on one host if a host
// has room for it, whatever the numbering of the ranks; some workers may then get no ranks. After
// that, neighboring stages of a pipeline are placed near each other, and replicas far apart. apart is
// a warning that names tensor groups on several hosts; "": none. The error is plan.ErrNoRoom, with
// the memory that is missing.
func Ranks(g *grid.Grid, bytes []int64, work []float64, workers []Capacity, hosts []string) (parts [][]int, apart string, err error) {
	order := nearest(g)
	if g.Size(grid.Tensor) > 1 {
		if parts := within(g, order, bytes, work, workers, hosts); parts != nil {
			return parts, "", nil
		}
	}
	parts, _, err = splitOf(order, bytes, work, workers)
	if err != nil {
		return nil, "", err
	}
	return parts, Spread(g, parts, hosts, bytes), nil
}

// nearest returns all ranks in the order in which they should be neighbors: by tensor group, context
// group, pipeline, and replica last.
func nearest(g *grid.Grid) []int {
	order := make([]int, g.World())
	for r := range order {
		order[r] = r
	}
	slices.SortFunc(order, func(a, b int) int {
		x, y := g.Coordinates(a), g.Coordinates(b)
		return cmp.Or(x[grid.Data]-y[grid.Data], x[grid.Pipeline]-y[grid.Pipeline], x[grid.Context]-y[grid.Context],
			x[grid.Tensor]-y[grid.Tensor])
	})
	return order
}

// splitOf splits ranks in a given order; it returns each worker's ranks sorted.
func splitOf(order []int, bytes []int64, work []float64, workers []Capacity) (parts [][]int, slowest float64, err error) {
	ownBytes, ownWork := make([]int64, len(order)), make([]float64, len(order))
	for i, r := range order {
		ownBytes[i], ownWork[i] = bytes[r], work[r]
	}
	if parts, slowest, err = split(ownBytes, ownWork, workers); err != nil {
		return nil, 0, err
	}
	for _, part := range parts {
		for i := range part {
			part[i] = order[part[i]]
		}
		slices.Sort(part)
	}
	return parts, slowest, nil
}

// host is a host with one or more workers.
type host struct {
	first, last int // of the workers
	cores       int
	memoryBytes float64 // 0: not known
}

func hostsOf(workers []Capacity, names []string) (all []host) {
	for i, w := range workers {
		if i == 0 || names[i] != names[i-1] {
			all = append(all, host{first: i})
		}
		h := &all[len(all)-1]
		h.last = i + 1
		h.cores += max(1, w.Cores)
		if h.memoryBytes += float64(w.MemoryBytes); w.MemoryBytes <= 0 {
			h.memoryBytes = math.Inf(1)
		}
	}
	return all
}

// within assigns whole tensor groups to hosts, in order, so that the slowest worker takes the least time; nil: that is
// not possible. A host has room for a group if it has a core for each rank and memory for all of them.
func within(g *grid.Grid, order []int, bytes []int64, work []float64, workers []Capacity, names []string) [][]int {
	var groups [][]int
	for _, r := range order {
		if last := len(groups) - 1; last >= 0 && slices.Contains(g.Group(r, grid.Tensor), groups[last][0]) {
			groups[last] = append(groups[last], r)
		} else {
			groups = append(groups, []int{r})
		}
	}
	hosts := hostsOf(workers, names)
	// least[k][u] is the time of the slowest of the first k hosts with the first u groups, from[k][u] where the last of
	// them begins, and parts[k][u] what its workers get.
	n := len(groups)
	least, from := make([][]float64, len(hosts)+1), make([][]int, len(hosts)+1)
	parts := make([][][][]int, len(hosts)+1)
	for k := range least {
		least[k], from[k], parts[k] = make([]float64, n+1), make([]int, n+1), make([][][]int, n+1)
		for u := range least[k] {
			least[k][u] = math.Inf(1)
		}
	}
	least[0][0] = 0
	for k, h := range hosts {
		for u := range n + 1 {
			least[k+1][u], from[k+1][u] = least[k][u], u // it gets none
			var ranks []int
			var held, load float64
			for first := u - 1; first >= 0 && len(groups[first]) <= h.cores; first-- {
				for _, r := range groups[first] {
					held, load = held+float64(bytes[r]), load+work[r]
				}
				ranks = append(slices.Clone(groups[first]), ranks...)
				if held > h.memoryBytes || load/float64(h.cores) >= least[k+1][u] {
					break
				}
				if least[k][first] >= least[k+1][u] {
					continue
				}
				own := workers[h.first:h.last]
				some, slowest, err := splitOf(ranks, bytes, work, own[:min(len(own), len(ranks))])
				if t := max(least[k][first], slowest); err == nil && t < least[k+1][u] {
					least[k+1][u], from[k+1][u], parts[k+1][u] = t, first, some
				}
			}
		}
	}
	if math.IsInf(least[len(hosts)][n], 1) {
		return nil
	}
	all := make([][]int, len(workers))
	for k, u := len(hosts), n; k > 0; k-- {
		if from[k][u] < u {
			copy(all[hosts[k-1].first:], parts[k][u])
		}
		u = from[k][u]
	}
	return all
}

// Spread returns a warning that names tensor groups on several hosts; "": none are.
func Spread(g *grid.Grid, parts [][]int, hosts []string, bytes []int64) string {
	of := make([]string, g.World())
	for i, part := range parts {
		for _, r := range part {
			of[r] = hosts[i]
		}
	}
	first, apart, all := "", 0, g.Groups(grid.Tensor)
	for _, group := range all {
		var on []string
		var need float64
		for _, r := range group {
			need += float64(bytes[r])
			if !slices.Contains(on, of[r]) {
				on = append(on, of[r])
			}
		}
		if len(on) < 2 {
			continue
		}
		if apart++; apart == 1 {
			first = fmt.Sprintf("ranks %s are on %s; together they need %s and %d cores", ListRanks(group), strings.Join(on, " and "),
				plan.GiB(need),
				len(group))
		}
	}
	if apart == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d tensor groups are on more than one host, so every layer waits for the network (%s); use hosts with more memory or cores, use more hosts, or lower parallel.tensor", apart, len(all), first)
}

// ListRanks lists the first 8 ranks, and how many more there are.
func ListRanks(ranks []int) string {
	const most = 8
	var all []string
	for i, r := range ranks {
		if i == most {
			return strings.Join(all, ", ") + fmt.Sprintf(" and %d more", len(ranks)-most)
		}
		all = append(all, fmt.Sprint(r))
	}
	return strings.Join(all, ", ")
}
