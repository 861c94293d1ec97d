package config

// The comments in this file are the texts of the keys, written once: `engine init` and docs/config.md take them from here (see
// texts.go). The first sentence of a key is short enough to stand beside it in a file, and the last one, "Default: …", names its
// default: a value, or words where it follows from other keys.

// Config is a run's configuration with every value resolved. The order of the fields is the order in which keys are documented and
// printed. The toml tags are the names of the sections and keys.
//
// After a change from Go code, call Validate.
type Config struct {
	// The run: its name and length, and how often it validates, saves and reports.
	Run Run `toml:"run"`
	// The model: its shape, or a checkpoint to take it from.
	Model Model `toml:"model"`
	// Low-rank adapters (LoRA), which are trained while the weights of model.from stay frozen.
	Adapter Adapter `toml:"adapter"`
	// Learning from preferences: which of two answers is better, or whether an answer is good.
	Preference Preference `toml:"preference"`
	// A teacher: a larger model from which this one learns the probabilities of tokens.
	Distill Distill `toml:"distill"`
	// The data: files, their format, and the tokenizer.
	Data Data `toml:"data"`
	// A further validation set, with a loss of its own. There may be several.
	Eval []Eval `toml:"eval"`
	// The batch of a step, and the microbatches that it is divided into.
	Batch Batch `toml:"batch"`
	// The optimizer, and its learning rate over time.
	Optimizer Optimizer `toml:"optimizer"`
	// The pipeline: stages, chunks, schedule, and layout.
	Pipeline Pipeline `toml:"pipeline"`
	// The grid: how many ranks share a layer, a sequence, or a batch.
	Parallel Parallel `toml:"parallel"`
	// The devices: CPU or GPUs, number types, threads, and memory.
	Device Device `toml:"device"`
	// Runs on a cluster. A run in one process does not use these keys.
	Cluster Cluster `toml:"cluster"`
	// Where metrics go besides metrics.jsonl. For a run on a cluster, the coordinator exports them.
	Telemetry Telemetry `toml:"telemetry"`

	file        string              // the file's name, for messages
	headers     map[string]Pos      // where each section of the file begins
	given       map[string]Pos      // where each key was given, by file or --set
	unset       map[string][]string // variables of each key that are not set
	shapeLoaded bool                // WithShape has filled the model's shape
	gpuByAuto   bool                // WithAutoGPU
}

// Run is the section [run].
type Run struct {
	// Name of the run. It has letters, digits, spaces and ". _ -", and no leading dot. Default: "run".
	Name string `toml:"name"`
	// Output folder: checkpoints, metrics, events and samples. Default: runs/NAME, where NAME is run.name.
	Out string `toml:"out"`
	// Length of the run; a step is one update of the weights. The steps before a resume count, too. Default: 1000.
	Steps int `toml:"steps"`
	// Seed of all random numbers. They choose the initial weights, the order of the data, and dropout. Default: 1.
	Seed uint64 `toml:"seed"`
	// Validate every N steps; 0: only before the first step and after the last. Default: 250.
	EvalEvery int `toml:"eval_every"`
	// Stop after N validations in a row without a lower loss; 0: never. The loss is that of data.val or val_fraction, else of the
	// first [[eval]]. Default: 0.
	Patience int `toml:"patience"`
	// Batches in one validation, each of batch.sequences. Default: 20.
	EvalBatches int `toml:"eval_batches"`
	// Write a checkpoint every N steps; 0: only at the end of the run. Default: 250.
	CheckpointEvery int `toml:"checkpoint_every"`
	// Keep the newest N checkpoints; 0: all. The one that checkpoints/best points to is kept, too. Default: 3.
	Keep int `toml:"keep"`
	// What a new lowest validation loss writes: the "weights", a "full" checkpoint, or "none". checkpoints/best points to it.
	// "weights" has no optimizer state, so it takes about a third of the space, but no run resumes from it. If a checkpoint is due at
	// the same step, it is the best. Default: "weights".
	Best string `toml:"best"`
	// Fail after N skipped steps in a row; 0: never. A step is skipped if its loss or its gradient is not finite. Default: 10.
	MaxSkippedSteps int `toml:"max_skipped_steps"`
	// Record the times of all actions every N steps, for engine trace; 0: never. Default: 0.
	TraceEvery int `toml:"trace_every"`
	// Print a line every N steps. metrics.jsonl has a line for every step. Default: 10.
	LogEvery int `toml:"log_every"`
	// Report what the run waits for after N seconds without progress; 0: never. Default: 60.0.
	StallAfterS float64 `toml:"stall_after_s"`
	// Write the norms of each layer to stats.jsonl every N steps; 0: never. Default: 100.
	StatsEvery int `toml:"stats_every"`
	// Tokens of sample text that the model writes at each validation; 0: none. They go to samples.jsonl. Default: 0.
	SampleTokens int `toml:"sample_tokens"`
	// Prompt that the sample text continues. Default: "".
	SamplePrompt string `toml:"sample_prompt"`
	// Temperature of the sample text; 0: always the most likely token. Default: 0.0.
	SampleTemperature float64 `toml:"sample_temperature"`
}

