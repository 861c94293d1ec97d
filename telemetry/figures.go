package telemetry

// Unit is the unit of a metric.
type Unit string

// The units.
const (
	Number          Unit = ""
	TokensPerSecond Unit = "tokens/s" // samples/s if the data is not text
	Milliseconds    Unit = "ms"
	Percent         Unit = "%"
	Bytes           Unit = "bytes"
	Cores           Unit = "cores"
)

// Figure describes a metric that a step may report. metrics.jsonl and its history, Prometheus, OpenTelemetry,
// TensorBoard, reports, the page and a cluster's messages all use Figures: a new metric needs a field in Record, a
// row in Figures, and the code that measures it.
type Figure struct {
	Name   string // key in metrics.jsonl, on the page and in a cluster's messages
	Metric string // name in OpenTelemetry after "engine." and in Prometheus after "engine_"; "": a histogram reports it
	Tag    string // TensorBoard tag
	Unit   Unit
	Title  string // such as "Gradient norm"
	Help   string // a sentence
	Chart  string // name of the figure whose chart also shows this one; "": it has its own chart
	Line   string // name in the chart's legend
	Note   string // text after the unit in the chart
	Zero   bool   // the chart's Y axis begins at 0
	Sparse bool   // only some steps report it
	// Machine means that the value depends on the machine, so that it differs between identical runs.
	Machine bool

	float func(*Record) **float64
	whole func(*Record) *int64 // replaces float for a whole number; 0: not measured
}

// Figures are the metrics of a step, in the order of files, pages and reports.
var Figures = []Figure{
	{Name: "loss", Metric: "loss", Tag: "train/loss",
		Title: "Loss", Line: "training",
		Help:  "Training loss of the last step, averaged over its target tokens.",
		float: func(r *Record) **float64 { return &r.Loss }},
	{Name: "val_loss", Metric: "validation_loss", Tag: "val/loss",
		Title: "Validation loss", Chart: "loss", Line: "validation", Sparse: true,
		Help:  "Loss of the last validation.",
		float: func(r *Record) **float64 { return &r.ValLoss }},
	{Name: "mtp_loss", Metric: "mtp_loss", Tag: "train/mtp_loss",
		Title: "Multi-token prediction loss", Chart: "loss", Line: "multi-token prediction",
		Help:  "Multi-token prediction loss of the last step, averaged over its layers.",
		float: func(r *Record) **float64 { return &r.MTPLoss }},
	{Name: "grad_norm", Metric: "gradient_norm", Tag: "train/grad_norm",
		Title: "Gradient norm", Line: "norm", Note: "before clipping",
		Help:  "Global gradient norm of the last step, before clipping.",
		float: func(r *Record) **float64 { return &r.GradNorm }},
	{Name: "lr", Metric: "learning_rate", Tag: "train/lr",
		Title: "Learning rate", Line: "rate", Zero: true,
		Help:  "Learning rate of the last step.",
		float: func(r *Record) **float64 { return &r.LR }},
	{Name: "targets", Metric: "targets", Tag: "train/targets",
		Title: "Target tokens", Line: "of a step", Zero: true,
		Help:  "Target tokens of the last step, if sequences are documents.",
		float: func(r *Record) **float64 { return &r.Targets }},
	{Name: "full_pct", Metric: "full_ratio", Tag: "train/full_pct", Unit: Percent,
		Title: "Full sequences", Line: "full", Note: "of the context", Zero: true,
		Help:  "Share of the context that the sequences of the last step filled with documents.",
		float: func(r *Record) **float64 { return &r.FullPct }},
	{Name: "tokens_per_s", Metric: "tokens_per_second", Tag: "speed/tokens_per_s", Unit: TokensPerSecond,
		Title: "Throughput", Line: "throughput", Zero: true, Machine: true,
		Help:  "Tokens per second in the last step, or samples per second if the data is not text.",
		float: func(r *Record) **float64 { return &r.TokensPerS }},
	{Name: "step_ms", Tag: "speed/step_ms", Unit: Milliseconds,
		Title: "Step time", Line: "step", Zero: true, Machine: true,
		Help:  "Duration of the last step.",
		float: func(r *Record) **float64 { return &r.StepMS }},
	{Name: "shadow_ms", Tag: "speed/shadow_ms", Unit: Milliseconds,
		Title: "Wait for shadows", Line: "wait", Zero: true, Machine: true,
		Help:  "Time for which the last step waited for the shadows' gradients after all ranks had reported.",
		float: func(r *Record) **float64 { return &r.ShadowMS }},
	{Name: "bubble_pct", Metric: "bubble_ratio", Tag: "speed/bubble_pct", Unit: Percent,
		Title: "Bubble", Line: "measured", Note: "of the ranks' time", Zero: true, Machine: true,
		Help:  "Share of the ranks' time in the last step in which no action ran.",
		float: func(r *Record) **float64 { return &r.BubblePct }},
	{Name: "peak_mem_bytes", Metric: "memory.peak", Tag: "memory/peak_bytes", Unit: Bytes,
		Title: "Peak memory", Line: "the process", Zero: true, Machine: true,
		Help:  "Peak memory of the process.",
		whole: func(r *Record) *int64 { return &r.PeakMemBytes }},
	{Name: "peak_pct", Metric: "peak_ratio", Tag: "speed/peak_pct", Unit: Percent,
		Title: "Model FLOPs utilization", Line: "MFU", Zero: true, Machine: true,
		Help:  "Model FLOPs per second in the last step, as a share of the processor's measured peak (MFU).",
		float: func(r *Record) **float64 { return &r.PeakPct }},
	{Name: "cpu_cores", Metric: "cpu.cores", Tag: "speed/cpu_cores", Unit: Cores,
		Title: "CPU cores in use", Line: "the process", Zero: true, Machine: true,
		Help:  "Average number of CPU cores that the process used in the last step.",
		float: func(r *Record) **float64 { return &r.CPUCores }},
}

var figureIndex = func() map[string]int {
	index := make(map[string]int, len(Figures))
	for i := range Figures {
		index[Figures[i].Name] = i
	}
	return index
}()

// FigureOf returns the figure with a name; nil: no figure has it.
func FigureOf(name string) *Figure {
	if i, ok := figureIndex[name]; ok {
		return &Figures[i]
	}
	return nil
}

// Whole reports whether the figure is a whole number.
func (f *Figure) Whole() bool { return f.whole != nil }

// Get returns the figure's value in a record; nil: it was not measured. The value is shared with the record.
func (f *Figure) Get(r *Record) *float64 {
	if f.whole == nil {
		return *f.float(r)
	}
	n := *f.whole(r)
	if n == 0 {
		return nil
	}
	v := float64(n)
	return &v
}

// Set sets the figure's value in a record; nil: it was not measured.
func (f *Figure) Set(r *Record, v *float64) {
	switch {
	case f.whole == nil:
		*f.float(r) = v
	case v == nil:
		*f.whole(r) = 0
	default:
		*f.whole(r) = int64(*v)
	}
}

// Scaled returns a value as metric systems expect it: a percentage becomes a ratio.
func (f *Figure) Scaled(v float64) float64 {
	if f.Unit == Percent {
		return v * 0.01
	}
	return v
}
