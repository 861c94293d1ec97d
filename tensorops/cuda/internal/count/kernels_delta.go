package count

// Arguments of conv.cu, delta_gates.cu and delta.cuh.
type (
	convArgs struct {
		Out, X, Weight, DY, State, Starts           uint64
		XStride, OutStride                          int64
		Sequences, Positions, Channels, RowsOfBlock int64
		Taps                                        int32
		Halves                                      uint32
	}
	deltaSizes struct {
		QStride, KStride, VStride                             int64
		Positions                                             int64
		Eps                                                   float64
		Scale                                                 float32
		Sequences, KeyHeads, ValueHeads, KeyWidth, ValueWidth int32
	}
	deltaArgs struct {
		O, Q, K, V, Gates, State, States, Rest uint64
		Sizes                                  deltaSizes
	}
	deltaGradArgs struct {
		DQ, DK, DV, DGates, DO, Q, K, V, Gates uint64
		States, Rest, DStates, DRest           uint64
		DQStride, DKStride, DVStride           int64
		Sizes                                  deltaSizes
	}
)

// rows are those of all sequences.
func (a *convArgs) rows() int64 { return a.Sequences * a.Positions }

// starts are read for each tap.
func (a *convArgs) starts() Operand { return array(a.Starts, a.rows(), 4).some() }

// inputs are the rows of x, which each tap reads again, and the weights.
func (a *convArgs) inputs() (x, weight Operand) {
	x = matrix(a.X, a.rows(), a.Channels, a.XStride, sizeOf(a.Halves, 1)).again()
	weight = array(a.Weight, a.Channels*int64(a.Taps), 4).again()
	if a.Starts != 0 { // documents may be shorter than the taps
		weight = weight.some()
	}
	return x, weight
}

func (a *convArgs) state() Operand {
	return either(a.State, a.Sequences*(int64(a.Taps)-1)*a.Channels, a.Halves, 3)
}

func (a *convArgs) dy() Operand { return either(a.DY, a.rows()*a.Channels, a.Halves, 2).again() }

// rows are those of all sequences, and states the elements of a state for each chunk of a head.
func (s *deltaSizes) rows() int64 { return int64(s.Sequences) * s.Positions }

func (s *deltaSizes) state() int64 {
	return int64(s.Sequences) * int64(s.ValueHeads) * int64(s.KeyWidth) * int64(s.ValueWidth)
}

func (s *deltaSizes) states() int64 { return s.state() * ((s.Positions + 63) / 64) }

func (s *deltaSizes) keys(at uint64, stride int64) Operand {
	return matrix(at, s.rows(), int64(s.KeyHeads)*int64(s.KeyWidth), stride, 4).again()
}

func (s *deltaSizes) width() int64 { return int64(s.ValueHeads) * int64(s.ValueWidth) }

func (s *deltaSizes) values(at uint64) Operand { return array(at, s.rows()*s.width(), 4) }

func (s *deltaSizes) gates(at uint64) Operand {
	return array(at, s.rows()*2*int64(s.ValueHeads), 4)
}

// flops are those of some products of a key's channels with each column of a state, for each position.
func (s *deltaSizes) flops(products int64) float64 {
	return float64(2 * products * s.state() * s.Positions)
}

func deltaForward(a *deltaArgs, _ *Event, c *Cost) {
	s := &a.Sizes
	c.FLOPs = s.flops(3)
	c.writes(s.values(a.O), array(a.State, s.state(), 4), array(a.States, s.states(), 4), s.values(a.Rest))
	c.reads(s.keys(a.Q, s.QStride), s.keys(a.K, s.KStride), matrix(a.V, s.rows(), s.width(), s.VStride, 4), s.gates(a.Gates).again(),
		array(a.State, s.state(), 4))
}

func deltaBack(a *deltaGradArgs, _ *Event, c *Cost) {
	s := &a.Sizes
	c.FLOPs = s.flops(3)
	c.writes(matrix(a.DV, s.rows(), s.width(), a.DVStride, 4), array(a.DStates, s.states(), 4), s.values(a.DRest))
	c.reads(s.keys(a.Q, s.QStride), s.keys(a.K, s.KStride), s.values(a.DO), s.gates(a.Gates).again())
}