// Model is the section [model].
type Model struct {
	// Architecture: a family of language models such as "gpt2", or "mlp" or "stack" for other data. The language models are "gpt2",
	// "llama", "mistral", "mixtral", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "deepseek_v3", "qwen3_5_text", "gpt_oss", "smollm3",
	// "granite", "olmo2", "olmo3", "phi3", "gemma2", "gemma3_text" and "gemma4_text". A program can register more.
	// Default: "gpt2".
	Family string `toml:"family"`
	// Number of transformer blocks, or of hidden layers of "mlp". Default: 4.
	Layers int `toml:"layers"`
	// Width of the model; a multiple of heads. Default: 128.
	Hidden int `toml:"hidden"`
	// Attention heads. Default: 4.
	Heads int `toml:"heads"`
	// Heads for keys and values (grouped-query attention); a divisor of heads. gpt2 has no groups. Default: model.heads.
	KVHeads int `toml:"kv_heads"`
	// Width of a head; 0: hidden/heads. It must be even. gpt2 does not have this key. Default: 0.
	HeadDim int `toml:"head_dim"`
	// Sliding window of attention, in positions including the query's own; 0: none. For mistral, qwen2, qwen3, gpt_oss, smollm3,
	// olmo3, phi3, gemma2, gemma3_text and gemma4_text. Every second layer of gemma2 and gpt_oss, every fourth of olmo3 and every sixth of
	// gemma3_text and gemma4_text attends to all positions. Default: 0.
	Window int `toml:"window"`
	// Width inside the feed-forward layers. Default: 8/3 × model.hidden, rounded up to a multiple of 32, for
	// families with rotary positions; else 4 × model.hidden.
	FFN int `toml:"ffn"`
	// Tokens in a sequence. Default: 128; 1 if the data has no tokens.
	Context int `toml:"context"`
	// Dropout probability. Default: 0.0.
	Dropout float64 `toml:"dropout"`
	// Use the embedding matrix as the output head, too. Default: true for gpt2 and smollm3, else false.
	TieEmbeddings bool `toml:"tie_embeddings"`
	// Base of the rotary position embedding. gpt2 has none. Default: 10000.0; 2000000.0 for smollm3, 500000.0 for olmo3,
	// 150000.0 for gpt_oss.
	RopeTheta float64 `toml:"rope_theta"`
	// Size of the vocabulary; 0: the tokenizer's. Default: 0.
	Vocab int `toml:"vocab"`
	// Layers of multi-token prediction, each for one more token ahead. Default: 0.
	MTPLayers int `toml:"mtp_layers"`
	// Weight of the mean multi-token loss, added to the main loss. Default: 0.3.
	MTPWeight float64 `toml:"mtp_weight"`
	// Experts of each feed-forward part, of which a router chooses some for each token. For mixtral, qwen2_moe, qwen3_moe,
	// deepseek_v3 and gpt_oss. Default: 8 for these, else 0.
	Experts int `toml:"experts"`
	// Experts that compute each token. Default: 2, or model.experts if that is less.
	ExpertsPerToken int `toml:"experts_per_token"`
	// Width inside an expert. In mixtral and gpt_oss it is model.ffn. Default: model.ffn.
	ExpertFFN int `toml:"expert_ffn"`
	// Width inside the shared expert, which computes every token; 0: none. qwen2_moe and deepseek_v3 have one; in deepseek_v3 it is a
	// multiple of model.expert_ffn. Default: model.expert_ffn for these, else 0.
	SharedExpertFFN int `toml:"shared_expert_ffn"`
	// First layers that have no experts. For deepseek_v3. Default: 1 for deepseek_v3, or 0 if it has one layer; else 0.
	FirstKDenseReplace int `toml:"first_k_dense_replace"`
	// Every how many layers have experts, the others a dense part; 0 and 1: all have them. For qwen2_moe and qwen3_moe. Default: 1.
	DecoderSparseStep int `toml:"decoder_sparse_step"`
	// Divide the weights of a token's experts by their sum. For qwen2_moe, qwen3_moe and deepseek_v3; mixtral and gpt_oss
	// always do. Default: true for mixtral, gpt_oss, qwen3_moe and deepseek_v3, else false.
	NormTopKProb bool `toml:"norm_topk_prob"`
	// Factor of the weights of a token's experts; 0 is 1. For deepseek_v3. Default: 1.0.
	RoutedScalingFactor float64 `toml:"routed_scaling_factor"`
	// Groups into which the experts are divided, each counted by its two best; 0: none. For deepseek_v3. Default: 0.
	NGroup int `toml:"n_group"`
	// Groups among whose experts a token chooses. Default: half of model.n_group, rounded up.
	TopKGroup int `toml:"topk_group"`
	// Weight of the loss that balances the experts' loads, added to the main loss; 0: none. Default: 0.001.
	AuxLossWeight float64 `toml:"aux_loss_weight"`
	// The tokens whose loads that loss balances. "aux_loss": those of a microbatch; "seq_aux_loss": of a sequence; "global_aux_loss": of
	// the step's microbatches so far, on all replicas. Default: "aux_loss".
	LoadBalancingType string `toml:"load_balancing_type"`
	// Step of the biases that balance loads without a loss; 0: they stay. After each update the bias of an expert with fewer
	// tokens than the mean goes up by it, and that of one with more goes down. For deepseek_v3. Default: 0.001 for deepseek_v3 without
	// model.from, else 0.0.
	RouterBiasUpdateRate float64 `toml:"router_bias_update_rate"`
	// Weight of the router's z-loss, the mean of the squared log-sum of a token's logits; 0: none. Default: 0.0.
	ZLossWeight float64 `toml:"z_loss_weight"`
	// Jitter of the router's input in training: factors within this distance of 1; 0: none. Default: 0.0.
	InputJitterEps float64 `toml:"input_jitter_eps"`
	// Width of the latent vector from which latent attention computes queries; 0: none. For deepseek_v3. Default: 0.
	QLoRARank int `toml:"q_lora_rank"`
	// Width of the latent vector from which latent attention computes keys and values. For deepseek_v3. Default: 4 ×
	// model.qk_nope_head_dim for deepseek_v3, else 0.
	KVLoRARank int `toml:"kv_lora_rank"`
	// Channels of a head of latent attention without rotary positions. Default: hidden/heads for deepseek_v3, else 0.
	QKNopeHeadDim int `toml:"qk_nope_head_dim"`
	// Channels of a head of latent attention with rotary positions, which all heads of keys share; even. Default: half of
	// model.qk_nope_head_dim, rounded up to an even number, for deepseek_v3; else 0.
	QKRopeHeadDim int `toml:"qk_rope_head_dim"`
	// Width of a head's values in latent attention. Default: model.qk_nope_head_dim for deepseek_v3, else 0.
	VHeadDim int `toml:"v_head_dim"`
	// Checkpoint to start from: a run's folder, a checkpoint, a Hugging Face directory, or a GGUF file. It sets the model's shape and
	// weights, so leave out the keys of the shape. Default: "".
	From string `toml:"from"`
	// Layers that are not trained: "embed", a block or a range such as "0-7", or "head". With tied embeddings, "embed" freezes the
	// matrix of the head, too. Default: [].
	Freeze []string `toml:"freeze"`
	// Type of frozen weights: "float32", "bfloat16", "int8" or "nf4" (4 bits, as QLoRA has them). The last two are for linear layers of a
	// base with adapters; embeddings and the head stay bfloat16. "auto": "bfloat16" with adapters, otherwise device.dtype.
	// Default: "auto".
	FrozenDType string `toml:"frozen_dtype"`
	// Layers of family "stack", each a name with options. Default: [].
	Stack []string `toml:"stack"`
	// Options of a family that your program registers. Default: [].
	Options []string `toml:"options"`
}

