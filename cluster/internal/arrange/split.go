package arrange

import (
	"fmt"
	"math"
	"strings"

	"github.com/troupe-ml/troupe/internal/plan"
)

// Capacity is a worker's capacity for ranks.
type Capacity struct {
	Name        string
	MemoryBytes int64 // 0: not known
	Cores       int
}

// split cuts the list of ranks into consecutive, non-empty parts, one for each worker in order. Each
// part fits its worker's memory. Of these cuts it chooses one whose slowest worker takes the least
// time, computed as work divided by cores. bytes and work are those of each rank.
func split(bytes []int64, work []float64, workers []Capacity) (parts [][]int, slowest float64, err error) {
	n, w := len(bytes), len(workers)
	// least[k][r] is the time of the slowest of the first k workers with the first r ranks,
	// and from[k][r] where the last of them begins.
	least, from := make([][]float64, w+1), make([][]int, w+1)
	for k := range least {
		least[k], from[k] = make([]float64, n+1), make([]int, n+1)
		for r := range least[k] {
			least[k][r] = math.Inf(1)
		}
	}
	least[0][0] = 0
	for k := 1; k <= w; k++ {
		c := workers[k-1]
		for r := k; r <= n; r++ {
			var held int64
			var load float64
			for first := r - 1; first >= k-1; first-- {
				held, load = held+bytes[first], load+work[first]
				if c.MemoryBytes > 0 && held > c.MemoryBytes {
					break
				}
				if t := max(least[k-1][first], load/float64(max(1, c.Cores))); t < least[k][r] {
					least[k][r], from[k][r] = t, first
				}
			}
		}
	}
	if math.IsInf(least[w][n], 1) {
		return nil, 0, fmt.Errorf("%w: %s", plan.ErrNoRoom, shortage(bytes, workers))
	}
	parts = make([][]int, w)
	for k, r := w, n; k > 0; k-- {
		for rank := from[k][r]; rank < r; rank++ {
			parts[k-1] = append(parts[k-1], rank)
		}
		r = from[k][r]
	}
	return parts, least[w][n], nil
}

// shortage says how much memory is missing.
func shortage(bytes []int64, workers []Capacity) string {
	var need, most float64
	for _, b := range bytes {
		need, most = need+float64(b), max(most, float64(b))
	}
	var has []string
	for _, c := range workers {
		has = append(has, fmt.Sprintf("%s %s", c.Name, plan.GiB(float64(c.MemoryBytes))))
	}
	return fmt.Sprintf("the ranks need %s in total and up to %s each, with neighbors on one worker; the free workers have %s; add workers, or use more stages",
		plan.GiB(need), plan.GiB(most), strings.Join(has, ", "))
}
