package count

import "fmt"

// Shape is a GPT-2 and its batch, in the words of tensorops: B sequences of T positions, C
// channels, V ids.
type Shape struct {
	Layers, C, Heads, V, B, T int
	ResidualBytes             int // of an element of the residual stream: 4 or 2
}

// rows is N.
func (s Shape) rows() int { return s.B * s.T }

// Parameters is how many weights there are, the head's being the embedding's.
func (s Shape) Parameters() int {
	c := s.C
	block := 2*2*c + (c*3*c + 3*c) + (c*c + c) + (c*4*c + 4*c) + (4*c*c + c)
	return s.V*c + s.T*c + s.Layers*block + 2*c
}

// Item is a line of a sum of bytes.
type Item struct {
	What  string
	Bytes int64
}

// Total is the sum.
func Total(items []Item) (sum int64) {
	for _, i := range items {
		sum += i.Bytes
	}
	return sum
}

// Floor is what element-wise work has to move at the least where what can be one kernel is
// one, each of its operands passes once, and activations and their gradients are
// bfloat16. The residual stream is of ResidualBytes; what is small beside a row (gammas, biases,
// statistics) counts for nothing.
//
//   - norms: a branch's output is added to the residual stream and the sum normalized in one kernel
//     (read both, write the sum and the normalized rows), twice a layer and once at the end. Backward one
//     kernel makes the gradient of the input, adds the residual stream's, and sums up the weights'
//     (read the gradient of the output, the input and the residual stream's gradient, write that).
//   - GELU: forward (read, write) and backward (read the gradient and the input, write), in kernels of their own.
//   - column sums: each bias's gradient reads its layer's once.
//   - loss: one kernel reads a row of logits once and writes its gradient in its place.
//   - AdamW: reads weight, both moments and gradient, writes the first three, zeros for the
//     gradient, and the weight in bfloat16, which is the only rounding. The norm reads gradients once.
//   - embedding: reads a row of tokens and one of positions, writes their sum; backward reads the
//     gradient twice (for tokens and positions) and reads and writes the rows' gradients.
func Floor(s Shape) []Item {
	const half = 2
	n, c, r := int64(s.rows()), int64(s.C), int64(s.ResidualBytes)
	row, layers, p := n*c, int64(s.Layers), int64(s.Parameters())
	return []Item{
		{"norms and residual, forward", (2*layers + 1) * row * (r + half + r + half)},
		{"norms and residual, backward", (2*layers + 1) * row * (half + r + r + r)},
		{"GELU, forward", layers * 4 * row * (half + half)},
		{"GELU, backward", layers * 4 * row * (half + half + half)},
		{"column sums", layers * (3 + 1 + 4 + 1) * row * half},
		{"loss", n * int64(s.V) * (half + half)},
		{"AdamW", p * (4*4 + 3*4 + 4 + half)},
		{"gradient norm", p * 4},
		{"embedding, forward", row * (4 + r)},
		{"embedding, backward", row * (r + r + 4 + 4)},
	}
}

// Autocast is the device memory that PyTorch needs for the same step under autocast to
// bfloat16, with scaled_dot_product_attention by its flash kernel and without torch.compile, by what
// autograd keeps. Sources: torch/csrc/api's derivatives.yaml for what each operation saves; the list of
// operations that autocast runs in float32 (layer_norm, cross_entropy by nll_loss and
// log_softmax) and in lower precision (linear) in PyTorch's documentation, "Automatic Mixed
// Precision package, CUDA ops that autocast to"; and its cache of the weights' casts. The count is as that of Korthikanti et
// al., Reducing Activation Recomputation in Large Transformer Models (2022), section 4.1, without
// the matrix of attention and without dropout, with the type of each tensor. What the
// allocator loses to fragments, cuBLAS's workspace and the context are not in it, nor are they in
// what is counted here.
func Autocast(s Shape) []Item {
	const half, single = 2, 4
	n, c, layers, p := int64(s.rows()), int64(s.C), int64(s.Layers), int64(s.Parameters())
	row := n * c
	layer := row*single + // the first norm's input, float32: the residual stream
		row*half + // its output, cast, as the input of the linear layer for q, k and v
		3*row*half + row*half + n*int64(s.Heads)*single + // q, k, v, the output and logsumexp of attention, whose output is the next input
		row*single + // the second norm's input
		row*half + // its output, cast
		4*row*half + 4*row*half + // GELU's input, and its output as the next input
		2*2*n*single // both norms' statistics
	v := int64(s.V)
	return []Item{
		{"weights, gradients, both moments in float32", p * (4 + 4 + 8)},
		{"casts of the weights", p * half},
		{"activations of the layers", layers * layer},
		{"final norm", row*single + row*half + 2*n*single},
		{"logits", n * v * half},
		{"log-softmax, and its gradient, in float32", 2 * n * v * single},
	}
}

// List shows items with their sum.
func List(title string, items []Item) string {
	s := title + "\n"
	for _, i := range append(items[:len(items):len(items)], Item{"sum", Total(items)}) {
		s += fmt.Sprintf("  %-45s %8.2f GB\n", i.What, float64(i.Bytes)/1e9)
	}
	return s
}