// Adapter is the section [adapter].
type Adapter struct {
	// Directory of PEFT with an adapter to continue. The other keys of the section come from it; those that are given must have the
	// same values. Default: none.
	From string `toml:"from"`
	// Rank of the adapters; 0: none. Each target W·x becomes W·x + alpha/rank · B·A·x: A has rank rows, B has rank columns, and only
	// they are trained. Checkpoints hold them alone. Default: 0.
	Rank int `toml:"rank"`
	// Weight of the adapters, divided by the rank. Default: 2 × adapter.rank.
	Alpha float64 `toml:"alpha"`
	// Dropout probability of the adapters' inputs. Default: 0.0.
	Dropout float64 `toml:"dropout"`
	// Linear layers that have an adapter; "all-linear" is all except the head. An entry is a module's name, such as
	// "model.layers.0.self_attn.q_proj", an end of it after a dot, such as "q_proj", or a regular expression for the whole name.
	// "experts.gate_up_proj" and "experts.down_proj" are the experts. Default: ["all-linear"].
	Targets []string `toml:"targets"`
	// Divide alpha by the root of the rank (rsLoRA). Default: false.
	RSLoRA bool `toml:"rslora"`
	// Also train the norm of each row of the adapted weight (DoRA). Default: false.
	DoRA bool `toml:"dora"`
	// Other ranks of some modules, such as "q_proj=16". The regular expression before the "=" matches a module's name, or its end
	// after a dot.
	// Default: [].
	RankPattern []string `toml:"rank_pattern"`
	// Other values of alpha, such as "q_proj=32". Default: [].
	AlphaPattern []string `toml:"alpha_pattern"`
	// Modules that are trained whole, named like targets, such as "lm_head". Default: [].
	Save []string `toml:"save"`
}

