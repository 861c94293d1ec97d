package ref

import (
	"fmt"
	"sync"

	"github.com/troupe-ml/troupe/tensorops"
)

// stream executes lists in order in a goroutine of its own.
type stream struct {
	name  string
	arena tensorops.Arena
	queue chan submission
	ended chan struct{}

	mu     sync.Mutex // orders Submit and Close: nothing is sent on a closed queue
	closed bool
}

type submission struct {
	list *tensorops.List
	done func(error)
}

func newStream(name string, arena tensorops.Arena) *stream {
	s := &stream{
		name:  name,
		arena: arena,
		queue: make(chan submission, tensorops.LimitStreamQueue),
		ended: make(chan struct{}),
	}
	go s.run()
	return s
}

func (s *stream) Arena() tensorops.Arena { return s.arena }

func (s *stream) NewList() *tensorops.List {
	return tensorops.NewList(s.arena, storedBytes)
}

// Submit queues the list, or refuses it at once when the stream is closed or
// its queue full.
func (s *stream) Submit(l *tensorops.List, done func(error)) {
	if err := s.enqueue(submission{l, done}); err != nil {
		s.finish(submission{l, done}, err)
	}
}

func (s *stream) enqueue(sub submission) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return tensorops.ErrClosed
	}
	select {
	case s.queue <- sub:
		return nil
	default:
		return fmt.Errorf("%w: %d lists wait", tensorops.ErrQueueFull, len(s.queue))
	}
}

// Close lets the running list end; those that wait fail with ErrClosed.
func (s *stream) Close() {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.queue)
	}
	s.mu.Unlock()
	<-s.ended
}

func (s *stream) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

func (s *stream) run() {
	defer close(s.ended)
	for sub := range s.queue {
		err := tensorops.ErrClosed
		if !s.isClosed() {
			err = execute(sub.list)
		}
		s.finish(sub, err)
	}
}

// finish gives back what the list freed, whatever became of it, and reports.
func (s *stream) finish(sub submission, err error) {
	sub.list.Complete()
	if err != nil {
		err = fmt.Errorf("%s: %w", s.name, err)
	}
	sub.done(err)
}

// execute runs the operations of a list until one fails.
func execute(l *tensorops.List) error {
	if err := l.Err(); err != nil {
		return err
	}
	ops := l.Ops()
	for i := range ops {
		if err := run(&ops[i]); err != nil {
			return fmt.Errorf("operation %d, %v: %w", i, &ops[i], err)
		}
	}
	return nil
}

// run carries out one operation; a panic in it is an error of the list.
func run(op *tensorops.Op) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	switch op.Kind {
	case tensorops.KindPack: // products read B itself
		return nil
	case tensorops.KindMatMul:
		matMul(op)
	case tensorops.KindColSum:
		colSum(op)
	case tensorops.KindAdd:
		add(op)
	case tensorops.KindEmbed:
		return embed(op)
	case tensorops.KindEmbedGrad:
		return embedGrad(op)
	case tensorops.KindAddPositions:
		addPositions(op)
	case tensorops.KindPositionsGrad:
		positionsGrad(op)
	case tensorops.KindLayerNorm:
		layerNorm(op)
	case tensorops.KindLayerNormGrad:
		layerNormGrad(op)
	case tensorops.KindLayerNormWeightGrad:
		layerNormWeightGrad(op)
	case tensorops.KindRMSNorm:
		rmsNorm(op)
	case tensorops.KindRMSNormGrad:
		rmsNormGrad(op)
	case tensorops.KindRMSNormWeightGrad:
		rmsNormWeightGrad(op)
	case tensorops.KindGELU:
		gelu(op)
	case tensorops.KindGELUGrad:
		geluGrad(op)
	case tensorops.KindSwiGLU:
		swiGLU(op)
	case tensorops.KindSwiGLUGrad:
		swiGLUGrad(op)
	case tensorops.KindDropout:
		dropout(op)
	case tensorops.KindRoPE:
		rope(op)
	case tensorops.KindAttention:
		attention(op)
	case tensorops.KindAttentionGrad:
		attentionGrad(op)
	case tensorops.KindCrossEntropy:
		return crossEntropy(op)
	case tensorops.KindSquaredNorm:
		squaredNorm(op)
	case tensorops.KindAdamW:
		adamW(op)
	case tensorops.KindSGD:
		sgd(op)
	case tensorops.KindFill:
		fill(op)
	case tensorops.KindCopy:
		copyTensor(op)
	case tensorops.KindUpload:
		upload(op)
	case tensorops.KindFetch:
		fetch(op)
	case tensorops.KindAllReduce:
		return allReduce(op)
	case tensorops.KindSpin:
		spin(op)
	default:
		return tensorops.ErrUnsupported
	}
	return nil
}
