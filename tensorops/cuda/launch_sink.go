package cuda

import "github.com/troupe-ml/troupe/tensorops"

var sinkLaunchers = map[tensorops.Kind]launcher{
	tensorops.KindAttentionSink:     attentionSink,
	tensorops.KindAttentionSinkGrad: attentionSinkGrad,
}

// attentionSink has a warp for each query of each head.
func attentionSink(x *exec, o *tensorops.Op) error {
	a := o.AttentionSink()
	count := a.Batch * a.Heads * a.Queries
	if count == 0 {
		return nil
	}
	bits := halves(a.O)
	return launch(x, mixed("attention_sink", bits), x.over(warp*count), &struct {
		o, lse, sinks         uint64
		count                 int64
		queries, heads, width int32
		halves                uint32
	}{address(a.O), address(a.LSE), address(a.Sinks), int64(count), int32(a.Queries), int32(a.Heads), int32(a.Width), bits})
}

// attentionSinkGrad has a block for each head.
func attentionSinkGrad(x *exec, o *tensorops.Op) error {
	a := o.AttentionSinkGrad()
	if a.Queries == 0 {
		return nil
	}
	const threads = 256
	bits := halves(a.DO, a.O)
	return launch(x, mixed("attention_sink_grad", bits), grid{x: a.Heads, threads: threads}, &struct {
		dsinks, do, o, lse, sinks uint64
		rows                      int64
		queries, heads, width     int32
		halves                    uint32
	}{address(a.DSinks), address(a.DO), address(a.O), address(a.LSE), address(a.Sinks), int64(a.Batch) * int64(a.Queries),
		int32(a.Queries), int32(a.Heads), int32(a.Width), bits})
}