// Preference is the section [preference].
type Preference struct {
	// "dpo", "ipo", "orpo", "simpo" or "kto"; "": learn the tokens of the data. The data are documents with "prompt", "chosen" and
	// "rejected" or, for kto, with "prompt", "completion" and "label". Each pair of answers is two sequences of a batch. "dpo", "ipo" and
	// "kto" compare the model with its weights before the first step. Default: "".
	Loss string `toml:"loss"`
	// Factor of the rewards, which keeps the model near its start. For ipo it is the strength of the regularization, for orpo the weight of
	// the odds ratio. Default: 0.1, or 2.0 for simpo.
	Beta float64 `toml:"beta"`
	// dpo and simpo: the probability that a label is wrong. Default: 0.0.
	LabelSmoothing float64 `toml:"label_smoothing"`
	// simpo: the margin by which the reward of the chosen answer should be higher. Default: 0.5.
	Gamma float64 `toml:"gamma"`
	// kto: weight of the loss of good answers. Default: 1.0.
	DesirableWeight float64 `toml:"desirable_weight"`
	// kto: weight of the loss of other answers. Default: 1.0.
	UndesirableWeight float64 `toml:"undesirable_weight"`
}

// Distill is the section [distill].
type Distill struct {
	// The teacher: a Hugging Face directory, a GGUF file or a run's folder, with the model's tokenizer. Before the first step, one pass
	// over the training data computes its most likely tokens, which the run's folder keeps. The data are documents with prompts.
	// Default: "".
	From string `toml:"from"`
	// The divergence from the teacher p to the model q: "forward_kl", KL(p‖q), or "reverse_kl", KL(q‖p). Default: "forward_kl".
	Loss string `toml:"loss"`
	// Divides the logits of both before the divergence, which is multiplied by its square. Default: 1.0.
	Temperature float64 `toml:"temperature"`
	// Most likely tokens of the teacher at each position; all others count as one. A position takes 8 bytes for each. Default: 64.
	TopK int `toml:"top_k"`
	// Weight of the divergence in the loss; the rest is that of the cross-entropy with the data. Default: 1.0.
	Weight float64 `toml:"weight"`
}

