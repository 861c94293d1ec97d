package cuda

import "github.com/troupe-ml/troupe/tensorops"

// use is what is done with an operand that is bfloat16.
type use uint8

const (
	never  use = iota // it is refused
	itself            // the launcher takes it
	reads             // the launcher knows float32 alone: it gets a copy, which it reads
	writes            // it gets room, and writes all of it, for what is rounded after; with FlagAccumulate, a copy
)

// uses are the operands of each operation that has a launcher, in the order of Op.T.
var uses = map[tensorops.Kind][]use{
	tensorops.KindMatMul:               {itself, itself, itself, itself, itself},
	tensorops.KindPack:                 {itself, itself},
	tensorops.KindColSum:               {never, itself},
	tensorops.KindEmbed:                {itself, itself, never},
	tensorops.KindEmbedGrad:            {never, itself, never},
	tensorops.KindAddPositions:         {itself, itself, itself, never},
	tensorops.KindPositionsGrad:        {never, itself, never},
	tensorops.KindLayerNorm:            {itself, itself, never, never, never},
	tensorops.KindLayerNormGrad:        {itself, itself, itself, never, never, itself},
	tensorops.KindLayerNormWeightGrad:  {never, never, itself, itself, never},
	tensorops.KindRMSNorm:              {itself, itself, never, never},
	tensorops.KindRMSNormGrad:          {itself, itself, itself, never, never, itself},
	tensorops.KindRMSNormWeightGrad:    {never, itself, itself, never},
	tensorops.KindGELU:                 {itself, itself},
	tensorops.KindGELUGrad:             {itself, itself, itself},
	tensorops.KindSwiGLU:               {itself, itself, itself},
	tensorops.KindSwiGLUGrad:           {itself, itself, itself, itself, itself},
	tensorops.KindGate:                 {itself, itself, itself},
	tensorops.KindGateGrad:             {itself, itself, itself, itself, itself},
	tensorops.KindAct:                  {itself, itself},
	tensorops.KindActGrad:              {itself, itself, itself},
	tensorops.KindSoftCap:              {itself, itself},
	tensorops.KindSoftCapGrad:          {itself, itself, itself},
	tensorops.KindRoPE:                 {itself, never},
	tensorops.KindAttention:            {writes, reads, reads, reads, never, never},
	tensorops.KindAttentionGrad:        {writes, writes, writes, reads, reads, reads, reads, reads, never, never},
	tensorops.KindAttentionSink:        {itself, never, never},
	tensorops.KindAttentionSinkGrad:    {never, itself, itself, never, never},
	tensorops.KindCausalConv:           {itself, itself, never, itself, never},
	tensorops.KindCausalConvGrad:       {itself, itself, itself, never, never},
	tensorops.KindCausalConvWeightGrad: {never, itself, itself, never, never},
	tensorops.KindDeltaGates:           {never, itself, itself, never, never, never},
	tensorops.KindDeltaGatesGrad:       {itself, itself, never, never, itself, never, never},
	tensorops.KindDeltaGatesWeightGrad: {never, never, never, never, itself, never, never},
	tensorops.KindGatedDelta:           {writes, reads, reads, reads, never, never},
	tensorops.KindGatedDeltaGrad:       {writes, writes, writes, never, reads, reads, reads, reads, never},
	tensorops.KindDropout:              {itself, itself, itself},
	tensorops.KindAdd:                  {itself, itself, itself},
	tensorops.KindAddScaled:            {itself, itself, itself},
	tensorops.KindJitter:               {itself, itself, itself},
	tensorops.KindRoute:                {never, never, never, never, never, never, never},
	tensorops.KindRouteGrad:            {never, never, never, never, never, never, never},
	tensorops.KindRouteStats:           {never, never, never, never, never, never},
	tensorops.KindRouteCount:           {never, never},
	tensorops.KindRouteBias:            {never, never},
	tensorops.KindBalanceLoads:         {never, never, never, never, never},
	tensorops.KindSourceOffsets:        {never, never},
	tensorops.KindRowGate:              {itself, itself, never},
	tensorops.KindRowGateGrad:          {itself, never, itself, itself, never},
	tensorops.KindDispatch:             {itself, itself, never},
	tensorops.KindCombine:              {itself, itself, never, never},
	tensorops.KindWeighRows:            {itself, itself, never, never, never, never},
	tensorops.KindGroupedMatMul:        {writes, reads, reads, never, never, itself},
	tensorops.KindGroupedWeightGrad:    {never, reads, reads, never},
	tensorops.KindGroupedColSum:        {never, itself, never, never, never},
	tensorops.KindWeighBias:            {never, itself, never, never},
	tensorops.KindCrossEntropy:         {never, never, itself, never, itself, never},
	tensorops.KindCrossEntropyPart:     {never, itself, never},
	tensorops.KindCrossEntropyJoin:     {never, never, never, never, itself, itself, never},
	tensorops.KindFill:                 {itself},
	tensorops.KindCopy:                 {itself, itself},
	tensorops.KindSquaredNorm:          {never, itself},
	tensorops.KindAdamW:                {never, never, never, never, itself},
	tensorops.KindSGD:                  {never, never, never, itself},
	tensorops.KindSpin:                 {},
	tensorops.KindAwait:                {},
}

// inFloat32 reports whether an operation's launcher has to be given float32 for bfloat16, unless
// it is for tensor cores.
func inFloat32(o *tensorops.Op) (bool, error) {
	known, some := uses[o.Kind], false
	for i, t := range o.T {
		if !isBFloat16(t) {
			continue
		}
		if i >= len(known) || known[i] == never {
			return false, tensorops.ErrUnsupported
		}
		some = some || known[i] != itself
	}
	return some, nil
}

// launchInFloat32 carries out an operation by a launcher that knows float32 alone.
func (x *exec) launchInFloat32(o *tensorops.Op, l launcher) (err error) {
	x.wide = *o // in the exec, since a launcher's argument is on the heap
	defer func() { x.wide = tensorops.Op{} }()
	for i, u := range uses[o.Kind] {
		if !isBFloat16(o.T[i]) {
			continue
		}
		if u == writes && !o.Has(tensorops.FlagAccumulate) {
			x.wide.T[i], err = x.float32Like(o.T[i])
		} else {
			x.wide.T[i], err = x.widened(o.T[i])
		}
		if err != nil {
			return err
		}
	}
	if err := l(x, &x.wide); err != nil {
		return err
	}
	for i, u := range uses[o.Kind] {
		if u != writes || !isBFloat16(o.T[i]) {
			continue
		}
		if err := copyTo(x, o.T[i], x.wide.T[i]); err != nil {
			return err
		}
	}
	return nil
}

func isBFloat16(t tensorops.Tensor) bool { return t.Valid() && t.DType() == tensorops.BFloat16 }

// float32Like is a matrix in scratch memory, of float32, with the rows and columns of another.
func (x *exec) float32Like(t tensorops.Tensor) (tensorops.Tensor, error) {
	wide, err := tensorops.NewTensor(x.temporary, tensorops.Float32, t.Rows(), t.Cols())
	if err == nil {
		x.taken = append(x.taken, wide.Buffer())
	}
	return wide, err
}

// widened is a matrix in float32: itself, or a copy in scratch memory.
func (x *exec) widened(t tensorops.Tensor) (tensorops.Tensor, error) {
	if !isBFloat16(t) {
		return t, nil
	}
	wide, err := x.float32Like(t)
	if err != nil {
		return wide, err
	}
	return wide, copyTo(x, wide, t)
}
