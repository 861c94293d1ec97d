package peft

import (
	"fmt"
	"math"

	"github.com/troupe-ml/troupe/stages"
)

// A tensor of the base's files may hold several linear layers: their rows follow one another. In a directory they have one adapter.
// Where Troupe wrote it, each layer has rows of B and columns of its own in them, and all other numbers of these rows are 0:
//
//	    A     B
//	q   a_q   b_q 0   0
//	k   a_k   0   b_k 0
//	v   a_v   0   0   b_v
//
// Where PEFT trained it, B is dense. Then each layer has its rows of B and all of A.

// split returns the part that each of some linear layers has of a module. A part of rank 0 is none.
func (d *Directory) split(m *module, layers []stages.LinearLayer) ([]part, error) {
	in, out := layers[0].In, 0
	for _, l := range layers {
		out += l.Out
	}
	if m.in != in || m.out != out {
		return nil, fmt.Errorf("%w: %s: the adapter of module %q has %d inputs and %d outputs, but the layer of the model has %d and %d",
			ErrBase, d.file.Path(), m.name, m.in, m.out, in, out)
	}
	if len(layers) == 1 {
		return []part{{of: m, rows: out, rank: m.rank, alpha: m.alpha}}, nil
	}
	b, err := d.tensor(m.b)
	if err != nil {
		return nil, err
	}
	parts, row := make([]part, len(layers)), 0
	for i, l := range layers {
		parts[i] = part{of: m, row: row, rows: l.Out, rank: m.rank, alpha: m.alpha}
		row += l.Out
	}
	if ranks := ranksOf(parts, b, m.rank); ranks != nil {
		column := 0
		for i, rank := range ranks {
			parts[i].column, parts[i].rank, parts[i].alpha = column, rank, d.settings.alphaOf(m.alpha, m.rank, rank)
			column += rank
		}
	}
	return parts, nil
}

// alphaOf returns the alpha with which a part of a rank has the same scale as the whole.
func (s *settings) alphaOf(alpha float64, whole, rank int) float64 {
	return scale(alpha, whole, s.rslora) / scale(1, rank, s.rslora)
}

// scale returns s of y = W·x + s·B·A·x.
func scale(alpha float64, rank int, rslora bool) float64 {
	if rslora {
		return alpha / math.Sqrt(float64(max(rank, 1)))
	}
	return alpha / float64(max(rank, 1))
}

// ranksOf returns the number of columns of B that belong to each part; nil: the parts share columns.
func ranksOf(parts []part, b []float32, rank int) []int {
	n := len(parts)
	from, to := make([]int, n), make([]int, n) // the columns of each part that are not 0
	for i, p := range parts {
		from[i] = rank
		for row := p.row; row < p.row+p.rows; row++ {
			for column, v := range b[row*rank : (row+1)*rank] {
				if v != 0 {
					from[i], to[i] = min(from[i], column), max(to[i], column+1)
				}
			}
		}
	}
	ranks, equal := make([]int, n), rank%n == 0
	for i := range parts {
		if to[i] > 0 && (from[i] < i*rank/n || to[i] > (i+1)*rank/n) {
			equal = false
		}
		ranks[i] = rank / n
	}
	if equal {
		return ranks
	}
	// Blocks of several sizes: each begins at its first column.
	end, last := 0, -1
	for i := range parts {
		ranks[i] = 0
		if to[i] == 0 {
			continue
		}
		if from[i] < end {
			return nil
		}
		if last >= 0 {
			ranks[last] += from[i] - end // columns of zeros between two blocks
			ranks[i] = to[i] - from[i]
		} else {
			ranks[i] = to[i]
		}
		end, last = to[i], i
	}
	if last < 0 { // all is 0
		return nil
	}
	ranks[last] += rank - end
	return ranks
}