// Data is the section [data]. Keys for data other than text are described in package data/samples, as Options.
type Data struct {
	// Files or patterns to train on, sorted by path; ** matches any folders. The files may move before a resume, but their content
	// must stay (engine run --accept-new-data allows a change). Required, except for formats that a program registers. Default: none.
	Train []string `toml:"train"`
	// Files or patterns to validate on, instead of val_fraction. Default: [].
	Val []string `toml:"val"`
	// Fraction of train that is kept for validation. Default: 0.1 without data.val and [[eval]], else 0.
	ValFraction float64 `toml:"val_fraction"`
	// Where that fraction comes from: "blocks" all over the text, or its "tail". Default: "blocks".
	ValSplit string `toml:"val_split"`
	// Split of a dataset to train on. A path of train may be the folder of a dataset: files are named by split, such as
	// train-00000-of-00002.parquet and validation.jsonl, or README.md names them. Only for documents. Default: "train".
	Split string `toml:"split"`
	// Split of a dataset to validate on. Default: "", the one named validation, valid, val or dev, if there is one and val_fraction is not
	// set.
	EvalSplit string `toml:"eval_split"`
	// Subset of a dataset: a config_name of its README.md, or a folder in it. Default: "", the only one, or the one named default.
	Subset string `toml:"subset"`
	// Tokenize documents during training, so that memory does not depend on their size. The order is that of
	// the files, shuffled by shuffle_window. Token ids are kept in the run's folder. Default: false.
	Stream bool `toml:"stream"`
	// Stream: the number of sequences in a window, within which they are shuffled. Default: 4096.
	ShuffleWindow int `toml:"shuffle_window"`
	// "bytes", "chars" (one token a character), or the path of a tokenizer. The path is a tokenizer.json or a folder with one, such
	// as the folder that engine tokenize --train has written.
	// Default: "bytes", or the tokenizer of model.from.
	Tokenizer string `toml:"tokenizer"`
	// "text", "documents", "uint16" or "uint32" (token ids), "csv", "idx", or "jsonl". Documents are in JSON lines or Parquet. Each is an
	// object or a row with "text", "prompt" and "completion", "messages", "conversations" (ShareGPT), or "instruction" and "output"
	// (Alpaca); for preference.loss, with answers. Token ids are little-endian. A program can register more
	// formats. Default: "text".
	Format string `toml:"format"`
	// The chat template that writes conversations as text: a built-in name, or the path of a Jinja file. Names are "chatml", "gemma",
	// "llama3", "mistral", "phi3" and "zephyr"; a path is like ./template.jinja. Checkpoints and exports keep it. Default: "", the model's
	// own.
	ChatTemplate string `toml:"chat_template"`
	// Other names of a document's keys: "prompt=question" reads the key question as prompt. Keys are text, prompt, completion,
	// instruction, input, output, messages, conversations, system, tools, chosen, rejected and label, and role and content of a message.
	// Default: [].
	Fields []string `toml:"fields"`
	// Documents longer than the context: "cut" them, or "refuse" the data. Documents are never cut if all of them have only
	// "text": they are joined. Default: "cut".
	TooLong string `toml:"too_long"`
	// Documents: how they share sequences of model.context tokens. "first-fit" puts whole documents into each sequence, "split" joins
	// texts and cuts them anywhere. Attention and positions stay inside each document. "none": each document is a sequence, and texts
	// are joined without borders. Default: "none".
	Packing string `toml:"packing"`
	// Text that is not UTF-8: "refuse" the data, or keep the "bytes". A tokenizer.json sees such bytes as U+FFFD. Default: "refuse".
	InvalidUTF8 string `toml:"invalid_utf8"`
	// Names of special tokens in texts, prompts and completions are "tokens", or plain "text". "tokens" is what transformers does.
	// Default: "tokens".
	SpecialTokens string `toml:"special_tokens"`

	// Samples: the column or key with the class. Default: "".
	Label string `toml:"label"`
	// Samples: the columns or keys to learn from. Default: [], which stands for all others.
	Features []string `toml:"features"`
	// Samples: the columns or keys of the numbers to predict. Default: [].
	Targets []string `toml:"targets"`
	// idx: the files of labels, one for each file of train. Default: [].
	Labels []string `toml:"labels"`
	// idx: the files of labels, one for each file of val. Default: [].
	ValLabels []string `toml:"val_labels"`
	// csv: the first row has the names of the columns. Default: true.
	Header bool `toml:"header"`
	// csv: the character between columns. Default: ",".
	Separator string `toml:"separator"`
	// jsonl: the keys of integers, such as token ids. Default: [].
	IDs []string `toml:"ids"`
	// jsonl: the keys whose arrays differ in shape from sample to sample. Default: [].
	Varying []string `toml:"varying"`
	// Samples: the number of classes; 0: the number in train. Default: 0.
	Classes int `toml:"classes"`
	// Samples: the names of the classes, in the order of their ids. Without them, labels are integers, or names whose ids follow their
	// sorted order. Default: [].
	ClassNames []string `toml:"class_names"`
	// Samples: the factor that features are multiplied by; 0: 1, or 1/255 for idx of unsigned bytes. Default: 0.0.
	Scale float64 `toml:"scale"`

	// A source of documents with a weight, instead of data.train. There may be several.
	Source []Source `toml:"source"`
}

// Source is a section [[data.source]].
type Source struct {
	// Name of the source in messages: letters, digits and ". _ -". Each source has another. Default: none.
	Name string `toml:"name"`
	// Files, patterns or datasets, as in data.train. Default: none.
	Files []string `toml:"files"`
	// Share of the sequences that are from this source, relative to the weights of the others. Default: 1.0.
	Weight float64 `toml:"weight"`
}

