package cuda

import "github.com/troupe-ml/troupe/tensorops"

var groupedLaunchers = map[tensorops.Kind]launcher{
	tensorops.KindGroupedMatMul:     groupedMatMul,
	tensorops.KindGroupedWeightGrad: groupedWeightGrad,
}

const groupedThreads = 256 // GROUPED_THREADS of grouped.cu

// The kernels of grouped.cu and grouped_mma.cu, by the width of a tile.
var (
	groupedN       = map[int][2]string{64: {"grouped_n_64", "grouped_mma_n_64"}, 128: {"grouped_n_128", "grouped_mma_n_128"}}
	groupedT       = map[int][2]string{64: {"grouped_t_64", "grouped_mma_t_64"}, 128: {"grouped_t_128", "grouped_mma_t_128"}}
	groupedWeights = map[int][2]string{64: {"grouped_weights_64", "grouped_mma_weights_64"},
		128: {"grouped_weights_128", "grouped_mma_weights_128"}}
)

// groupedForm is the form of a kernel: on tensor cores where the operands are rounded to bfloat16 and there are such.
func (x *exec) groupedForm(of map[int][2]string, wide int, bf16 bool) string {
	if bf16 && x.tensorCores {
		return of[wide][1]
	}
	return of[wide][0]
}

// groupedMatMul finds the tiles of the rows of each expert on the device, which alone knows the offsets. So the grid has
// room for the worst case, in which each expert has a tile that is nearly empty.
func groupedMatMul(x *exec, o *tensorops.Op) error {
	a := o.GroupedMatMul()
	rows, n, k, parts := a.A.Rows(), a.C.Cols(), a.A.Cols(), max(a.Sources, 1)
	experts := (a.Offsets.Len() - 1) / parts
	if rows == 0 || n == 0 || k == 0 && a.Accumulate {
		return nil
	}
	tilesOf := func(wide int) int { return rows/wide + min(experts, rows) }
	wide := 128
	if rows < wide*experts || tilesOf(wide)*ceil(n, wide) < x.processors { // most tiles would be half empty, or too few
		wide = 64
	}
	most := max(tilesOf(wide), 1)
	tiles, err := x.scratch(3 * 4 * most)
	if err != nil {
		return err
	}
	if err := launch(x, "grouped_tiles", grid{threads: groupedThreads}, &struct {
		tiles, offsets            uint64
		fault                     routeFault
		rows, most                int64
		experts, parts, wide, all int32
	}{
		tiles: tiles, offsets: address(a.Offsets), fault: x.routeFaultOf(o), rows: int64(rows), most: int64(most), experts: int32(experts),
		parts: int32(parts), wide: int32(wide), all: number(a.Sources == 0),
	}); err != nil {
		return err
	}
	form := groupedN
	if a.TransB {
		form = groupedT
	}
	kernel := x.groupedForm(form, wide, a.BF16 && k > 0)
	return launch(x, kernel, grid{x: most, y: ceil(n, wide), threads: matmulThreads}, &struct {
		whole matmulArgs
		tiles uint64
		each  int64
	}{
		whole: matmulArgs{
			c: address(a.C), a: address(a.A), b: address(a.B), bias: address(a.Bias),
			cStride: int64(a.C.Stride()), aStride: int64(a.A.Stride()), bStride: int64(a.B.Stride()), last: int64(k),
			m: int32(rows), n: int32(n),
			accumulate: number(a.Accumulate), bf16: number(a.BF16), quadsA: number(quads(a.A)), quadsB: number(quads(a.B)),
			quadsC: number(quads(a.C)),
		},
		tiles: tiles, each: int64(k) * int64(n),
	})
}

// groupedWeightGrad has blocks for each tile of each expert's gradient. The depth is the number of the expert's rows.
func groupedWeightGrad(x *exec, o *tensorops.Op) error {
	a := o.GroupedWeightGrad()
	parts, m, n := max(a.Sources, 1), a.DY.Cols(), a.X.Cols()
	experts := (a.Offsets.Len() - 1) / parts
	if experts == 0 || m == 0 || n == 0 || a.X.Rows() == 0 {
		return nil
	}
	if experts > maxGridY {
		return tooManyExperts(experts)
	}
	tilesOf := func(wide int) int { return ceil(m, wide) * ceil(n, wide) }
	wide := 128
	if tilesOf(wide)*experts < x.processors {
		wide = 64
	}
	kernel := x.groupedForm(groupedWeights, wide, a.BF16)
	return launch(x, kernel, grid{x: tilesOf(wide), y: experts, threads: matmulThreads}, &struct {
		whole                       matmulArgs
		offsets                     uint64
		fault                       routeFault
		each, rows                  int64
		experts, parts, source, all int32
	}{
		whole: matmulArgs{
			c: address(a.DWeight), a: address(a.DY), b: address(a.X), cStride: int64(n), aStride: int64(a.DY.Stride()),
			bStride: int64(a.X.Stride()), m: int32(m), n: int32(n), accumulate: 1, bf16: number(a.BF16), quadsA: number(quads(a.DY)),
			quadsB: number(quads(a.X)), quadsC: number(address(a.DWeight)%16 == 0 && n%4 == 0),
		},
		offsets: address(a.Offsets), fault: x.routeFaultOf(o), each: int64(m) * int64(n), rows: int64(a.X.Rows()), experts: int32(experts),
		parts: int32(parts), source: int32(a.Source), all: number(a.Sources == 0),
	})
}
