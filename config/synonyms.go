package config

import "strings"

// synonym is the key that a word of other programs stands for.
type synonym struct {
	key  string
	note string // how the key differs; then a value of the word is no value of the key
}

const (
	noEpochs       = "there are no epochs; the first lines of a run say how many steps an epoch has"
	noAccumulation = "a step always computes batch.sequences / batch.microbatch microbatches and adds their gradients"
	isSteps        = "it is a number of steps"
	isWord         = `it is "float32" or "bfloat16"`
	isPacking      = `it is "none", "first-fit" or "split"`
	isDevice       = `it is "cuda" for all GPUs, one GPU such as "cuda:1", or "cpu"`
)

// synonyms has the names that other programs use. Names that are the last part of a key are not here: Synonym finds them.
var synonyms = map[string]synonym{
	"learning_rate": {"optimizer.lr", ""}, "max_lr": {"optimizer.lr", ""}, "peak_lr": {"optimizer.lr", ""}, "rate": {"optimizer.lr", ""},
	"min_learning_rate": {"optimizer.min_lr", ""}, "optim": {"optimizer.name", ""}, "optimizer": {"optimizer.name", ""},
	"warmup": {"optimizer.warmup_steps", ""}, "warmup_iters": {"optimizer.warmup_steps", ""},
	"num_warmup_steps": {"optimizer.warmup_steps", ""}, "warmup_ratio": {"optimizer.warmup_steps", isSteps},
	"scheduler": {"optimizer.decay", ""}, "lr_scheduler": {"optimizer.decay", ""}, "lr_scheduler_type": {"optimizer.decay", ""},
	"lr_schedule": {"optimizer.decay", ""}, "wd": {"optimizer.weight_decay", ""}, "grad_clip": {"optimizer.clip_norm", ""},
	"clip": {"optimizer.clip_norm", ""}, "max_grad_norm": {"optimizer.clip_norm", ""}, "gradient_clip_val": {"optimizer.clip_norm", ""},
	"adam_beta1": {"optimizer.beta1", ""}, "adam_beta2": {"optimizer.beta2", ""}, "adam_epsilon": {"optimizer.eps", ""},
	"epsilon": {"optimizer.eps", ""},

	"max_steps": {"run.steps", ""}, "num_steps": {"run.steps", ""}, "iters": {"run.steps", ""}, "max_iters": {"run.steps", ""},
	"train_steps": {"run.steps", ""}, "total_steps": {"run.steps", ""}, "train_iters": {"run.steps", ""},
	"epoch": {"run.steps", noEpochs}, "epochs": {"run.steps", noEpochs}, "num_epochs": {"run.steps", noEpochs},
	"max_epochs": {"run.steps", noEpochs}, "num_train_epochs": {"run.steps", noEpochs},
	"random_seed": {"run.seed", ""}, "run_name": {"run.name", ""}, "experiment": {"run.name", ""}, "output": {"run.out", ""},
	"output_dir": {"run.out", ""}, "out_dir": {"run.out", ""}, "save_dir": {"run.out", ""}, "eval_interval": {"run.eval_every", ""},
	"eval_steps": {"run.eval_every", ""}, "val_every": {"run.eval_every", ""}, "val_check_interval": {"run.eval_every", ""},
	"eval_iters": {"run.eval_batches", ""}, "save_steps": {"run.checkpoint_every", ""}, "save_every": {"run.checkpoint_every", ""},
	"save_interval": {"run.checkpoint_every", ""}, "checkpoint_interval": {"run.checkpoint_every", ""},
	"save_total_limit": {"run.keep", ""}, "logging_steps": {"run.log_every", ""}, "log_interval": {"run.log_every", ""},
	"early_stopping": {"run.patience", ""}, "early_stopping_patience": {"run.patience", ""},

	"arch": {"model.family", ""}, "architecture": {"model.family", ""}, "model_type": {"model.family", ""},
	"block_size": {"model.context", ""}, "seq_len": {"model.context", ""}, "seq_length": {"model.context", ""},
	"sequence_length": {"model.context", ""}, "max_seq_len": {"model.context", ""}, "max_seq_length": {"model.context", ""},
	"context_length": {"model.context", ""}, "max_length": {"model.context", ""}, "ctx": {"model.context", ""},
	"n_ctx": {"model.context", ""}, "n_positions": {"model.context", ""}, "max_position_embeddings": {"model.context", ""},
	"n_layer": {"model.layers", ""}, "n_layers": {"model.layers", ""}, "num_layers": {"model.layers", ""},
	"num_hidden_layers": {"model.layers", ""}, "depth": {"model.layers", ""}, "n_head": {"model.heads", ""},
	"n_heads": {"model.heads", ""}, "num_heads": {"model.heads", ""}, "num_attention_heads": {"model.heads", ""},
	"n_embd": {"model.hidden", ""}, "d_model": {"model.hidden", ""}, "hidden_size": {"model.hidden", ""}, "embed_dim": {"model.hidden", ""},
	"dim": {"model.hidden", ""}, "width": {"model.hidden", ""}, "d_ff": {"model.ffn", ""}, "ffn_dim": {"model.ffn", ""},
	"intermediate_size": {"model.ffn", ""}, "n_inner": {"model.ffn", ""}, "n_kv_head": {"model.kv_heads", ""},
	"num_key_value_heads": {"model.kv_heads", ""}, "vocab_size": {"model.vocab", ""}, "sliding_window": {"model.window", ""},
	"rope_base": {"model.rope_theta", ""}, "tie_word_embeddings": {"model.tie_embeddings", ""},
	"pretrained": {"model.from", ""}, "base_model": {"model.from", ""}, "model_name_or_path": {"model.from", ""},
	"init_from": {"model.from", ""}, "lora": {"adapter.rank", ""}, "lora_r": {"adapter.rank", ""},
	"lora_rank": {"adapter.rank", ""}, "lora_alpha": {"adapter.alpha", ""}, "lora_dropout": {"adapter.dropout", ""},
	"lora_target": {"adapter.targets", ""}, "lora_target_modules": {"adapter.targets", ""}, "target_modules": {"adapter.targets", ""},
	"use_rslora": {"adapter.rslora", ""}, "use_dora": {"adapter.dora", ""}, "modules_to_save": {"adapter.save", ""},
	"adapter": {"adapter.rank", ""}, "peft": {"adapter.rank", ""},

	"dataset": {"data.train", ""}, "data": {"data.train", ""}, "train_data": {"data.train", ""}, "train_file": {"data.train", ""},
	"train_files": {"data.train", ""}, "data_path": {"data.train", ""}, "corpus": {"data.train", ""}, "val_data": {"data.val", ""},
	"val_file":  {"data.val", ""},
	"streaming": {"data.stream", ""}, "buffer_size": {"data.shuffle_window", ""}, "shuffle_buffer": {"data.shuffle_window", ""},
	"config_name": {"data.subset", ""}, "dataset_split": {"data.split", ""}, "validation_file": {"data.val", ""}, "valid": {"data.val", ""},
	"validation_split": {"data.val_fraction", ""}, "test_size": {"data.val_fraction", ""}, "tokenizer_path": {"data.tokenizer", ""},
	"tokenizer_name": {"data.tokenizer", ""}, "delimiter": {"data.separator", ""}, "target": {"data.targets", ""},
	"packed": {"data.packing", isPacking}, "sample_packing": {"data.packing", isPacking}, "packing_strategy": {"data.packing", isPacking},
	"pack_sequences": {"data.packing", isPacking},

	"batch_size": {"batch.sequences", ""}, "global_batch_size": {"batch.sequences", ""}, "train_batch_size": {"batch.sequences", ""},
	"per_device_train_batch_size": {"batch.microbatch", ""}, "micro_batch_size": {"batch.microbatch", ""},
	"microbatch_size": {"batch.microbatch", ""}, "device_batch_size": {"batch.microbatch", ""},
	"gradient_accumulation": {"batch.microbatch", noAccumulation}, "gradient_accumulation_steps": {"batch.microbatch", noAccumulation},
	"accumulate_grad_batches": {"batch.microbatch", noAccumulation}, "grad_accum": {"batch.microbatch", noAccumulation},

	"num_stages": {"pipeline.stages", ""}, "pp": {"pipeline.stages", ""}, "pipeline_parallel_size": {"pipeline.stages", ""},
	"pipeline_model_parallel_size": {"pipeline.stages", ""}, "tp": {"parallel.tensor", ""}, "tensor_parallel_size": {"parallel.tensor", ""},
	"tensor_model_parallel_size": {"parallel.tensor", ""}, "cp": {"parallel.context", ""}, "context_parallel_size": {"parallel.context", ""},
	"ep": {"parallel.expert", ""}, "expert_parallel_size": {"parallel.expert", ""}, "expert_model_parallel_size": {"parallel.expert", ""},
	"etp": {"parallel.expert_tensor", ""}, "expert_tensor_parallel_size": {"parallel.expert_tensor", ""},
	"overlap_moe_expert_parallel_comm": {"parallel.expert_overlap", ""}, "moe_shared_expert_overlap": {"parallel.expert_overlap", ""},
	"dp": {"parallel.data", ""}, "data_parallel": {"parallel.data", ""}, "replicas": {"parallel.data", ""},
	"zero_stage":               {"parallel.zero", ""},
	"gradient_checkpointing":   {"pipeline.recompute", `it is "none", "full" or "partial"`},
	"activation_checkpointing": {"pipeline.recompute", `it is "none", "full" or "partial"`},

	"precision": {"device.dtype", isWord}, "mixed_precision": {"device.dtype", isWord}, "torch_dtype": {"device.dtype", ""},
	"bf16": {"device.dtype", isWord}, "fp16": {"device.dtype", isWord}, "amp": {"device.dtype", isWord}, "gpu": {"device.kind", isDevice},
	"gpus": {"device.kind", isDevice}, "device": {"device.kind", ""}, "devices": {"device.kind", isDevice}, "cuda": {"device.kind", isDevice},
	"num_threads": {"device.threads", ""}, "cores": {"device.threads", ""},
}

// Synonym returns the key that a word means: the name that another program has for it, such as "learning_rate", or the
// last part of the key, such as "lr". Hyphens are underscores. note says how the key differs, if a value of the word is no value of
// the key. key is "" if the word means none.
func Synonym(word string) (key, note string) {
	word = strings.ReplaceAll(strings.ToLower(word), "-", "_")
	if s, ok := synonyms[word]; ok {
		return s.key, s.note
	}
	for _, f := range schema {
		if f.name() == word || f.key == word {
			return f.key, ""
		}
	}
	return "", ""
}