// Eval is a section [[eval]].
type Eval struct {
	// Name of the set in metrics, curves and reports: letters, digits and ". _ -". Each set has another. Default: none.
	Name string `toml:"name"`
	// Files or patterns of the set, sorted by path; ** matches any folders. Default: none.
	Files []string `toml:"files"`
	// Format of the files, if it differs: "text", "documents", "uint16" or "uint32". Default: data.format.
	Format string `toml:"format"`
	// Names of the keys of documents, if they differ. Default: data.fields.
	Fields []string `toml:"fields"`
}

// Batch is the section [batch].
type Batch struct {
	// Sequences in a step, over all replicas; a multiple of microbatch. Default: 16.
	Sequences int `toml:"sequences"`
	// Sequences in a microbatch. Default: the largest divisor of batch.sequences up to 4.
	Microbatch int `toml:"microbatch"`
}

// Optimizer is the section [optimizer].
type Optimizer struct {
	// Update rule: "adamw", "sgd" or "muon". "muon" is Muon for hidden matrices of language models and AdamW for embeddings, head,
	// norms and biases. It computes on the CPU. Default: "adamw".
	Name string `toml:"name"`
	// Peak learning rate. A resume may change it and the other keys of the rate: see changes.jsonl. Default: 0.001.
	LR float64 `toml:"lr"`
	// Learning rate at the end of the decay (the floor); at most lr. Default: optimizer.lr / 10.
	MinLR float64 `toml:"min_lr"`
	// Steps in which the learning rate rises to its peak. Default: 100, or a tenth of run.steps if that is less.
	WarmupSteps int `toml:"warmup_steps"`
	// How the learning rate falls after warm-up. "cosine", "linear" and "inverse_sqrt" (with the square root of the steps) fall all the
	// time,
	// "constant" never. "wsd" (warm-up, stable, decay) holds the peak until the last decay_steps. "cosine_restarts" falls from
	// the peak to the floor in each cycle of decay_steps. "points" follows optimizer.points. Default: "cosine".
	Decay string `toml:"decay"`
	// wsd: the number of last steps in which the learning rate falls; 0: a fifth of run.steps. cosine_restarts: the steps of a cycle; 0:
	// half of the steps after warm-up. inverse_sqrt: T, where n steps after warm-up the rate is lr·√(T/(T+n)); 0: warmup_steps, or 10000
	// without warm-up. Default: 0.
	DecaySteps int `toml:"decay_steps"`
	// points: steps from 1 in ascending order, each with its learning rate, up to 64. Between two points the rate follows a line; before
	// the first and after the last it is theirs. lr, min_lr and warmup_steps then follow from the points. Default: [].
	Points [][2]float64 `toml:"points"`
	// adamw, muon: decay of the mean gradient. Default: 0.9.
	Beta1 float64 `toml:"beta1"`
	// adamw, muon: decay of the mean squared gradient. Default: 0.95.
	Beta2 float64 `toml:"beta2"`
	// adamw, muon: added to the denominator of the update. Default: 1e-08.
	Eps float64 `toml:"eps"`
	// sgd: momentum. muon: Nesterov momentum. Default: 0.9, or 0.95 for muon.
	Momentum float64 `toml:"momentum"`
	// muon: how the rate follows from a matrix's size. "match_rms_adamw" (Liu et al. 2025) is lr × 0.2 × the root of its larger side,
	// with which it takes the lr of AdamW. "original" (Jordan 2024) is lr × the root of its outputs / inputs, at least lr.
	// Default: "match_rms_adamw".
	MuonScale string `toml:"muon_scale"`
	// Type of the optimizer's state: "float32", "bfloat16" or "int8". adamw then takes 8, 4 or 2.03 bytes a weight. The last two are
	// rounded at random, compute on the CPU, and change the losses. "int8" needs parallel.tensor = 1. A resume may change the type: the
	// state is then converted. Default: "float32".
	StateDType string `toml:"state_dtype"`
	// Weight decay, of all weights except norms and biases. Default: 0.1.
	WeightDecay float64 `toml:"weight_decay"`
	// Decay of a moving average of the weights in float32; 0: none. After each update the average is ema × itself +
	// (1 − ema) × the weights. --ema of engine export, generate, eval, serve and predict uses it. Default: 0.0.
	EMA float64 `toml:"ema"`
	// Clip the gradient to this global norm; 0: no clipping. Default: 1.0.
	ClipNorm float64 `toml:"clip_norm"`

	// A group of weights with their own settings. There may be several.
	Group []Group `toml:"group"`
}

