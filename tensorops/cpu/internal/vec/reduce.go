package vec

// The lanes of a reduction over a row: see the package's comment.
const (
	reduceLanes   = 32
	reduceDoubles = 16
)

type sums [reduceLanes]float32

func (s *sums) total() float32 {
	for h := reduceLanes / 2; h > 0; h /= 2 {
		for i := range h {
			s[i] += s[i+h]
		}
	}
	return s[0]
}

type doubles [reduceDoubles]float64

func (s *doubles) total() float64 {
	for h := reduceDoubles / 2; h > 0; h /= 2 {
		for i := range h {
			s[i] += s[i+h]
		}
	}
	return s[0]
}
