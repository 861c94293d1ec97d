package cpu

// Of a symmetric product each panel of columns is computed from its first column's row on. The bits are those of the whole product: an
// element is a sum over the same numbers in the same order, wherever it lies, and a·b is b·a.

const (
	// symmetricPanels is the number of panels of a symmetric product: about half of one of them is computed above the diagonal.
	symmetricPanels = 12
	// mirrorTile is the size of the tiles that are mirrored: one and its image stay in a core's first cache.
	mirrorTile = 32
)

// symmetricPanel is the most columns of a panel of a symmetric product, in whole units.
func symmetricPanel(size, unit int) int { return max(1, size/symmetricPanels/unit) * unit }

// topRow is the first row that is computed of the columns from j on: the first of its strip of A.
func (p *product) topRow(j int) int {
	if !p.symmetric {
		return 0
	}
	mr, _ := p.kernel.Strips()
	return j / mr * mr
}

// multiplySymmetric computes what is on and below the diagonal, and mirrors it.
func (x *exec) multiplySymmetric(p product) error {
	if err := x.multiply(p); err != nil {
		return err
	}
	x.product = p
	return x.parallel(ceil(p.m, mirrorTile), 1, mirrorRows)
}

// mirrorRows takes a range of bands of rows above the diagonal.
func mirrorRows(x *exec, lo, hi int) {
	p := &x.product
	c, row := p.c.Data, p.c.Row
	for band := lo; band < hi; band++ {
		first := band * mirrorTile
		last := min(first+mirrorTile, p.m)
		for j := first; j < p.m; j += mirrorTile {
			end := min(j+mirrorTile, p.m)
			for i := first; i < last; i++ {
				from := max(j, i+1)
				to := c[i*row:][:p.m]
				for k := from; k < end; k++ {
					to[k] = c[k*row+i]
				}
			}
		}
	}
}
