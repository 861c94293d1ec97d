package peft

import (
	"math"
	"runtime"
	"sync"

	"github.com/troupe-ml/troupe/stages"
)

// Factors are the numbers of a layer's adapter. Magnitude is nil without DoRA.
type Factors struct{ A, B, Magnitude []float32 }

// Merge adds the adapter of a layer to its weight w, which is stored as the layer says: W + s·B·A, with DoRA scaled so that the norm of
// each output's row is its magnitude. Sums are in float64.
func Merge(l stages.LinearLayer, w []float32, f Factors) {
	var wait sync.WaitGroup
	workers := max(1, min(runtime.GOMAXPROCS(0), l.Out))
	for i := range workers {
		wait.Go(func() {
			sum := make([]float64, l.In)
			for row := i * l.Out / workers; row < (i+1)*l.Out/workers; row++ {
				mergeRow(l, w, f, row, sum)
			}
		})
	}
	wait.Wait()
}

func mergeRow(l stages.LinearLayer, w []float32, f Factors, row int, sum []float64) {
	at, step := row*l.In, 1
	if l.InOut {
		at, step = row, l.Out
	}
	clear(sum)
	for k, b := range f.B[row*l.Rank : (row+1)*l.Rank] {
		for i, a := range f.A[k*l.In : (k+1)*l.In] {
			sum[i] += float64(float64(a) * float64(b))
		}
	}
	for i := range sum {
		sum[i] = float64(w[at+i*step]) + float64(l.Scale*sum[i])
	}
	if f.Magnitude != nil {
		squares := 0.0
		for _, v := range sum {
			squares += float64(v * v)
		}
		factor := float64(f.Magnitude[row]) / math.Sqrt(squares)
		for i := range sum {
			sum[i] *= factor
		}
	}
	for i, v := range sum {
		w[at+i*step] = float32(v)
	}
}
