package ref

import (
	"fmt"

	"github.com/troupe-ml/troupe/tensorops"
)

// stream executes lists in order in a goroutine of its own.
type stream struct {
	name  string
	arena *tensorops.Pool
	queue *tensorops.Queue
	ended chan struct{}
}

func newStream(name string, arena *tensorops.Pool) *stream {
	s := &stream{name: name, arena: arena, queue: tensorops.NewQueue(name, arena, storedBytes), ended: make(chan struct{})}
	go s.run()
	return s
}

func (s *stream) Arena() tensorops.Arena { return s.arena }

func (s *stream) NewList() *tensorops.List { return s.queue.NewList() }

func (s *stream) Submit(l *tensorops.List, done func(error)) { s.queue.Submit(l, done) }

// Close lets the running list end; those that wait fail with ErrClosed.
func (s *stream) Close() {
	s.queue.Close(tensorops.ErrClosed)
	<-s.ended
}

func (s *stream) run() {
	defer close(s.ended)
	for {
		sub, ok := s.queue.Wait()
		if !ok {
			break
		}
		err := execute(sub.List)
		if err != nil {
			err = fmt.Errorf("%s: %w", s.name, err)
		}
		s.queue.Finish(sub, err)
	}
	s.queue.Drain()
}

// execute runs the operations of a list until one fails.
func execute(l *tensorops.List) error {
	if err := l.Err(); err != nil {
		return err
	}
	ops := l.Ops()
	for i := range ops {
		err := run(&ops[i])
		switch {
		case err == nil:
		case ops[i].Kind == tensorops.KindCall: // it says itself what it is
			return err
		default:
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
	if err := compute(op); err != nil {
		return err
	}
	round(op)
	return nil
}

// round gives the operation's tensors of bfloat16 numbers that bfloat16 has. Those that were
// only read have them already.
func round(op *tensorops.Op) {
	for _, t := range op.T {
		if !t.Valid() || t.DType() != tensorops.BFloat16 || op.Kind == tensorops.KindPack {
			continue
		}
		m := matrixOf(t)
		for i := range m.rows {
			for j := range m.cols {
				*m.at(i, j) = bf16(*m.at(i, j))
			}
		}
	}
}

// compute carries out one operation in float64.
func compute(op *tensorops.Op) error {
	switch op.Kind {
	case tensorops.KindPack: // products read B itself
		return nil
	case tensorops.KindMatMul:
		matMul(op)
	case tensorops.KindColSum:
		colSum(op)
	case tensorops.KindAdd:
		add(op)
	case tensorops.KindAddScaled:
		addScaledTo(op)
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
	case tensorops.KindGate:
		gate(op)
	case tensorops.KindGateGrad:
		gateGrad(op)
	case tensorops.KindAct:
		act(op)
	case tensorops.KindActGrad:
		actGrad(op)
	case tensorops.KindSoftCap:
		softCap(op)
	case tensorops.KindSoftCapGrad:
		softCapGrad(op)
	case tensorops.KindDropout:
		dropout(op)
	case tensorops.KindJitter:
		jitter(op)
	case tensorops.KindRoPE:
		rope(op)
	case tensorops.KindAttention:
		attention(op)
	case tensorops.KindAttentionGrad:
		attentionGrad(op)
	case tensorops.KindCausalConv:
		causalConv(op)
	case tensorops.KindCausalConvGrad:
		causalConvGrad(op)
	case tensorops.KindCausalConvWeightGrad:
		causalConvWeightGrad(op)
	case tensorops.KindDeltaGates:
		deltaGates(op)
	case tensorops.KindDeltaGatesGrad:
		deltaGatesGrad(op)
	case tensorops.KindDeltaGatesWeightGrad:
		deltaGatesWeightGrad(op)
	case tensorops.KindGatedDelta:
		gatedDelta(op)
	case tensorops.KindGatedDeltaGrad:
		gatedDeltaGrad(op)
	case tensorops.KindAttentionSink:
		attentionSink(op)
	case tensorops.KindAttentionSinkGrad:
		attentionSinkGrad(op)
	case tensorops.KindRoute:
		route(op)
	case tensorops.KindRouteGrad:
		routeGrad(op)
	case tensorops.KindRouteStats:
		routeStats(op)
	case tensorops.KindRouteCount:
		routeCount(op)
	case tensorops.KindRouteBias:
		routeBias(op)
	case tensorops.KindBalanceLoads:
		balanceLoads(op)
	case tensorops.KindRowGate:
		rowGate(op)
	case tensorops.KindRowGateGrad:
		rowGateGrad(op)
	case tensorops.KindDispatch:
		return dispatch(op)
	case tensorops.KindCombine:
		return combine(op)
	case tensorops.KindWeighRows:
		return weighRows(op)
	case tensorops.KindGroupedMatMul:
		return groupedMatMul(op)
	case tensorops.KindGroupedWeightGrad:
		return groupedWeightGrad(op)
	case tensorops.KindSourceOffsets:
		return sourceOffsets(op)
	case tensorops.KindGroupedColSum:
		return groupedColSum(op)
	case tensorops.KindWeighBias:
		return weighBias(op)
	case tensorops.KindCrossEntropy:
		return crossEntropy(op)
	case tensorops.KindCrossEntropyPart:
		return crossEntropyPart(op)
	case tensorops.KindCrossEntropyJoin:
		crossEntropyJoin(op)
	case tensorops.KindDistill:
		return distill(op)
	case tensorops.KindSquaredNorm:
		squaredNorm(op)
	case tensorops.KindAdamW:
		adamW(op)
	case tensorops.KindSGD:
		sgd(op)
	case tensorops.KindNarrowState:
		narrowState(op)
	case tensorops.KindWidenState:
		widenState(op)
	case tensorops.KindFill:
		fill(op)
	case tensorops.KindCopy, tensorops.KindPeerCopy:
		copyTensor(op)
	case tensorops.KindUpload:
		upload(op)
	case tensorops.KindFetch:
		fetch(op)
	case tensorops.KindCollective:
		return collective(op)
	case tensorops.KindAwait: // collectives are carried out at once
	case tensorops.KindSpin:
		spin(op)
	case tensorops.KindCall:
		return call(op)
	default:
		return tensorops.ErrUnsupported
	}
	return nil
}
