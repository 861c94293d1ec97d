package config

import (
	"fmt"
	"io"
	"os"

	"github.com/troupe-ml/troupe/scheduler"
)

// Config is a whole run, resolved. The fields stand in the order in which the
// keys are documented and printed; the toml tags are the keys' names.
//
// A value changed from Go code is checked by Validate.
type Config struct {
	Run       Run       `toml:"run"`
	Model     Model     `toml:"model"`
	Data      Data      `toml:"data"`
	Batch     Batch     `toml:"batch"`
	Optimizer Optimizer `toml:"optimizer"`
	Pipeline  Pipeline  `toml:"pipeline"`
	Parallel  Parallel  `toml:"parallel"`
	Device    Device    `toml:"device"`
	Cluster   Cluster   `toml:"cluster"`
	Telemetry Telemetry `toml:"telemetry"`

	file        string         // the file's name, for messages
	headers     map[string]Pos // where each section of the file begins
	given       map[string]Pos // where each key was given, by file or --set
	shapeLoaded bool           // WithShape has filled the model's shape
	gpuByAuto   bool           // WithAutoGPU
}

// WithAutoGPU is the configuration for a machine on which device.kind = "auto" is the GPU, or the CPU, which it is
// before anybody says so. It is no part of what is written or compared.
func (c *Config) WithAutoGPU(gpu bool) *Config {
	own := *c
	own.gpuByAuto = gpu
	return &own
}

// AutoGPU reports what WithAutoGPU was told.
func (c *Config) AutoGPU() bool { return c.gpuByAuto }

// Run says what the run is called, how long it is and what it reports.
type Run struct {
	Name            string `toml:"name"`             // default "run"
	Out             string `toml:"out"`              // output folder; default runs/<name>
	Steps           int    `toml:"steps"`            // updates in all; default 1000
	Seed            uint64 `toml:"seed"`             // below 2^63, as TOML integers are; default 1
	EvalEvery       int    `toml:"eval_every"`       // steps; default 250; 0 = only before the first and after the last
	Patience        int    `toml:"patience"`         // validations without a better loss until the run ends; default 0 = never
	EvalBatches     int    `toml:"eval_batches"`     // batches in one validation; default 20
	CheckpointEvery int    `toml:"checkpoint_every"` // steps; default 250; 0 = only at the end
	Keep            int    `toml:"keep"`             // checkpoints kept; default 3; 0 = all
	// steps in a row without a finite loss and gradient until the run ends; default 10; 0 = it never does
	MaxSkippedSteps int     `toml:"max_skipped_steps"`
	TraceEvery      int     `toml:"trace_every"`   // steps between traced ones; default 0 = none
	LogEvery        int     `toml:"log_every"`     // steps between printed lines; default 10
	StallAfterS     float64 `toml:"stall_after_s"` // seconds without progress until the run says what it waits for; default 60; 0 = never
	StatsEvery      int     `toml:"stats_every"`   // steps between those whose norms by layer are logged; default 100; 0 = never
	SampleTokens    int     `toml:"sample_tokens"` // tokens of text written at each validation; default 0 = none
	SamplePrompt    string  `toml:"sample_prompt"` // that it continues; default none
}

// Model is the network's shape, or where to take it from.
type Model struct {
	// "gpt2", "llama", "mistral", "qwen2", "qwen3", "mlp", "stack", or one that the program has registered;
	// default gpt2
	Family        string  `toml:"family"`
	Layers        int     `toml:"layers"`         // default 4
	Hidden        int     `toml:"hidden"`         // width; default 128
	Heads         int     `toml:"heads"`          // default 4
	KVHeads       int     `toml:"kv_heads"`       // grouped heads, of all language models but gpt2; default heads
	HeadDim       int     `toml:"head_dim"`       // channels of a head; default 0 = hidden/heads
	Window        int     `toml:"window"`         // positions that a query sees, of mistral and qwen; default 0 = all
	FFN           int     `toml:"ffn"`            // inner width; default 4*hidden, for those with a gate 8/3*hidden rounded up to 32
	Context       int     `toml:"context"`        // tokens in a sequence; default 128
	Dropout       float64 `toml:"dropout"`        // default 0
	TieEmbeddings bool    `toml:"tie_embeddings"` // default true for gpt2, else false
	RopeTheta     float64 `toml:"rope_theta"`     // of rotary positions, all but gpt2's; default 10000
	Vocab         int     `toml:"vocab"`          // default 0 = the tokenizer's
	MTPLayers     int     `toml:"mtp_layers"`     // layers of multi-token prediction; default 0
	MTPWeight     float64 `toml:"mtp_weight"`     // of the mean of their losses, beside the main one; default 0.3
	From          string  `toml:"from"`           // checkpoint to take shape and weights from; default none
	// Freeze names layers that are not trained: "embed", "head", "3" or "0-7"; default none. The matrix of a
	// head with tied embeddings is the embedding's: it is frozen with "embed" alone.
	Freeze []string `toml:"freeze"`

	Stack   []string `toml:"stack"`   // of family "stack": the layers, each a name with its options
	Options []string `toml:"options"` // of a program's own family; default none
}

