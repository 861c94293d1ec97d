package event

// Info describes a run that has been set up.
type Info struct {
	Name, Out    string
	ID           string // a UUID, which stays the same when the run goes on; empty where a coordinator has the run
	Family       string
	Parameters   int64
	Frozen       int64 // of them: not trained
	Vocab        int
	TrainTokens  int64
	ValTokens    int64
	EvalWindows  int
	EpochWindows int64   // training windows, each visited once in an epoch
	EpochSteps   float64 // that an epoch takes
	Epochs       float64 // that all steps make
	Steps        int
	ResumedAt    int // step of the checkpoint that it goes on from; 0: a fresh start
	Schedule     string
	Stages       int    // of the pipeline
	Ranks        int    // of the grid: the stages, unless parallel.tensor, context or data say more
	Grid         string // where ranks are more than stages: the sizes and the groups, and what replicas share, in one line
	Chunks       int    // of all stages
	Microbatches int
	Layout       string
	BubblePct    float64 // ideal: of the table at unit costs
	PeakInFlight []int   // by rank
	Device       string  // "cpu" or "cuda"; all, as "cuda, cpu" or "cuda:0, cuda:1", where ranks differ
	Threads      int     // of the CPU, where a rank computes on it
	Samples      bool    // the counts of tokens are of samples, and so are windows
	// of samples with a label: how many classes there are, and how many samples have each; "" where a
	// coordinator has the run
	Classes string
	Text    string // of text: which tokens begin and end it, and which of the model's files say so; "": none does
	Auto    string // what device.kind = "auto" has come to, in a sentence; "": it is not asked for, or there is no GPU
	Kernels string // of several devices each with its ranks: "cuda-sm_90 (rank 0), cpu-avx2 (rank 1)"
}

// Result is how a run ended.
type Result struct {
	Step         int
	Steps        int  // that the configuration asks for
	Stopped      bool // by request, before the last step
	Early        bool // before the last step, since run.patience was at its end
	FirstValLoss float64
	LastValLoss  float64 // NaN: there was no validation
	BestValLoss  float64
	BestStep     int
	Dir          string // the last checkpoint
	Updates      Updates
}

// Updates counts steps by how their update was made, where pipeline.post_validation is
// on: applied speculatively and kept, or rolled back, or waited for.
type Updates struct{ Kept, RolledBack, Waited int64 }
