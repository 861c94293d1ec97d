package stages

import (
	"math"
	"sync/atomic"

	"github.com/troupe-ml/troupe/tensorops"
)

// rotation returns the angles by which the pairs of a head's channels rotate, for a pass whose
// longest sequence has so many positions. The base of the wavelengths is theta. The scaling has
// passed check for heads of headDim channels.
//
// Only "dynamic" and "longrope" depend on the positions, as in transformers, which takes the largest
// position of a call. A cache keeps keys as they were rotated. So once a generated text passes
// Original positions, transformers and this function rotate new keys otherwise than those in the
// cache; transformers' Phi-3 starts its cache again there.
func rotation(s RopeScaling, theta float64, headDim, positions int) *tensorops.Rotation {
	dim, frequencies := s.rotated(headDim), make([]float64, s.pairs(headDim))
	turning := len(frequencies)
	switch s.Type {
	case ropeDynamic:
		theta = s.dynamicTheta(theta, dim, positions)
	case ropeProportional:
		dim, turning = headDim, int(s.share()*float64(headDim)/2)
	}
	for i := range turning {
		frequencies[i] = math.Pow(theta, -float64(2*i)/float64(dim))
	}
	s.scale(frequencies, theta, dim, positions)
	return tensorops.NewRotation(frequencies, s.attentionFactor())
}

// share is the share of a head's channels that rotate.
func (s RopeScaling) share() float64 {
	if s.Partial == 0 {
		return 1
	}
	return s.Partial
}

// rotated returns the number of a head's channels that rotate. An odd number is rounded up to pairs.
func (s RopeScaling) rotated(headDim int) int { return int(float64(headDim) * s.share()) }

// pairs returns the number of pairs of channels, for "proportional" with those that stay in place:
// channel i and channel i + headDim/2 are a pair there.
func (s RopeScaling) pairs(headDim int) int {
	if s.Type == ropeProportional {
		return headDim / 2
	}
	return (s.rotated(headDim) + 1) / 2
}

// scale changes the frequencies from theta^(−2i/dim).
func (s RopeScaling) scale(frequencies []float64, theta float64, dim, positions int) {
	for i, f := range frequencies {
		switch s.Type {
		case ropeLinear:
			frequencies[i] = f / s.Factor
		case ropeProportional:
			if s.Factor != 0 {
				frequencies[i] = f / s.Factor
			}
		case ropeLlama3: // as Llama 3.1's authors publish it
			turns := float64(s.Original) * f / (2 * math.Pi) // rotations within Original positions
			keep := min(max((turns-s.Low)/(s.High-s.Low), 0), 1)
			frequencies[i] = (1-keep)*f/s.Factor + float64(keep*f) // not fused with the addition, as the compiler would on arm64
		case ropeLongrope: // Ding et al. 2024, arXiv 2402.13753
			factors := s.Short
			if positions > s.Original {
				factors = s.Long
			}
			frequencies[i] = f / factors[i]
		case ropeYarn: // Peng et al. 2023, arXiv 2309.00071
			low, high := s.borders(theta, dim)
			slow := min(max((float64(i)-low)/(high-low), 0), 1)
			frequencies[i] = float64(f/s.Factor*slow) + float64(f*(1-slow))
		}
	}
}

// betas are the numbers of rotations between which yarn's factor is interpolated.
func (s RopeScaling) betas() (fast, slow float64) {
	fast, slow = s.BetaFast, s.BetaSlow
	if fast == 0 {
		fast = 32
	}
	if slow == 0 {
		slow = 1
	}
	return fast, slow
}

// borders are the pairs up to which yarn changes nothing, and from which on it divides by the factor.
func (s RopeScaling) borders(theta float64, dim int) (low, high float64) {
	at := func(rotations float64) float64 {
		return float64(dim) * math.Log(float64(s.Original)/(rotations*2*math.Pi)) / (2 * math.Log(theta))
	}
	fast, slow := s.betas()
	low, high = at(fast), at(slow)
	if !s.Fractional {
		low, high = math.Floor(low), math.Ceil(high)
	}
	low, high = max(low, 0), min(high, float64(dim-1))
	if low == high {
		high += 0.001 // one pair is the border
	}
	return low, high
}

// attentionFactor is the factor of cosines and sines.
func (s RopeScaling) attentionFactor() float64 {
	if s.AttentionFactor != 0 {
		return s.AttentionFactor
	}
	switch s.Type {
	case ropeYarn:
		if s.MScale != 0 && s.MScaleAllDim != 0 {
			return s.mscale(s.MScale) / s.mscale(s.MScaleAllDim)
		}
		return s.mscale(1)
	case ropeLongrope:
		if s.Factor > 1 {
			return math.Sqrt(1 + math.Log(s.Factor)/math.Log(float64(s.Original)))
		}
	}
	return 1
}

// mscale is yarn's factor for a weight of the logarithm.
func (s RopeScaling) mscale(weight float64) float64 {
	if s.Factor <= 1 {
		return 1
	}
	return float64(0.1*weight*math.Log(s.Factor)) + 1
}

// dynamicTheta is the base of a sequence of so many positions (bloc97 and emozilla 2023: NTK-aware
// scaling).
func (s RopeScaling) dynamicTheta(theta float64, dim, positions int) float64 {
	if positions <= s.Original {
		return theta
	}
	longer := float64(s.Factor*float64(positions)/float64(s.Original)) - (s.Factor - 1)
	return theta * math.Pow(longer, float64(dim)/float64(dim-2))
}

// dynamicPositions is the number of positions that "dynamic" is meant for. A file has the number before
// the scaling; transformers sets no limit.
func (s RopeScaling) dynamicPositions() int {
	return int(min(s.Factor*float64(s.Original), MaxContext))
}

// reach returns a number that is the same for all positions with the same rotation.
func (s RopeScaling) reach(positions int) int {
	switch s.Type {
	case ropeDynamic:
		return max(positions, s.Original)
	case ropeLongrope:
		if positions > s.Original {
			return s.Original + 1
		}
	}
	return 0
}

// Whole reports whether a sequence that starts with this number of tokens must read them at once: with
// "dynamic", each part of them would rotate by its own end.
func (s RopeScaling) Whole(tokens int) bool { return s.Type == ropeDynamic && tokens > s.Original }

// rotations keeps the rotation that a layer used last. The zero value is ready, also for several
// goroutines.
type rotations struct{ last atomic.Pointer[keptRotation] }

type keptRotation struct {
	reach    int
	rotation *tensorops.Rotation
}

// of returns rotation(r.scaling, r.theta, headDim, positions). A layer always passes the same
// description and width.
func (kept *rotations) of(r *ropeSpec, headDim, positions int) *tensorops.Rotation {
	reach := r.scaling.reach(positions)
	if last := kept.last.Load(); last != nil && last.reach == reach {
		return last.rotation
	}
	made := &keptRotation{reach, rotation(r.scaling, r.theta, headDim, positions)}
	kept.last.Store(made)
	return made.rotation
}
