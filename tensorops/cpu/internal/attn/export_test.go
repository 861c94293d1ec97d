package attn

// MultipliesBF16 reports whether operands are rounded to bfloat16.
func (kn *Kernel) MultipliesBF16() bool { return kn.bf16 != nil }

// Dot is the product of two rows.
var Dot = dot

// Cap and CapSlope are the loops of the soft cap.
func Cap(kn *Kernel, s []float32, factor, limit float32) { kn.cap(s, factor, limit) }
func CapSlope(kn *Kernel, s, slope []float32, factor, limit, scale float32) {
	kn.capSlope(s, slope, factor, limit, scale)
}