// Group is the section [[optimizer.group]].
type Group struct {
	// Patterns of names of weights in model.safetensors; * stands for any characters. Each weight may be in one group. Default: none.
	Match []string `toml:"match"`
	// Update rule of the group: "adamw", "sgd" or "muon". Default: optimizer.name.
	Name string `toml:"name"`
	// Factor of the learning rate. Default: 1.0.
	LRScale float64 `toml:"lr_scale"`
	// Weight decay of the group's weights, except norms and biases. Default: optimizer.weight_decay.
	WeightDecay float64 `toml:"weight_decay"`
	// adamw, muon: decay of the mean gradient. Default: optimizer.beta1.
	Beta1 float64 `toml:"beta1"`
	// adamw, muon: decay of the mean squared gradient. Default: optimizer.beta2.
	Beta2 float64 `toml:"beta2"`
}

// Pipeline is the section [pipeline].
type Pipeline struct {
	// Stages of the pipeline. Default: 1.
	Stages int `toml:"stages"`
	// Chunks of consecutive layers on each stage. Default: that of pipeline.layout or of the schedule's table, else 1, or 2 if the
	// schedule requires two.
	Chunks int `toml:"chunks"`
	// Name of a schedule, or the path of a table (.csv). engine plan --help lists the schedules. Default: "none" for one stage,
	// "interleaved" for several chunks a stage, else "1f1b".
	Schedule string `toml:"schedule"`
	// interleaved: microbatches that pass through a chunk before the next chunk starts. Default: the smallest number that fits, at
	// least pipeline.stages.
	MicrobatchGroupSize int `toml:"microbatch_group_size"`
	// auto: the most outputs of chunks that a stage may hold; 0: any number. Default: 0.
	MaxInFlight int `toml:"max_in_flight"`
	// Last N microbatches whose weight gradients the last stage computes at the end of the step. Default: 0.
	DeferWeights int `toml:"defer_weights"`
	// Start the next step before the gradient norm is known, and roll back if needed. Default: true if each rank has a device of its
	// own and the schedule is zb-v, or zb-h2 with untied embeddings, without tensor or context groups and ZeRO-3; else false.
	PostValidation bool `toml:"post_validation"`
	// Which layers each chunk has, such as "Ett|ttL". Default: "", which balances the chunks by their cost.
	Layout string `toml:"layout"`
	// "bfloat16" rounds what chunks send to each other, for half the bytes. Losses then depend on the layout. Default: "".
	WireDType string `toml:"wire_dtype"`
	// Recompute activations in the backward pass: "full", or "partial" for some microbatches. Default: "none".
	Recompute string `toml:"recompute"`
	// partial: microbatches in flight that keep their activations. Default: 0.
	RecomputeKeep int `toml:"recompute_keep"`
}

// Parallel is the section [parallel].
type Parallel struct {
	// Ranks that share each layer: a number, or a list with one for each stage. Default: 1.
	Tensor []int `toml:"tensor"`
	// Ranks that share each sequence, for long contexts. Each rank has two blocks of a sequence, and attention passes keys and values
	// around the ranks. Default: 1.
	Context int `toml:"context"`
	// Replicas of the pipeline, which share the microbatches of a step. Default: 1.
	Data int `toml:"data"`
	// Ranks, of those with the same layers, that share the experts. Each has a part of them, and all else as replicas have it. It must
	// divide parallel.data × parallel.context, with parallel.expert_tensor = 1 also × parallel.tensor. Tokens travel to the ranks of
	// their experts and back. Default: 1.
	Expert int `toml:"expert"`
	// Ranks that share each expert: 1, or the number in parallel.tensor; 0 is that number. With 1, each rank of a tensor group has whole
	// experts and routes its own part of the tokens. Default: 0.
	ExpertTensor int `toml:"expert_tensor"`
	// Ranks that share a layer also share its positions, in norms, dropout and between stages. Default: false.
	Sequence bool `toml:"sequence"`
	// ZeRO level; 1: replicas share the optimizer state; 2: gradients, too; 3: weights, too. With parallel.expert, the ranks with the same
	// experts share those of the experts. Default: 0.
	Zero int `toml:"zero"`
	// Run collectives while the device computes. To measure them, set it to false: ranks then wait for each one. Default: true.
	Overlap bool `toml:"overlap"`
	// Compute one pass of a pair while the tokens of the other travel to their experts. "dualpipev" has pairs, and so may a table of
	// your own. "1f1b", "eager-1f1b" and "none" then run each backward together with the forward that follows it. That takes memory:
	// "none" holds one microbatch more, and "1f1b" what "eager-1f1b" holds. A shared expert computes while the tokens of its own
	// pass travel. It changes no bit. Default: false.
	ExpertOverlap bool `toml:"expert_overlap"`
	// How tensors travel between stages: "auto", "direct", "broadcast" or "scatter". "direct" sends to each rank, "broadcast" to the
	// first one, which passes it on, and "scatter" a part to each. "auto" is "broadcast" if the next stage has more ranks, else
	// "direct". Default: "auto".
	Edges string `toml:"edges"`
	// Order of the grid's dimensions when ranks are numbered, fastest first. Default: "tp-cp-pp-dp".
	Order string `toml:"order"`
	// Number of ranks that the grid must have; 0: no check. Default: 0.
	World int `toml:"world"`
}

