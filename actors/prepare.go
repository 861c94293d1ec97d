package actors

import (
	"errors"
	"fmt"

	"github.com/troupe-ml/troupe/tensorops"
)

// A process that will get ranks of an attempt can make their stages before: while the attempt before still computes, so that only their
// state is missing when it has ended.

// errUnprepared: what an attempt was to get is not wanted any more.
var errUnprepared = errors.New("the stages are not wanted any more")

// Prepare builds the stage of a rank and the shadows that its actor will hold, without their state, for an attempt that gets them in
// Spec.Adopt and fills them with Spec.Load. Build makes the stage here, and the system gives the memory now. Prepare ends early if ends
// says so. The caller owns the result. Only the tables, the devices, the shadows and the functions that build are used of s.
func Prepare(s *Spec, rank int, ends func() bool) (_ *Kept, err error) {
	k := &Kept{Rank: rank, blank: true, spare: tensorops.NewSpare(), stream: s.device(rank).NewStream(s.stageName(rank))}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("prepare rank %d: %w", rank, err), k.Close())
		}
	}()
	defer caught(&err)
	if k.stage, err = s.Build(rank, k.stream); err != nil {
		return nil, err
	}
	streams := []tensorops.Stream{k.stream}
	for of := range s.ranks() {
		if s.ShadowAt(of) != rank {
			continue
		}
		if ends() {
			return nil, errUnprepared
		}
		held := s.newShadow(of)
		k.shadows = append(k.shadows, held)
		if err := held.build(s); err != nil {
			return nil, err
		}
		streams = append(streams, held.stream)
		for _, bytes := range held.stage.GradientBytes() { // which arrive in each step
			if err := k.spare.Stock(bytes, ends); err != nil {
				return nil, err
			}
		}
	}
	for _, one := range streams {
		if p, ok := one.Arena().(*tensorops.Pool); ok {
			p.Populate(ends)
		}
	}
	if ends() {
		return nil, errUnprepared
	}
	return k, nil
}