// Data is the text and how it becomes tokens.
type Data struct {
	Train       []string `toml:"train"`        // files or globs; required
	Val         []string `toml:"val"`          // files or globs; default none
	ValFraction float64  `toml:"val_fraction"` // the part of train that validates; default 0.1 without val, 0 with it
	ValSplit    string   `toml:"val_split"`    // "blocks" from all over train, or its "tail"; default blocks
	// "bytes", "chars", or a path of a tokenizer.json or of a folder with one; default bytes, or model.from's
	Tokenizer string `toml:"tokenizer"`
	// "text", "documents" (JSON lines of them), "uint16" or "uint32" (little-endian token ids), "csv", "idx",
	// "jsonl", or one that the program has registered; default text
	Format string `toml:"format"`
	// TooLong says what becomes of a document with a prompt or messages that is longer than the context:
	// "cut" or "refuse"; default cut.
	TooLong string `toml:"too_long"`
	// InvalidUTF8 says what becomes of a text that is not UTF-8: "refuse" it, or take its "bytes" as they are;
	// default refuse.
	InvalidUTF8 string `toml:"invalid_utf8"`
	// SpecialTokens says what the names of special tokens in texts, prompts and completions are: "tokens",
	// as to transformers, or "text" like any other; default tokens.
	SpecialTokens string `toml:"special_tokens"`

	// Of formats that are not text: see package data/samples, whose Options these are.
	Label      string   `toml:"label"`       // column or key of the class; default none
	Features   []string `toml:"features"`    // columns or keys to learn from; default all others
	Targets    []string `toml:"targets"`     // columns or keys of numbers to predict; default none
	Labels     []string `toml:"labels"`      // of idx: a file of labels for each of train; default none
	ValLabels  []string `toml:"val_labels"`  // of idx: one for each of val; default none
	Header     bool     `toml:"header"`      // of csv: the first row names the columns; default true
	Separator  string   `toml:"separator"`   // of csv; default ","
	IDs        []string `toml:"ids"`         // of jsonl: keys of whole numbers, such as token ids; default none
	Varying    []string `toml:"varying"`     // of jsonl: keys whose arrays differ in shape from sample to sample; default none
	Classes    int      `toml:"classes"`     // default 0 = as many as there are in train
	ClassNames []string `toml:"class_names"` // in the order of their ids; default none = labels are numbers, or names in sorted order
	Scale      float64  `toml:"scale"`       // of features; default 0 = 1, or 1/255 for idx of unsigned bytes
}

// Batch divides a step into microbatches.
type Batch struct {
	Sequences  int `toml:"sequences"`  // in a step; default 16
	Microbatch int `toml:"microbatch"` // sequences in one; default the largest divisor of sequences up to 4
}

// Optimizer is the update rule and its learning rate over time.
type Optimizer struct {
	Name        string  `toml:"name"`         // "adamw" or "sgd"; default adamw
	LR          float64 `toml:"lr"`           // the peak; default 1e-3
	MinLR       float64 `toml:"min_lr"`       // where the decay ends; default lr/10
	WarmupSteps int     `toml:"warmup_steps"` // default 100, or run.steps where that is less
	Decay       string  `toml:"decay"`        // "cosine", "linear", "constant" or "wsd": warm-up, stable, decay; default cosine
	DecaySteps  int     `toml:"decay_steps"`  // of wsd: the last steps, in which the rate falls; default 0 = a fifth of run.steps
	Beta1       float64 `toml:"beta1"`        // adamw's; default 0.9
	Beta2       float64 `toml:"beta2"`        // adamw's; default 0.95
	Eps         float64 `toml:"eps"`          // adamw's; default 1e-8
	Momentum    float64 `toml:"momentum"`     // sgd's; default 0.9
	WeightDecay float64 `toml:"weight_decay"` // default 0.1
	ClipNorm    float64 `toml:"clip_norm"`    // greatest global gradient norm; default 1; 0 = no clipping
}