// Device is the section [device].
type Device struct {
	// Device: "auto", "cpu", "cuda" (all GPUs), or one GPU such as "cuda:1". "auto" uses a GPU that passes a self-test, else the CPU. It
	// stays on the CPU if device.kernels or device.threads is set, if parallel.context is above 1, or if other processes compute. "cuda"
	// spreads the ranks evenly and in order over the GPUs that no rank names. It leaves out a GPU whose kernels do not give the bits of
	// the first one's. Default: "auto".
	Kind string `toml:"kind"`
	// Device of each stage, instead of kind. Default: [].
	Ranks []string `toml:"ranks"`
	// Number type: "float32", or "bfloat16" (mixed precision). The latter is fast on GPUs and on CPUs with AVX-512 BF16 or AMX.
	// Default: "float32".
	DType string `toml:"dtype"`
	// Number type of the residual stream, which travels between stages. Default: device.dtype.
	Residual string `toml:"residual"`
	// CPU threads; 0: one for each core. Default: 0.
	Threads int `toml:"threads"`
	// CPU kernels: "auto", or a name that engine doctor lists, such as "avx512", "avx2" or "go".
	// Default: "auto".
	Kernels string `toml:"kernels"`
	// Memory that a rank may use; 0: what is free. It covers the rank's tensors and the copy for a checkpoint. Default: 0.0.
	MemoryGiB float64 `toml:"memory_gib"`
	// Round the inputs of float32 products on a GPU to TensorFloat-32 (19 bits). Default: false.
	TF32 bool `toml:"tf32"`
}

// Cluster is the section [cluster].
type Cluster struct {
	// Seconds without a heartbeat after which a worker counts as failed. Default: 3.0.
	SilenceS float64 `toml:"silence_s"`
	// Seconds without the coordinator after which a worker drops its ranks. It must be more than silence_s. Default: 30.0.
	LeaseS float64 `toml:"lease_s"`
	// Fail after this many restarts without a new checkpoint. Default: 10.
	MaxRestarts int `toml:"max_restarts"`
	// Keep the data and the weights of stage 0 on the coordinator's host. place must put stage 0 on a worker of that host. The schedule
	// u-shape gives stage 0 all layers that read data. Default: false.
	Edge bool `toml:"edge"`
	// Use workers that become free from the next checkpoint on, if that makes the run faster. Default: true.
	Rebalance bool `toml:"rebalance"`
	// "auto": workers that see run.out write their parts of a checkpoint; "off": they send them. Default: "auto".
	SharedFolder string `toml:"shared_folder"`
	// Keep a copy of the weights and optimizer state of ranks without replicas on a second worker. Then a failed worker is replaced
	// without a repeated step. "auto": if the forecast is that a step gets at most 2 % slower; "on": always; "off": never.
	// Default: "auto".
	Shadow string `toml:"shadow"`
	// Worker of each rank, by name. Default: [], which places ranks by memory and cores.
	Place []string `toml:"place"`
}

// Telemetry is the section [telemetry].
type Telemetry struct {
	// HOST:PORT to serve metrics at, for Prometheus, under /metrics; "": off. Default: "".
	Metrics string `toml:"metrics"`
	// Allow a metrics address that other hosts can reach, without TLS. Default: false.
	MetricsInsecure bool `toml:"metrics_insecure"`
	// URL of an OpenTelemetry collector; "": that of OTEL_EXPORTER_OTLP_ENDPOINT, if set. Default: "".
	OTLP string `toml:"otlp"`
	// Write event files for TensorBoard to run.out/tensorboard. Default: false.
	TensorBoard bool `toml:"tensorboard"`
}
