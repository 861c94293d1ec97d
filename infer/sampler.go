package infer

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/troupe-ml/troupe/internal/base/rng"
)

// sampler draws tokens. It processes the logits as transformers' generate does, in the same
// order: repetition penalty, temperature, top-k, top-p, min-p.
type sampler struct {
	o     TextOptions
	key   rng.Key
	there []bool // by id: it is in the text already
	all   []candidate
}

// candidate is a token that may be drawn.
type candidate struct {
	id    int32
	logit float64
	p     float64 // its probability, up to a factor
}

func newSampler(o TextOptions, vocab int) *sampler {
	return &sampler{o: o, key: rng.NewKey(o.Seed, rng.StringStream("generate")), there: make([]bool, vocab), all: make([]candidate, 0, vocab)}
}

// seen records tokens of the text, for the repetition penalty.
func (s *sampler) seen(ids ...int32) {
	for _, id := range ids {
		if id >= 0 && int(id) < len(s.there) {
			s.there[id] = true
		}
	}
}

// check rejects logits from which no token can be drawn. A logit of minus infinity is allowed:
// that token is never drawn.
func (s *sampler) check(logits []float32) error {
	top := float32(math.Inf(-1))
	for id := range s.there {
		l := float64(logits[id])
		if math.IsNaN(l) || math.IsInf(l, 1) {
			return fmt.Errorf("%w: the logit of id %d is %g", ErrNotFinite, id, l)
		}
		top = max(top, logits[id])
	}
	if math.IsInf(float64(top), -1) {
		return fmt.Errorf("%w: all %d logits are -Inf", ErrNotFinite, len(s.there))
	}
	return nil
}

// choose draws token number i from the logits. Ids above the tokenizer's are
// padding of the model's vocabulary and never drawn.
func (s *sampler) choose(logits []float32, i uint64) int32 {
	all := s.penalized(logits)
	if s.o.Temperature == 0 {
		return slices.MaxFunc(all, func(a, b candidate) int {
			return cmp.Or(cmp.Compare(a.logit, b.logit), cmp.Compare(b.id, a.id))
		}).id
	}
	kept := s.filter(all)
	var sum float64
	for _, c := range kept {
		sum += c.p
	}
	word, _, _, _ := rng.Block(s.key, 0, i)
	u := rng.Uniform(word) * sum
	for _, c := range kept {
		if u -= c.p; u <= 0 {
			return c.id
		}
	}
	return kept[len(kept)-1].id
}

// penalized returns the logits with the repetition penalty.
func (s *sampler) penalized(logits []float32) []candidate {
	s.all = s.all[:0]
	for id, there := range s.there {
		l := float64(logits[id])
		if r := s.o.RepetitionPenalty; there && r != 0 {
			if l > 0 {
				l /= r
			} else {
				l *= r
			}
		}
		s.all = append(s.all, candidate{id: int32(id), logit: l})
	}
	return s.all
}

// filter returns the tokens to draw from, the most likely first, with their probabilities.
func (s *sampler) filter(all []candidate) []candidate {
	if s.o.TopK > 0 {
		all = likeliest(all, s.o.TopK)
	}
	slices.SortFunc(all, likelier)
	top, sum := all[0].logit, 0.0
	for i := range all {
		all[i].p = math.Exp((all[i].logit - top) / s.o.Temperature)
		sum += all[i].p
	}
	if s.o.TopP > 0 && s.o.TopP < 1 {
		before := 0.0
		for i := range all {
			if i > 0 && before >= s.o.TopP*sum {
				all = all[:i]
				break
			}
			before += all[i].p
		}
	}
	if s.o.MinP > 0 {
		n := 1
		for n < len(all) && all[n].p >= s.o.MinP*all[0].p {
			n++
		}
		all = all[:n]
	}
	return all
}

// likelier orders tokens, the most likely first.
func likelier(a, b candidate) int {
	switch {
	case a.logit > b.logit:
		return -1
	case a.logit < b.logit:
		return 1
	}
	return cmp.Compare(a.id, b.id)
}

// likeliest moves the k most likely tokens to the front and returns them, in no order. It keeps them as a heap with the
// least likely one on top: to sort a large vocabulary takes milliseconds.
func likeliest(all []candidate, k int) []candidate {
	if k >= len(all) {
		return all
	}
	top := all[:k]
	down := func(i int) {
		for {
			least := i
			for child := 2*i + 1; child <= 2*i+2 && child < k; child++ {
				if likelier(top[child], top[least]) > 0 {
					least = child
				}
			}
			if least == i {
				return
			}
			top[i], top[least] = top[least], top[i]
			i = least
		}
	}
	for i := k/2 - 1; i >= 0; i-- {
		down(i)
	}
	for i := k; i < len(all); i++ {
		if likelier(all[i], top[0]) < 0 {
			all[i], top[0] = top[0], all[i]
			down(0)
		}
	}
	return top
}

// stopper ends a text before the first stop string. It holds back text that may be the beginning of one.
type stopper struct {
	stops [][]byte
	held  []byte
}

func newStopper(stops []string) *stopper {
	s := &stopper{}
	for _, text := range stops {
		s.stops = append(s.stops, []byte(text))
	}
	return s
}

// take returns the part of a text that can be written, and whether the text ends there.
func (s *stopper) take(text []byte) (out []byte, ended bool) {
	text = append(s.held, text...)
	cut, end := -1, -1 // of the first complete stop string
	for _, stop := range s.stops {
		if at := bytes.Index(text, stop); at >= 0 && (end < 0 || at+len(stop) < end || at+len(stop) == end && at < cut) {
			cut, end = at, at+len(stop)
		}
	}
	if end >= 0 {
		s.held = nil
		return text[:cut], true
	}
	hold := 0
	for _, stop := range s.stops {
		for n := min(len(stop)-1, len(text)); n > hold; n-- {
			if bytes.HasSuffix(text, stop[:n]) {
				hold = n
			}
		}
	}
	s.held = slices.Clone(text[len(text)-hold:])
	return text[:len(text)-hold], false
}

// rest returns the text that is still held back at the end.
func (s *stopper) rest() []byte { return s.held }
