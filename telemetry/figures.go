package telemetry

// Unit is what a figure is measured in.
type Unit string

// The units.
const (
	Number          Unit = ""
	TokensPerSecond Unit = "tokens/s" // samples/s, where the data are no text
	Milliseconds    Unit = "ms"
	Percent         Unit = "%"
	Bytes           Unit = "bytes"
	Cores           Unit = "cores"
)

// Figure describes a number that a step may report. metrics.jsonl and its history, Prometheus,
// OpenTelemetry, TensorBoard, reports, the page and a cluster's messages all go through Figures: a new
// figure needs a field in Record, a row in Figures, and the code that measures it.
type Figure struct {
	Name   string // its key in metrics.jsonl, on the page and in a cluster's messages
	Metric string // its name in OpenTelemetry after "engine.", and in Prometheus after "engine_"; "": a histogram has it instead
	Tag    string // its TensorBoard tag
	Unit   Unit
	Title  string // "Gradient norm"
	Help   string // a sentence
	Chart  string // the name of the figure whose chart also shows this one; "": it has a chart of its own
	Line   string // its name in the chart's legend
	Note   string // what the chart says after the unit
	Zero   bool   // the chart begins at 0
	Sparse bool   // only some steps have it
	// Machine says that the figure depends on the machine: no two runs have the same.
	Machine bool

	float func(*Record) **float64
	whole func(*Record) *int64 // in place of float, for a whole number; 0: not known
}

// Figures are the figures of a step, in the order in which files, pages and reports have them.
var Figures = []Figure{
	{Name: "loss", Metric: "loss", Tag: "train/loss",
		Title: "Loss", Line: "training",
		Help:  "Loss of the last step: the mean over its target tokens.",
		float: func(r *Record) **float64 { return &r.Loss }},
	{Name: "val_loss", Metric: "validation_loss", Tag: "val/loss",
		Title: "Validation loss", Chart: "loss", Line: "validation", Sparse: true,
		Help:  "Loss of the last validation.",
		float: func(r *Record) **float64 { return &r.ValLoss }},
	{Name: "mtp_loss", Metric: "mtp_loss", Tag: "train/mtp_loss",
		Title: "Multi-token prediction loss", Chart: "loss", Line: "multi-token prediction",
		Help:  "Loss of multi-token prediction of the last step: the mean over its layers.",
		float: func(r *Record) **float64 { return &r.MTPLoss }},
	{Name: "grad_norm", Metric: "gradient_norm", Tag: "train/grad_norm",
		Title: "Gradient norm", Line: "norm", Note: "before clipping",
		Help:  "Norm of the whole gradient of the last step, before clipping.",
		float: func(r *Record) **float64 { return &r.GradNorm }},
	{Name: "lr", Metric: "learning_rate", Tag: "train/lr",
		Title: "Learning rate", Line: "rate", Zero: true,
		Help:  "Learning rate of the last step.",
		float: func(r *Record) **float64 { return &r.LR }},
	{Name: "tokens_per_s", Metric: "tokens_per_second", Tag: "speed/tokens_per_s", Unit: TokensPerSecond,
		Title: "Speed", Line: "speed", Zero: true, Machine: true,
		Help:  "Tokens, or samples where the data are no text, a second, of the last step.",
		float: func(r *Record) **float64 { return &r.TokensPerS }},
	{Name: "step_ms", Tag: "speed/step_ms", Unit: Milliseconds,
		Title: "Time of a step", Line: "step", Zero: true, Machine: true,
		Help:  "How long a step took.",
		float: func(r *Record) **float64 { return &r.StepMS }},
	{Name: "bubble_pct", Metric: "bubble_ratio", Tag: "speed/bubble_pct", Unit: Percent,
		Title: "Bubble", Line: "measured", Note: "of rank-time", Zero: true, Machine: true,
		Help:  "Share of the ranks' time without a running action, of the last step.",
		float: func(r *Record) **float64 { return &r.BubblePct }},
	{Name: "peak_mem_bytes", Metric: "memory.peak", Tag: "memory/peak_bytes", Unit: Bytes,
		Title: "Peak memory", Line: "the process", Zero: true, Machine: true,
		Help:  "The most memory that the process has taken at a time.",
		whole: func(r *Record) *int64 { return &r.PeakMemBytes }},
	{Name: "peak_pct", Metric: "peak_ratio", Tag: "speed/peak_pct", Unit: Percent,
		Title: "Share of the peak", Line: "share", Zero: true, Machine: true,
		Help:  "Operations that the model asks for in a second, as a share of the processor's peak, of the last step.",
		float: func(r *Record) **float64 { return &r.PeakPct }},
	{Name: "cpu_cores", Metric: "cpu.cores", Tag: "speed/cpu_cores", Unit: Cores,
		Title: "CPU cores in use", Line: "the process", Zero: true, Machine: true,
		Help:  "CPU cores that the process kept busy during the last step, on average.",
		float: func(r *Record) **float64 { return &r.CPUCores }},
}

var figureIndex = func() map[string]int {
	index := make(map[string]int, len(Figures))
	for i := range Figures {
		index[Figures[i].Name] = i
	}
	return index
}()

// FigureOf returns the figure with a name; nil: there is none.
func FigureOf(name string) *Figure {
	if i, ok := figureIndex[name]; ok {
		return &Figures[i]
	}
	return nil
}

// Whole says that the figure is a whole number.
func (f *Figure) Whole() bool { return f.whole != nil }

// Get returns the figure of a record; nil: it was not taken. The record shares it.
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

// Set sets the figure of a record; nil: it was not taken.
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

// Scaled is the value that metric systems show: a percentage is a ratio there.
func (f *Figure) Scaled(v float64) float64 {
	if f.Unit == Percent {
		return v * 0.01
	}
	return v
}
