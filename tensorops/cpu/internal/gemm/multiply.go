package gemm

// Workspace is the memory into which a core packs. It grows to what the largest
// product needs and is kept.
type Workspace struct{ a, b []float32 }

func grow(buf *[]float32, n int) []float32 {
	if cap(*buf) < n {
		*buf = make([]float32, n)
	}
	return (*buf)[:n]
}

// Multiply computes C = A·B, or C += A·B where add is set, on one core, with A
// m×k, B k×n and C m×n with contiguous rows.
func (kn *Kernel) Multiply(ws *Workspace, m, n, k int, a, b, c Matrix, add bool) {
	if k == 0 && !add {
		for i := range m {
			clear(c.Data[i*c.Row:][:n])
		}
	}
	for k0 := 0; k0 < k; k0 += BlockK {
		kk := min(BlockK, k-k0)
		for j := 0; j < n; j += BlockN {
			nn := min(BlockN, n-j)
			pb := grow(&ws.b, kn.LenB(kk, nn))
			kn.PackB(pb, b.At(k0, j), kk, nn)
			for i := 0; i < m; i += BlockM {
				mm := min(BlockM, m-i)
				pa := grow(&ws.a, kn.LenA(mm, kk))
				kn.PackA(pa, a.At(i, k0), mm, kk)
				kn.Block(c.At(i, j), mm, nn, kk, pa, pb, add || k0 > 0)
			}
		}
	}
}
