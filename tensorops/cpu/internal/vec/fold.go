package vec

// The lanes of a fold over a row: see the package's comment.
const (
	foldLanes   = 32
	foldDoubles = 16
)

type sums [foldLanes]float32

func (s *sums) total() float32 {
	for h := foldLanes / 2; h > 0; h /= 2 {
		for i := range h {
			s[i] += s[i+h]
		}
	}
	return s[0]
}

type doubles [foldDoubles]float64

func (s *doubles) total() float64 {
	for h := foldDoubles / 2; h > 0; h /= 2 {
		for i := range h {
			s[i] += s[i+h]
		}
	}
	return s[0]
}