func deltaKeys(a *deltaGradArgs, _ *Event, c *Cost) {
	s := &a.Sizes
	c.FLOPs = s.flops(3)
	dq, dk := s.keys(a.DQ, a.DQStride), s.keys(a.DK, a.DKStride)
	c.writes(dq, dk, s.gates(a.DGates))
	c.reads(dq, dk, s.keys(a.Q, s.QStride), s.keys(a.K, s.KStride), s.values(a.DO).again(), s.values(a.Rest).again(),
		s.values(a.DRest).again(),
		array(a.States, s.states(), 4).again(), array(a.DStates, s.states(), 4).again(), s.gates(a.Gates).again())
}

func deltaKernels() map[string]costOf {
	all := map[string]costOf{
		"causal_conv": line(Activations, func(a *convArgs, _ *Event, c *Cost) {
			x, weight := a.inputs()
			c.writes(matrix(a.Out, a.rows(), a.Channels, a.OutStride, sizeOf(a.Halves, 0)))
			state := a.state()
			state.Use = Some // the rows that short sequences see
			c.reads(x, weight, state, a.starts())
		}),
		"causal_conv_state": line(Activations, func(a *convArgs, _ *Event, c *Cost) {
			x := matrix(a.X, a.rows(), a.Channels, a.XStride, sizeOf(a.Halves, 1)).some()
			c.writes(a.state())
			c.reads(x, a.state().some())
		}),
		"causal_conv_grad": line(Activations, func(a *convArgs, _ *Event, c *Cost) {
			x, weight := a.inputs()
			c.writes(matrix(a.Out, a.rows(), a.Channels, a.OutStride, sizeOf(a.Halves, 0)))
			c.reads(x, weight, a.dy(), a.starts())
		}),
		"causal_conv_weight_grad": line(Columns, func(a *convArgs, e *Event, c *Cost) {
			x, weight := a.inputs()
			c.writes(array(a.Out, int64(e.Grid[1])*a.Channels*int64(a.Taps), 4))
			c.reads(x, weight, a.dy(), a.starts())
		}),
		"delta_gates": line(Activations, func(a *struct {
			Gates, In, B, ALog, DTBias, Starts uint64
			Rows, Heads, Positions             int64
			Halves                             uint32
		}, _ *Event, c *Cost) {
			n := a.Rows * a.Heads
			gates := array(a.Gates, 2*n, 4)
			if a.Starts != 0 { // a document's first decay is stored once more
				gates = gates.again()
			}
			c.writes(gates)
			c.reads(either(a.In, n, a.Halves, 0), either(a.B, n, a.Halves, 1), array(a.ALog, a.Heads, 4).again(),
				array(a.DTBias, a.Heads, 4).again(), array(a.Starts, a.Rows, 4).again())
		}),
		"delta_gates_grad": line(Activations, func(a *struct {
			DA, DB, DGates, Gates, In, ALog, DTBias uint64
			Rows, Heads                             int64
			Halves                                  uint32
		}, _ *Event, c *Cost) {
			n := a.Rows * a.Heads
			c.writes(either(a.DA, n, a.Halves, 0), either(a.DB, n, a.Halves, 1))
			c.reads(array(a.DGates, 2*n, 4).some(), array(a.Gates, 2*n, 4).again(), either(a.In, n, a.Halves, 2),
				array(a.ALog, a.Heads, 4).again(), array(a.DTBias, a.Heads, 4).again())
		}),
		"delta_gates_weight_grad": line(Columns, func(a *struct {
			Partial, DGates, Gates, In, ALog, DTBias uint64
			Rows, Heads, RowsOfBlock                 int64
			Halves                                   uint32
		}, e *Event, c *Cost) {
			c.writes(array(a.Partial, int64(e.Grid[1])*2*a.Heads, 4))
			// A document's first decay has no gradient.
			c.reads(matrix(a.DGates, a.Rows, a.Heads, 2*a.Heads, 4).some(), matrix(a.Gates, a.Rows, a.Heads, 2*a.Heads, 4).again(),
				either(a.In, a.Rows*a.Heads, a.Halves, 0), array(a.ALog, a.Heads, 4).again(), array(a.DTBias, a.Heads, 4).again())
		}),
		"gated_delta_keys": line(Attention, deltaKeys),
	}
	for _, width := range []string{"64", "128", "256"} {
		all["gated_delta_"+width], all["gated_delta_back_"+width] = line(Attention, deltaForward), line(Attention, deltaBack)
	}
	return all
}
