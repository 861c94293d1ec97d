package ggufmodel

import (
	"fmt"
	"math"

	"github.com/troupe-ml/troupe/internal/safetensors"
)

// deltaHeads are the heads of the gated delta rule. Hugging Face's files have the heads of values that share a head of
// keys one after the other. llama.cpp has the first value heads of all key heads, then the second ones, and so on.
type deltaHeads struct {
	keys, values, keyWidth int
}

// moved returns blocks of data, one for each head of values, in llama.cpp's order; back is the inverse.
func (d deltaHeads) moved(data []byte, back bool) ([]byte, error) {
	if d.keys < 1 || d.values < 1 || d.values%d.keys != 0 || len(data)%d.values != 0 {
		return nil, fmt.Errorf("its parts are not %d heads of values over %d heads of keys", d.values, d.keys)
	}
	out, size, each := make([]byte, len(data)), len(data)/d.values, d.values/d.keys
	for key := range d.keys {
		for i := range each {
			from, to := (key*each+i)*size, (i*d.keys+key)*size
			if back {
				from, to = to, from
			}
			copy(out[to:to+size], data[from:from+size])
		}
	}
	return out, nil
}

// tail is moved for the rows after those of queries and keys.
func (d deltaHeads) tail(data []byte, rows int, back bool) ([]byte, error) {
	at := 2 * d.keys * d.keyWidth
	if rows < at || rows == 0 || len(data)%rows != 0 {
		return nil, fmt.Errorf("it has %d rows; queries and keys have %d", rows, at)
	}
	at *= len(data) / rows
	moved, err := d.moved(data[at:], back)
	if err != nil {
		return nil, err
	}
	return append(append(make([]byte, 0, len(data)), data[:at]...), moved...), nil
}

// columns is moved for the columns of a matrix with so many rows.
func (d deltaHeads) columns(data []byte, rows int, back bool) ([]byte, error) {
	if rows == 0 || len(data)%rows != 0 {
		return nil, fmt.Errorf("it has %d rows", rows)
	}
	out, size := make([]byte, 0, len(data)), len(data)/rows
	for at := 0; at < len(data); at += size {
		row, err := d.moved(data[at:at+size], back)
		if err != nil {
			return nil, err
		}
		out = append(out, row...)
	}
	return out, nil
}

// decays returns the factors of the gates in F32: −exp(w) of Hugging Face's A_log; back is the inverse, to the last
// bit or next to it.
func decays(dtype string, data []byte, back bool) ([]byte, error) {
	values, err := safetensors.Float32s(dtype, data)
	if err != nil {
		return nil, err
	}
	for i, v := range values {
		if values[i] = -float32(math.Exp(float64(v))); back {
			values[i] = float32(math.Log(-float64(v)))
		}
	}
	return safetensors.EncodeFloat32(values), nil
}

// changed returns a tensor of a layer with the gated delta rule as the other file has it.
func (d deltaHeads) changed(c change, dtype string, data []byte, rows int, back bool) (out []byte, err error) {
	switch c {
	case valueHeads:
		return d.moved(data, back)
	case valueTail, valueConv:
		return d.tail(data, rows, back)
	case valueColumns:
		return d.columns(data, rows, back)
	}
	if out, err = decays(dtype, data, back); err != nil {
		return nil, err
	}
	return d.moved(out, back)
}

// isDelta reports whether a change is one of those.
func (c change) isDelta() bool { return c >= valueHeads }

// The sections of the channels that rotate by the axes of an image. In a text all of them have the same positions.
var usualSections = []int32{11, 11, 10, 0}

const (
	qwen35Interval = 4    // every so many layers have attention
	qwen35Share    = 0.25 // of the channels rotate
)

func writeQwen35(w *writer) {
	s := w.settings
	s.ignore("mlp_only_layers", "mamba_ssm_dtype", "mtp_num_hidden_layers", "mtp_use_dedicated_embeddings")
	if !get(s, "attn_output_gate", true) {
		s.refuse("attn_output_gate is false")
	}
	if get(s, "attention_bias", false) {
		s.refuse("attention_bias is true, but llama.cpp's %s has no biases", w.arch.name)
	}
	keyWidth, valueWidth := get(s, "linear_key_head_dim", 128), get(s, "linear_value_head_dim", 128)
	w.delta = deltaHeads{get(s, "linear_num_key_heads", 16), get(s, "linear_num_value_heads", 32), keyWidth}
	if keyWidth != valueWidth {
		s.refuse("linear_key_head_dim is %d and linear_value_head_dim %d, but llama.cpp has one width for both", keyWidth, valueWidth)
	}
	types := get(s, "layer_types", []string(nil))
	interval := get(s, "full_attention_interval", qwen35Interval)
	r := w.shape()
	if r.kind == "llama3" {
		s.refuse("rope_type %q, which llama.cpp's %s does not have", r.kind, w.arch.name)
	}
	rotated := int(float64(w.headDim) * r.partial)
	sections := usualSections
	if r.sections != nil {
		sections = append(r.sections, 0, 0, 0, 0)[:4]
	}
	w.own("rope.freq_base", float32(r.theta))
	w.own("rope.dimension_count", uint32(rotated))
	w.own("rope.dimension_sections", sections)
	w.scaling(r, rotated)
	w.own("ssm.conv_kernel", uint32(get(s, "linear_conv_kernel_dim", 4)))
	w.own("ssm.state_size", uint32(keyWidth))
	w.own("ssm.group_count", uint32(w.delta.keys))
	w.own("ssm.time_step_rank", uint32(w.delta.values))
	w.own("ssm.inner_size", uint32(valueWidth*w.delta.values))
	if types != nil {
		recurrent := make([]bool, w.layers)
		for i := range recurrent {
			recurrent[i] = i < len(types) && types[i] == linearAttention
		}
		w.own("attention.recurrent_layers", recurrent)
	}
	w.own("full_attention_interval", uint32(interval))
}

const linearAttention = "linear_attention"

func readQwen35(r *reader) {
	r.shape()
	width := r.int("rope.dimension_count", r.headDim)
	r.value("rope.dimension_sections") // without effect on a text
	r.set("partial_rotary_factor", float64(width)/float64(max(1, r.headDim)))
	r.rope(width)
	inner := r.need("ssm.inner_size")
	r.delta = deltaHeads{r.need("ssm.group_count"), r.need("ssm.time_step_rank"), r.need("ssm.state_size")}
	r.set("linear_conv_kernel_dim", r.need("ssm.conv_kernel"))
	r.set("linear_key_head_dim", r.delta.keyWidth)
	r.set("linear_num_key_heads", r.delta.keys)
	r.set("linear_num_value_heads", r.delta.values)
	r.set("linear_value_head_dim", inner/max(1, r.delta.values))
	interval := r.int("full_attention_interval", qwen35Interval)
	types := make([]string, min(r.layers, 1<<16))
	recurrent, given := r.value("attention.recurrent_layers")
	list, _ := recurrent.([]bool)
	if given && len(list) != r.layers {
		r.fail("attention.recurrent_layers", "%s, but there are %d layers", show(recurrent), r.layers)
		return
	}
	for i := range types {
		types[i] = "full_attention"
		if given && list[i] || !given && (i+1)%max(1, interval) != 0 {
			types[i] = linearAttention
		}
	}
	r.set("layer_types", types)
}
