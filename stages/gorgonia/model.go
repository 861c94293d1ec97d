package gorgonia

import (
	"fmt"
	"strings"
	"sync"

	"gorgonia.org/tensor"

	"github.com/troupe-ml/troupe/tensorops"
)

// model makes a layer's graphs and keeps them for the next microbatch of the same shapes. Its
// methods may be called from any goroutine. It has no goroutines of its own, so it needs no Close:
// the garbage collector frees idle graphs together with the model.
type model struct {
	build  Build
	params []weight
	float  tensor.Dtype

	mu         sync.Mutex
	idle       []*instance        // the most recently used is last
	scratch    map[string]*memory // scratch memory of backward passes, one for each of the shapes in idle
	signatures map[string]uint64
}

func newModel(build Build, params []weight, float tensor.Dtype) *model {
	UseEngineBLAS()
	return &model{build: build, params: params, float: float, scratch: map[string]*memory{}, signatures: map[string]uint64{}}
}

func keyOf(in []input) string {
	var b strings.Builder
	for _, x := range in {
		fmt.Fprintf(&b, "%v%v%v ", x.dtype, x.shape, x.grad)
	}
	return b.String()
}

// take finds or builds a graph for inputs with the given types and shapes.
func (m *model) take(in []input) (*instance, error) {
	key := keyOf(in)
	m.mu.Lock()
	for i := len(m.idle) - 1; i >= 0; i-- {
		if x := m.idle[i]; x.key == key {
			m.idle = append(m.idle[:i], m.idle[i+1:]...)
			m.mu.Unlock()
			return x, nil
		}
	}
	m.mu.Unlock()
	x, err := newInstance(m.build, in, m.params, m.float)
	if err != nil {
		return nil, err
	}
	x.key = key
	m.mu.Lock()
	defer m.mu.Unlock()
	if first, ok := m.signatures[key]; ok && first != x.program.signature {
		return nil,
			fmt.Errorf("%w: Build made two different graphs for the same shapes %s: it must depend only on its arguments and must not draw random numbers", ErrGraph, shapes(in))
	}
	if len(m.signatures) >= LimitShapes {
		clear(m.signatures)
	}
	m.signatures[key] = x.program.signature
	return x, nil
}

// give keeps a graph for another microbatch and releases the caller's memory.
func (m *model) give(x *instance) {
	x.release()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.idle = append(m.idle, x)
	if len(m.idle) > LimitIdle {
		dropped := m.idle[0].key
		m.idle = append(m.idle[:0], m.idle[1:]...)
		for _, y := range m.idle {
			if y.key == dropped {
				return
			}
		}
		delete(m.scratch, dropped)
	}
}

// backward runs an instance's backward pass; see instance.backward.
func (m *model) backward(x *instance, dout, din, dparams []tensorops.Array) error {
	m.mu.Lock()
	scratch := m.scratch[x.key]
	delete(m.scratch, x.key)
	m.mu.Unlock()
	if scratch == nil {
		scratch = newMemory(x.program.slots - x.program.forwardSlots)
	}
	err := x.backward(dout, din, dparams, scratch)
	m.mu.Lock()
	m.scratch[x.key] = scratch
	m.mu.Unlock()
	return err
}