// Pipeline is how the layers are spread over ranks, and in what order they work.
type Pipeline struct {
	Stages int `toml:"stages"` // of the pipeline; default 1
	// per rank; default: those of the layout or of a table, else 1, or 2 where the schedule wants two
	Chunks   int    `toml:"chunks"`
	Schedule string `toml:"schedule"` // a schedule's name, or a table's file (.csv); default by stages and chunks
	// microbatches a rank takes through a chunk before the next; default the least that fits, from stages on
	MicrobatchGroupSize int `toml:"microbatch_group_size"`
	MaxInFlight         int `toml:"max_in_flight"` // of auto: most chunk outputs that a rank holds; default 0 = any number
	// last microbatches whose weight gradients on the last stage wait for the step's end; default 0
	DeferWeights int `toml:"defer_weights"`
	// begin the next step before the gradient's norm is known; default true where each rank has a device of its
	// own, for zb-v, and for zb-h2 where the ends share no weight
	PostValidation bool   `toml:"post_validation"`
	Layout         string `toml:"layout"` // default "" = balanced automatically
	// of what travels between chunks: "bfloat16" rounds it; default "" = as within them
	WireDType     string `toml:"wire_dtype"`
	Recompute     string `toml:"recompute"`      // "none", "full" or "partial"; default none
	RecomputeKeep int    `toml:"recompute_keep"` // with partial: microbatches in flight that keep their activations; default 0
}

// Parallel is the layout of ranks beyond the pipeline.
type Parallel struct {
	Tensor  []int `toml:"tensor"`  // ranks that share each layer: one number, or one for each stage; default 1
	Context int   `toml:"context"` // ranks that share each sequence, two blocks of it each; default 1
	Data    int   `toml:"data"`    // replicas of the pipeline, which share a step's microbatches; default 1
	// the ranks that share a layer share the positions of norms and of what travels between stages; default
	// false
	Sequence bool `toml:"sequence"`
	// what replicas share of what each would have whole: default 0 = nothing; 1 = the optimizer's state
	// (ZeRO-1), 2 = gradients too (ZeRO-2), 3 = and weights (ZeRO-3)
	Zero    int  `toml:"zero"`
	Overlap bool `toml:"overlap"` // collectives go on beside computing; default true
	// how tensors get from one stage's ranks to another's: "auto", "direct", "broadcast" or "scatter"; default
	// "auto"
	Edges string `toml:"edges"`
	Order string `toml:"order"` // the dimensions, the one whose ranks are neighbours first; default "tp-cp-pp-dp"
	World int    `toml:"world"` // the number of ranks that there must be; default 0 = as many as the sizes give
}

// Device is what computes.
type Device struct {
	// Kind is "auto", "cpu", "cuda" or a GPU by its number, such as "cuda:1"; default auto: a GPU that passes a self-test,
	// unless device.kernels or device.threads is given, parallel.context is above 1, or ranks are in other processes; else
	// the CPU. Over the GPUs of a process the ranks with "cuda" are spread in their order, as many on each: those of them
	// that no rank names, as far as their kernels give the same bits as the first one's.
	Kind  string   `toml:"kind"`
	Ranks []string `toml:"ranks"` // a kind for each pipeline rank; default [] = kind for all
	DType string   `toml:"dtype"` // "float32", or "bfloat16": mixed precision
	// Residual is the type of the residual stream, which is what travels between stages:
	// "float32" or "bfloat16"; default dtype.
	Residual string `toml:"residual"`
	Threads  int    `toml:"threads"` // of the CPU; default 0 = all cores
	Kernels  string `toml:"kernels"` // of the CPU; default "auto"; the device knows the others
	// MemoryGiB is the memory that a rank's tensors and its copy for a checkpoint may take, in GiB; default 0 = what is free.
	MemoryGiB float64 `toml:"memory_gib"`
	TF32      bool    `toml:"tf32"` // float32 products on a GPU are of numbers rounded to TensorFloat-32; default false
}

// Cluster is how a run over several processes minds them. Without such processes it has no
// effect.
type Cluster struct {
	SilenceS    float64 `toml:"silence_s"`    // seconds without a sign of life until a worker is lost; default 3
	LeaseS      float64 `toml:"lease_s"`      // seconds without a coordinator until a worker gives its ranks up; default 30
	MaxRestarts int     `toml:"max_restarts"` // restarts since the last new checkpoint until the run fails; default 10
	// data, and the weights of stage 0, stay on the coordinator's host, where place has to put stage 0; default
	// false
	Edge bool `toml:"edge"`
	// "auto": workers that see run.out write their parts of checkpoints there themselves; "off": they send them;
	// default auto
	SharedFolder string   `toml:"shared_folder"`
	Place        []string `toml:"place"` // the name of a worker for each pipeline rank; default [] = by memory and cores
}

