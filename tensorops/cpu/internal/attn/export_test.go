package attn

// MultipliesBF16 reports whether operands are rounded to bfloat16.
func (kn *Kernel) MultipliesBF16() bool { return kn.bf16 != nil }

// Dot is the product of two rows.
var Dot = dot
