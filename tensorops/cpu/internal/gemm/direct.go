package gemm

// Direct multiplies like blocks of BlockK one after the other, to the same bits, but
// reads B where it is, and A as well if its rows are contiguous along m: for products
// so small that packing would take a good part of their time. It reports false, and
// does nothing, where B is not as the tiles read it, or an operand is bfloat16. A is packed into what room
// returns for a number of floats.
func (kn *Kernel) Direct(c, a, b Matrix, m, n, k int, add bool, room func(int) []float32) bool {
	if !kn.strided || b.Col != 1 || n%kn.NR != 0 || !a.wide() || !b.wide() {
		return false
	}
	for k0 := 0; k0 < k; k0 += BlockK {
		kk := min(BlockK, k-k0)
		var pa Operand
		if a.Row == 1 {
			pa = Operand{a.At(0, k0).Data, a.Col, kn.MR}
		} else {
			pa = kn.PackedA(room(kn.LenA(m, kk)), kk)
			kn.PackA(pa.Data, a.At(0, k0), m, kk)
		}
		kn.Part(c, m, n, kk, pa, Operand{b.At(k0, 0).Data, b.Row, kn.NR}, add || k0 > 0)
	}
	return true
}
