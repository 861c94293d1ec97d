package stages

import "encoding/json"

// rules say for each known key of a config.json how to treat its value. A key may be honored
// (whole, number, truth), ignored at some values and refused at others (only), or without effect on
// the model's computation (neutral).
type rules map[string]func(key string, v json.RawMessage) error

// rulesOf returns the rules of a family. Defaults are those of transformers, on which the authors
// of a model rely when they leave a key out.
func (r *reading) rulesOf(f language) rules {
	own := f.keys(r)
	own["architectures"] = only(`null`, `[]`, `["`+f.class()+`"]`)
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
	if own[quantizationKey] == nil {
		own[quantizationKey] = only(`null`)
	}
	return own
}

// neutralKeys do not change what a model computes from token ids: the model's origin, its
// initialization, the stored type, special tokens, what a call returns, the labels of
// classification, and the settings of generation.
var neutralKeys = []string{
	"model_type", // read before all other keys
	"_name_or_path", "_model_name_or_path", "_commit_hash", "transformers_version", "transformers.js_config", "unsloth_version",
	"unsloth_fixed", "tokenizer_class", "finetuning_task", "task_specific_params", "prefix",
	"_attn_implementation", "_attn_implementation_autoset", "attn_implementation", "gradient_checkpointing", "use_cache", "use_bfloat16",
	"torchscript", "tf_legacy_loss", "chunk_size_feed_forward",
	"initializer_range", "torch_dtype", "dtype",
	"bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "unk_token_id", "decoder_start_token_id", "is_decoder",
	"output_attentions", "output_hidden_states", "output_scores", "return_dict", "return_dict_in_generate", "remove_invalid_values",
	"id2label", "label2id", "num_labels", "_num_labels", "problem_type",
	"max_length", "min_length", "max_new_tokens", "do_sample", "early_stopping", "num_beams", "num_beam_groups", "diversity_penalty",
	"num_return_sequences",
	"temperature", "top_k", "top_p", "typical_p", "repetition_penalty", "length_penalty", "no_repeat_ngram_size",
	"encoder_no_repeat_ngram_size",
	"bad_words_ids", "forced_bos_token_id", "forced_eos_token_id", "suppress_tokens", "begin_suppress_tokens",
	"exponential_decay_length_penalty",
}
