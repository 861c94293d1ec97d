package stages

import "encoding/json"

// The classes of transformers that compute what Troupe does.
const (
	gpt2Class  = "GPT2LMHeadModel"
	llamaClass = "LlamaForCausalLM"
)

// rules say of each known key of a config.json what to do with its value. A key is
// honoured (whole, number, truth), or neutral at some values and refused at others
// (only), or without effect on what a model computes (neutral).
type rules map[string]func(key string, v json.RawMessage) error

// rulesOf are those of a family. Defaults are transformers' own, which the authors of a
// model count on when they leave a key out.
func (r *reading) rulesOf(family string) rules {
	var own rules
	if family == GPT2 {
		own = r.gpt2()
	} else {
		own = r.llama()
	}
	for _, key := range neutralKeys {
		own[key] = neutral
	}
	own["vocab_size"] = whole(&r.vocab, 1, MaxVocab)
	own["tie_word_embeddings"] = truth(&r.tie)
	own["num_nextn_predict_layers"] = whole(&r.mtpLayers, 0, MaxMTPLayers)
	own["is_causal"] = only(`true`, `null`)
	own["is_encoder_decoder"] = only(`false`, `null`)
	own["tie_encoder_decoder"] = only(`false`, `null`)
	own["add_cross_attention"] = only(`false`, `null`)
	own["pruned_heads"] = only(`{}`, `null`)
	own["quantization_config"] = only(`null`)
	own["sliding_window"] = only(`null`)
	own["use_sliding_window"] = only(`false`, `null`)
	return own
}

func (r *reading) gpt2() rules {
	r.vocab.value, r.positions.value, r.hidden.value, r.layers.value, r.heads.value = 50257, 1024, 768, 12, 12
	r.eps.value, r.dropout.value, r.tie.value = 1e-5, 0.1, true
	return rules{
		"n_positions":             whole(&r.positions, 1, MaxContext),
		"max_position_embeddings": whole(&r.positions, 1, MaxContext),
		"n_embd":                  whole(&r.hidden, 1, MaxHidden),
		"hidden_size":             whole(&r.hidden, 1, MaxHidden),
		"n_layer":                 whole(&r.layers, 0, MaxLayers),
		"num_hidden_layers":       whole(&r.layers, 0, MaxLayers),
		"n_head":                  whole(&r.heads, 1, MaxHeads),
		"num_attention_heads":     whole(&r.heads, 1, MaxHeads),
		"n_inner":                 orNull(whole(&r.ffn, 1, MaxFFN)),
		"layer_norm_epsilon":      number(&r.eps, MinNormEps, MaxNormEps),
		"resid_pdrop":             number(&r.dropout, 0, 1),
		"embd_pdrop":              number(new(said[float64]), 0, 1),
		"attn_pdrop":              number(new(said[float64]), 0, 1),
		"attention_dropout":       number(new(said[float64]), 0, 1), // which Troupe writes too

		"architectures":       only(`null`, `[]`, `["`+gpt2Class+`"]`),
		"activation_function": only(`"gelu_new"`, `"gelu_pytorch_tanh"`), // two names of one function
		"scale_attn_weights":  only(`true`),
		// A scaling by layer is another model; the order of the scaling is rounding.
		"scale_attn_by_inverse_layer_idx": only(`false`, `null`),
		"reorder_and_upcast_attn":         neutral,

		// Of an older release (its mask had n_ctx positions), and of other heads than ours.
		"n_ctx": neutral, "n_special": neutral, "predict_special_tokens": neutral, "output_past": neutral,
		"summary_activation": neutral, "summary_first_dropout": neutral, "summary_proj_to_labels": neutral, "summary_type": neutral, "summary_use_proj": neutral,
	}
}

func (r *reading) llama() rules {
	r.vocab.value, r.positions.value, r.hidden.value, r.layers.value, r.heads.value, r.ffn.value = 32000, 2048, 4096, 32, 32, 11008
	r.eps.value, r.theta.value = 1e-6, 10000
	return rules{
		"max_position_embeddings": whole(&r.positions, 1, MaxContext),
		"max_sequence_length":     whole(&r.positions, 1, MaxContext), // its first name
		"hidden_size":             whole(&r.hidden, 1, MaxHidden),
		"intermediate_size":       whole(&r.ffn, 1, MaxFFN),
		"num_hidden_layers":       whole(&r.layers, 0, MaxLayers),
		"num_attention_heads":     whole(&r.heads, 1, MaxHeads),
		"num_key_value_heads":     orNull(whole(&r.kvHeads, 1, MaxHeads)),
		"head_dim":                orNull(whole(&r.headDim, 1, MaxHidden)),
		"rms_norm_eps":            number(&r.eps, MinNormEps, MaxNormEps),
		"rope_theta":              number(&r.theta, MinRopeTheta, MaxRopeTheta),
		"rope_parameters":         r.rope, // transformers from 5 on
		"rope_scaling":            r.rope, // before
		"attention_dropout":       orNull(number(&r.dropout, 0, 1)),
		"embd_pdrop":              number(new(said[float64]), 0, 1), // Troupe's
		"resid_pdrop":             number(new(said[float64]), 0, 1), // Troupe's
		"attn_pdrop":              number(new(said[float64]), 0, 1), // Troupe's

		"architectures":         only(`null`, `[]`, `["`+llamaClass+`"]`),
		"hidden_act":            only(`"silu"`, `"swish"`), // two names of one function
		"attention_bias":        only(`false`, `null`),
		"mlp_bias":              only(`false`, `null`),
		"partial_rotary_factor": only(`1`, `null`),
		"rope_interleaved":      only(`false`, `null`),

		"is_llama_config": neutral,
		"pretraining_tp":  neutral, // products in slices: rounding
	}
}

// neutralKeys change nothing that a model computes from token ids: where it comes from,
// how it was initialised, the type that it was stored in, special tokens, what a call
// returns, classification's labels, and the settings of generation.
var neutralKeys = []string{
	"model_type", // which was read first
	"_name_or_path", "_commit_hash", "transformers_version", "transformers.js_config", "unsloth_version", "unsloth_fixed", "tokenizer_class", "finetuning_task", "task_specific_params", "prefix",
	"_attn_implementation", "_attn_implementation_autoset", "attn_implementation", "gradient_checkpointing", "use_cache", "use_bfloat16", "torchscript", "tf_legacy_loss", "chunk_size_feed_forward",
	"initializer_range", "torch_dtype", "dtype",
	"bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "unk_token_id", "decoder_start_token_id", "is_decoder",
	"output_attentions", "output_hidden_states", "output_scores", "return_dict", "return_dict_in_generate", "remove_invalid_values",
	"id2label", "label2id", "num_labels", "_num_labels", "problem_type",
	"max_length", "min_length", "max_new_tokens", "do_sample", "early_stopping", "num_beams", "num_beam_groups", "diversity_penalty", "num_return_sequences",
	"temperature", "top_k", "top_p", "typical_p", "repetition_penalty", "length_penalty", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size",
	"bad_words_ids", "forced_bos_token_id", "forced_eos_token_id", "suppress_tokens", "begin_suppress_tokens", "exponential_decay_length_penalty",
}
