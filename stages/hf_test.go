package stages_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/stages"
)

func TestHFRoundTrip(t *testing.T) {
	for _, c := range append(families, gradientModels...) {
		b, err := c.HF()
		if err != nil {
			t.Fatal(err)
		}
		got, err := stages.ParseHF(b)
		if err != nil {
			t.Fatalf("%s\n%s", err, b)
		}
		c.NormEps, c.MTPWeight = 1e-5, 0 // how much a loss counts is no part of a model
		if got != c {
			t.Errorf("%+v came back as %+v", c, got)
		}
	}
}

// What published files look like, and what must be refused rather than computed
// wrongly.
func TestParseHF(t *testing.T) {
	const gpt2 = `{"model_type":"gpt2","vocab_size":50257,"n_positions":1024,"n_embd":768,"n_layer":12,"n_head":12,"activation_function":"gelu_new","resid_pdrop":0.1}`
	c, err := stages.ParseHF([]byte(gpt2))
	if err != nil || c.FFN != 3072 || !c.Tie || c.Parameters() != 124439808 {
		t.Errorf("GPT-2: %+v with %d parameters, %v", c, c.Parameters(), err)
	}
	const llama = `{"model_type":"llama","vocab_size":32000,"hidden_size":2048,"intermediate_size":5632,"num_hidden_layers":22,"num_attention_heads":32,"num_key_value_heads":4,"max_position_embeddings":2048,"rms_norm_eps":1e-5,"hidden_act":"silu"}`
	if c, err = stages.ParseHF([]byte(llama)); err != nil || c.Tie || c.RopeTheta != 10000 || c.Parameters() != 1100048384 {
		t.Errorf("TinyLlama: %+v with %d parameters, %v", c, c.Parameters(), err)
	}
	mtp := strings.Replace(llama, `"hidden_act"`, `"num_nextn_predict_layers":1,"hidden_act"`, 1)
	if c, err = stages.ParseHF([]byte(mtp)); err != nil || c.MTPLayers != 1 || c.Parameters() != 1100048384+44044288+2*2048*2048+2*2048 {
		t.Errorf("TinyLlama that predicts two tokens: %+v with %d parameters, %v", c, c.Parameters(), err)
	}
	for _, bad := range []struct{ json, want string }{
		{strings.Replace(mtp, `_layers":1,"h`, `_layers":2048,"h`, 1), "2048 mtp_layers"},
		{strings.Replace(mtp, `_layers":1,"h`, `_layers":-1,"h`, 1), "mtp_layers is -1"},
		{`{`, "config.json"},
		{`{"model_type":"bert"}`, "bert"},
		{strings.Replace(gpt2, "gelu_new", "relu", 1), "relu"},
		{strings.Replace(gpt2, `"n_head":12`, `"n_head":11`, 1), "768"},
		{strings.Replace(llama, `"hidden_act"`, `"rope_scaling":{"type":"linear"},"hidden_act"`, 1), "rope_scaling"},
		{strings.Replace(llama, `"hidden_act"`, `"attention_bias":true,"hidden_act"`, 1), "bias"},
		{strings.Replace(llama, `"hidden_act"`, `"head_dim":128,"hidden_act"`, 1), "head_dim 128"},
	} {
		if _, err := stages.ParseHF([]byte(bad.json)); !errors.Is(err, stages.ErrModel) || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("%s\n  error %v, want one about %q", bad.json, err, bad.want)
		}
	}
}

func FuzzParseHF(f *testing.F) {
	for _, c := range families {
		b, err := c.HF()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if c, err := stages.ParseHF(b); err == nil && c.Validate() != nil {
			t.Errorf("%s gives an impossible model", b)
		}
	})
}
