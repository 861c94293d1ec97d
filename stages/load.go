package stages

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/troupe-ml/troupe/internal/host/hostmem"
	"github.com/troupe-ml/troupe/tensorops"
)

// Load fills every weight and, if withState is set, the optimizer state from a source: one tensor
// at a time, through one piece of host memory. Of weights that are not held in float32, it reads some rows at a time.
func (s *Stage) Load(src Source, withState bool) error { return s.LoadSeveral(src, withState, 1) }

// LoadSeveral is Load from a source that may be called from several goroutines. With several readers, it reads that many tensors at a time,
// and fills those in place that the host can address in float32, for a device that holds them so.
func (s *Stage) LoadSeveral(src Source, withState bool, readers int) error {
	largest := 0
	for _, h := range s.local {
		largest = max(largest, s.hostLen(h))
	}
	piece, err := hostmem.New(largest * tensorops.Float32.Size()) // what is not used takes no memory
	if err != nil {
		return fmt.Errorf("allocate memory to load from: %w", err)
	}
	host := tensorops.HostNumbers[float32](piece.Bytes)
	var inPlace []func() error
	load := func(h *localParam, t tensorops.Tensor, p *Param, part string) {
		constant := p.Constant && part == ""
		if readers <= 1 || t.DType() != tensorops.Float32 || t.Buffer().Mem == nil || !t.Contiguous() {
			err = errors.Join(err, s.load(t, p, part, src, host))
			if constant {
				h.constant = float64(host[0])
			}
			return
		}
		inPlace = append(inPlace, func() error {
			numbers := tensorops.Elements[float32](t)
			if err := src(p, part, numbers); err != nil {
				return fmt.Errorf("load %s: %w", partName(part, p.Name), err)
			}
			if constant {
				h.constant = float64(numbers[0])
			}
			return nil
		})
	}
	for _, h := range s.local {
		switch {
		case h.blocks != nil || !h.splitsWeight && h.w.DType() != tensorops.Float32:
			err = errors.Join(err, s.loadNarrow(h, src, host))
		case !h.splitsWeight:
			load(h, h.w, h.param, "")
		case s.ofState(h.param).Len() > 0:
			load(h, s.ownWeight(h), s.ofState(h.param), "")
		}
		if !withState {
			continue
		}
		for i, part := range h.own.moments(h.param) {
			switch {
			case !h.state[i].Valid():
			case h.state[i].DType() == tensorops.Float32:
				load(h, h.state[i], s.ofState(h.param), part)
			default:
				err = errors.Join(err, s.loadState(h, i, part, src, host))
			}
		}
		if h.ema.Valid() {
			load(h, h.ema, s.ofState(h.param), EMAPart)
		}
	}
	if err == nil {
		err = atOnce(readers, inPlace)
	}
	if err = errors.Join(err, piece.Free()); err != nil {
		return err
	}
	l := s.stream.NewList()
	s.round(l)
	if !withState {
		s.startAverages(l)
	}
	return tensorops.Run(s.stream, l)
}

// atOnce calls functions, up to a number of them at a time, until one fails.
func atOnce(most int, all []func() error) error {
	if most = min(most, len(all)); most <= 1 {
		for _, f := range all {
			if err := f(); err != nil {
				return err
			}
		}
		return nil
	}
	var next atomic.Int64
	var failed atomic.Bool
	var calls sync.WaitGroup
	errs := make([]error, most)
	for i := range most {
		calls.Go(func() { // ends with the functions
			for !failed.Load() {
				at := int(next.Add(1)) - 1
				if at >= len(all) {
					return
				}
				if errs[i] = all[at](); errs[i] != nil {
					failed.Store(true)
				}
			}
		})
	}
	calls.Wait()
	return errors.Join(errs...)
}

// load fills a tensor through host memory.
func (s *Stage) load(t tensorops.Tensor, p *Param, part string, src Source, host []float32) error {
	host = host[:p.Len()]
	err := src(p, part, host)
	if err == nil {
		l := s.stream.NewList()
		if t.DType() == tensorops.Float32 {
			l.Upload(t, tensorops.HostBytes(host))
		} else {
			wide := l.Alloc(tensorops.Float32, t.Shape()...)
			l.Upload(wide, tensorops.HostBytes(host))
			l.Copy(t, wide)
			l.Free(wide)
		}
		err = tensorops.Run(s.stream, l)
	}
	if err != nil {
		return fmt.Errorf("load %s: %w", partName(part, p.Name), err)
	}
	return nil
}
