package attn

// MultipliesBF16 reports whether operands are rounded to bfloat16.
func (kn *Kernel) MultipliesBF16() bool { return kn.bf16 != nil }

// Delta and Dot are the products of rows that the backward pass takes.
var (
	Delta = (*Kernel).delta
	Dot   = dot
)
