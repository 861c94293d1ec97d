package stages

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// hfWritten is a config.json as Troupe writes it, for all families.
type hfWritten struct {
	Architectures []string `json:"architectures"`
	ModelType     string   `json:"model_type"`
	Vocab         int      `json:"vocab_size"`
	TorchDType    string   `json:"torch_dtype"`
	Tie           bool     `json:"tie_word_embeddings"`
	InitStd       float64  `json:"initializer_range"`
	BOS           *int     `json:"bos_token_id"` // always null: these tokenizers have none
	EOS           *int     `json:"eos_token_id"`

	// GPT-2
	Positions  int     `json:"n_positions,omitempty"`
	Embd       int     `json:"n_embd,omitempty"`
	Layer      *int    `json:"n_layer,omitempty"`
	Head       int     `json:"n_head,omitempty"`
	Inner      int     `json:"n_inner,omitempty"`
	Activation string  `json:"activation_function,omitempty"`
	NormEps    float64 `json:"layer_norm_epsilon,omitempty"`

	// Llama and the families derived from it
	Hidden       int     `json:"hidden_size,omitempty"`
	Intermediate int     `json:"intermediate_size,omitempty"`
	Layers       *int    `json:"num_hidden_layers,omitempty"`
	Heads        int     `json:"num_attention_heads,omitempty"`
	KVHeads      int     `json:"num_key_value_heads,omitempty"`
	HeadDim      int     `json:"head_dim,omitempty"`
	MaxPositions int     `json:"max_position_embeddings,omitempty"`
	RMSEps       float64 `json:"rms_norm_eps,omitempty"`
	RopeTheta    float64 `json:"rope_theta,omitempty"`
	HiddenAct    string  `json:"hidden_act,omitempty"`

	RopeScaling   *hfRope         `json:"rope_scaling,omitempty"`
	AttentionBias bool            `json:"attention_bias,omitempty"`
	MLPBias       bool            `json:"mlp_bias,omitempty"`
	Window        json.RawMessage `json:"sliding_window,omitempty"` // a number, or null
	UseWindow     bool            `json:"use_sliding_window,omitempty"`
	WindowLayers  *int            `json:"max_window_layers,omitempty"`
	LayerTypes    []string        `json:"layer_types,omitempty"`

	// Layers of multi-token prediction, under DeepSeek's name, in all families.
	NextN int `json:"num_nextn_predict_layers,omitempty"`

	// Dropout. GPT-2 has three keys, Llama one for attention; Troupe adds the others to Llama. A
	// zero is written, too, since readers take 0.1 for a missing key.
	AttnDrop  float64 `json:"attn_pdrop"`
	EmbdDrop  float64 `json:"embd_pdrop"`
	ResidDrop float64 `json:"resid_pdrop"`
	LlamaDrop float64 `json:"attention_dropout"`

	more []member // keys that only some families have, in order
}

// add adds a key that only some families have.
func (h *hfWritten) add(key string, value any) {
	b, err := json.Marshal(value)
	if err != nil {
		panic(err) // the values are numbers, booleans and lists of them
	}
	h.more = append(h.more, member{key, b})
}

// text returns the file.
func (h *hfWritten) text() ([]byte, error) {
	b, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	for _, m := range h.more {
		b = fmt.Appendf(b[:len(b)-1], ",%q:%s}", m.key, m.value)
	}
	var out bytes.Buffer
	err = json.Indent(&out, b, "", "  ")
	out.WriteByte('\n')
	return out.Bytes(), err
}

// HF returns the config.json of a Hugging Face model folder. ParseHF reads it back.
func (c Config) HF() ([]byte, error) {
	if !c.Language() {
		return c.hfOwn()
	}
	h := hfWritten{Vocab: c.Vocab, TorchDType: "float32", Tie: c.Tie, InitStd: initStd, NextN: c.MTPLayers,
		EmbdDrop: c.Dropout, ResidDrop: c.Dropout}
	f := languageOf(c.Family)
	h.Architectures, h.ModelType = []string{f.class()}, f.name()
	f.write(c, &h)
	return h.text()
}
