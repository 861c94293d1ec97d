package stages

import (
	"encoding/json"
	"fmt"
)

// hfConfig are the keys of a Hugging Face config.json that Troupe reads and
// writes, of both families.
type hfConfig struct {
	Architectures []string `json:"architectures,omitempty"`
	ModelType     string   `json:"model_type"`
	Vocab         int      `json:"vocab_size"`
	TorchDType    string   `json:"torch_dtype,omitempty"`
	Tie           *bool    `json:"tie_word_embeddings,omitempty"`
	InitStd       float64  `json:"initializer_range,omitempty"`
	BOS           *int     `json:"bos_token_id"` // written as null: these tokenizers have none
	EOS           *int     `json:"eos_token_id"`

	// GPT-2
	Positions  int     `json:"n_positions,omitempty"`
	Embd       int     `json:"n_embd,omitempty"`
	Layer      int     `json:"n_layer,omitempty"`
	Head       int     `json:"n_head,omitempty"`
	Inner      int     `json:"n_inner,omitempty"`
	Activation string  `json:"activation_function,omitempty"`
	NormEps    float64 `json:"layer_norm_epsilon,omitempty"`

	// Llama
	Hidden       int     `json:"hidden_size,omitempty"`
	Intermediate int     `json:"intermediate_size,omitempty"`
	Layers       int     `json:"num_hidden_layers,omitempty"`
	Heads        int     `json:"num_attention_heads,omitempty"`
	KVHeads      int     `json:"num_key_value_heads,omitempty"`
	HeadDim      int     `json:"head_dim,omitempty"`
	MaxPositions int     `json:"max_position_embeddings,omitempty"`
	RMSEps       float64 `json:"rms_norm_eps,omitempty"`
	RopeTheta    float64 `json:"rope_theta,omitempty"`
	RopeScaling  any     `json:"rope_scaling,omitempty"`
	HiddenAct    string  `json:"hidden_act,omitempty"`
	AttnBias     bool    `json:"attention_bias,omitempty"`
	MLPBias      bool    `json:"mlp_bias,omitempty"`

	// Layers of multi-token prediction, under DeepSeek's name, in both families.
	NextN int `json:"num_nextn_predict_layers,omitempty"`

	// Dropout: GPT-2's three, Llama's attention; the rest are Troupe's for Llama.
	// A zero is written too: readers take 0.1 for a missing one.
	AttnDrop  float64 `json:"attn_pdrop"`
	EmbdDrop  float64 `json:"embd_pdrop"`
	ResidDrop float64 `json:"resid_pdrop"`
	LlamaDrop float64 `json:"attention_dropout"`
}

// HF returns the config.json of a Hugging Face model directory.
func (c Config) HF() ([]byte, error) {
	tie := c.Tie
	h := hfConfig{Vocab: c.Vocab, TorchDType: "float32", Tie: &tie, InitStd: initStd, NextN: c.MTPLayers}
	if c.Family == GPT2 {
		h.Architectures, h.ModelType = []string{"GPT2LMHeadModel"}, "gpt2"
		h.Positions, h.Embd, h.Layer, h.Head, h.Inner = c.Context, c.Hidden, c.Layers, c.Heads, c.FFN
		h.Activation, h.NormEps = "gelu_new", c.eps()
		h.AttnDrop, h.EmbdDrop, h.ResidDrop = c.Dropout, c.Dropout, c.Dropout
	} else {
		h.Architectures, h.ModelType = []string{"LlamaForCausalLM"}, "llama"
		h.Hidden, h.Intermediate, h.Layers, h.Heads, h.KVHeads = c.Hidden, c.FFN, c.Layers, c.Heads, c.KVHeads
		h.HeadDim, h.MaxPositions, h.RMSEps, h.RopeTheta, h.HiddenAct = c.headDim(), c.Context, c.eps(), c.RopeTheta, "silu"
		h.LlamaDrop, h.EmbdDrop, h.ResidDrop = c.Dropout, c.Dropout, c.Dropout
	}
	b, err := json.MarshalIndent(h, "", "  ")
	return append(b, '\n'), err
}

// ParseHF reads a config.json. What Troupe would compute differently than the
// model's authors is refused with ErrModel.
func ParseHF(data []byte) (Config, error) {
	var h hfConfig
	if err := json.Unmarshal(data, &h); err != nil {
		return Config{}, fmt.Errorf("%w: config.json: %w", ErrModel, err)
	}
	c := Config{Vocab: h.Vocab, MTPLayers: h.NextN}
	switch h.ModelType {
	case "gpt2":
		c.Family, c.Layers, c.Hidden, c.Heads, c.KVHeads, c.FFN = GPT2, h.Layer, h.Embd, h.Head, h.Head, h.Inner
		c.Context, c.NormEps, c.Dropout, c.Tie = h.Positions, h.NormEps, h.ResidDrop, h.Tie == nil || *h.Tie
		if c.FFN == 0 {
			c.FFN = 4 * c.Hidden
		}
		if h.Activation != "gelu_new" && h.Activation != "gelu_pytorch_tanh" && h.Activation != "" {
			return Config{}, fmt.Errorf("%w: config.json: activation_function %q, known is gelu_new", ErrModel, h.Activation)
		}
	case "llama":
		c.Family, c.Layers, c.Hidden, c.Heads, c.KVHeads, c.FFN = Llama, h.Layers, h.Hidden, h.Heads, h.KVHeads, h.Intermediate
		c.Context, c.NormEps, c.RopeTheta, c.Dropout, c.Tie = h.MaxPositions, h.RMSEps, h.RopeTheta, h.LlamaDrop, h.Tie != nil && *h.Tie
		if c.KVHeads == 0 {
			c.KVHeads = c.Heads
		}
		if c.RopeTheta == 0 {
			c.RopeTheta = 10000
		}
		switch {
		case h.HiddenAct != "silu" && h.HiddenAct != "":
			return Config{}, fmt.Errorf("%w: config.json: hidden_act %q, known is silu", ErrModel, h.HiddenAct)
		case h.RopeScaling != nil:
			return Config{}, fmt.Errorf("%w: config.json: rope_scaling is not supported", ErrModel)
		case h.AttnBias || h.MLPBias:
			return Config{}, fmt.Errorf("%w: config.json: biases in attention or mlp are not supported", ErrModel)
		case h.HeadDim != 0 && c.Heads > 0 && h.HeadDim*c.Heads != c.Hidden:
			return Config{}, fmt.Errorf("%w: config.json: head_dim %d × %d heads is not hidden_size %d", ErrModel, h.HeadDim, c.Heads, c.Hidden)
		}
	default:
		return Config{}, fmt.Errorf("%w: config.json: model_type %q, known are gpt2 and llama", ErrModel, h.ModelType)
	}
	if err := c.Validate(); err != nil {
		return Config{}, fmt.Errorf("config.json: %w", err)
	}
	return c, nil
}
