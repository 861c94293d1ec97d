package vec

import "github.com/troupe-ml/troupe/internal/base/rng"

// Jitter computes y = x·(1 + p·(2u − 1)), plus skip unless it is nil: see tensorops.List.Jitter. first is the index of the first element.
// It has no vector loop: a run without jitter does not need one.
func Jitter(y, x, skip []float32, key rng.Key, step, first uint64, p float64) {
	var words [4]uint32
	for i := range y {
		index := first + uint64(i)
		if i == 0 || index%4 == 0 {
			words[0], words[1], words[2], words[3] = rng.Block(key, step, index/4)
		}
		v := float64(float64(x[i]) * (1 + float64(p*(2*rng.Uniform(words[index%4])-1))))
		if skip != nil {
			v += float64(skip[i])
		}
		y[i] = float32(v)
	}
}