// Telemetry is where figures of the run go beside metrics.jsonl. Over a cluster the coordinator sends
// and writes them, and serves its own metrics.
type Telemetry struct {
	Metrics         string `toml:"metrics"`          // host:port at which Prometheus finds them, at /metrics; default "" = nowhere
	MetricsInsecure bool   `toml:"metrics_insecure"` // metrics may be at an address that other hosts reach; default false
	// base URL of an OpenTelemetry collector; default "" = as OTEL_EXPORTER_OTLP_ENDPOINT says
	OTLP        string `toml:"otlp"`
	TensorBoard bool   `toml:"tensorboard"` // event files in run.out/tensorboard; default false
}

// Load reads the file at path and goes on as Parse does.
func Load(path string, sets []string, env func(string) (string, bool)) (*Config, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read the config: %w", err)
	}
	defer func() { _ = file.Close() }() // nothing was written
	// One byte over the limit is enough for Parse to refuse the file.
	text, err := io.ReadAll(io.LimitReader(file, MaxFileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read the config: %w", err)
	}
	return Parse(path, text, sets, env)
}

// Parse makes a Config of a file's text and the --set values on top of it. The
// name stands in messages. The function env looks up environment variables, as
// os.LookupEnv does; nil stands for an empty environment. Mistakes in the
// configuration are returned as Errors.
func Parse(name string, text []byte, sets []string, env func(string) (string, bool)) (*Config, error) {
	return newReader(name).parse(text, sets, env)
}

// ParseStored makes a Config of the text that a run has stored. Earlier versions let
// keys without effect stand: they count as not given. Keys may have their earlier names,
// and a schedule one that another program has registered.
func ParseStored(name string, text []byte) (*Config, error) {
	r := newReader(name)
	r.stored = true
	c, err := r.parse(text, nil, nil)
	if err == nil && scheduler.Removed(c.Pipeline.Schedule) != "" {
		// Another schedule gives the same bits, and a coordinator that takes the run up has nobody to ask for one.
		c.Pipeline.Schedule = scheduler.DefaultSchedule(c.Pipeline.Stages, c.Pipeline.Chunks)
	}
	return c, err
}

func (r *reader) parse(text []byte, sets []string, env func(string) (string, bool)) (*Config, error) {
	if env == nil {
		env = func(string) (string, bool) { return "", false }
	}
	r.readFile(text)
	for i, set := range sets {
		r.readSet(i, set)
	}

	c := &Config{file: r.file, headers: r.headers, given: make(map[string]Pos)}
	c.setDefaults()
	for i := range schema {
		f := &schema[i]
		e, ok := r.entries[f.key]
		if !ok {
			continue
		}
		c.given[f.key] = e.pos
		if err := f.assign(c, e, r.stored, env); err != nil {
			r.fail(err)
			r.suspect[f.key] = true
		}
	}
	if r.stored && !c.IsSet("data.special_tokens") && c.Text() && c.IDBytes() == 0 {
		c.Data.SpecialTokens = SpecialAsText // what names were before there was the key
	}
	if r.incomplete {
		// Judging keys against each other needs all of them.
		return nil, r.errs.sorted()
	}
	c.resolve()
	if r.stored {
		c.dropIdle()
		if c.Cluster.LeaseS <= c.Cluster.SilenceS { // which earlier versions let stand
			defaults := new(Config)
			defaults.setDefaults()
			c.Cluster.LeaseS, c.Cluster.SilenceS = defaults.Cluster.LeaseS, defaults.Cluster.SilenceS
		}
	}
	if errs := c.checkRelations(r.suspect, r.errs); len(errs) > 0 {
		return nil, errs.sorted()
	}
	return c, nil
}

// Where says where a key's value came from: a place in the file, a --set, or
// "default". A value that LoadShape filled in came from where model.from did.
func (c *Config) Where(key string) Pos {
	if pos, ok := c.given[key]; ok {
		return pos
	}
	if f := lookup(key); f != nil && f.shape && c.shapeLoaded {
		return c.given["model.from"]
	}
	return Pos{}
}

// IsSet reports whether the file or a --set gave the key, even if it gave the
// default's value.
func (c *Config) IsSet(key string) bool {
	_, ok := c.given[key]
	return ok
}

// Errorf makes an error at a key, for a check that is made elsewhere.
func (c *Config) Errorf(key, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Pos: c.Where(key), Key: key, Msg: err.Error(), wrapped: err}
}
