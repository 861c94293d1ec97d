package event

// Info describes a run that has been set up.
type Info struct {
	Name, Out    string
	ID           string // a UUID, which a resumed run keeps; empty if a coordinator trains the run
	Family       string
	Parameters   int64
	Frozen       int64 // parameters that are not trained
	Vocab        int
	TrainTokens  int64
	ValTokens    int64
	EvalWindows  int
	EpochWindows int64   // training windows of an epoch, which visits each once
	EpochSteps   float64 // steps of an epoch
	Epochs       float64 // epochs of all steps
	Steps        int
	ResumedAt    int // step of the checkpoint that the run resumed from; 0: a fresh start
	Schedule     string
	Stages       int    // pipeline stages
	Ranks        int    // ranks of the grid: equal to Stages unless parallel.tensor, context or data is above 1
	Grid         string // if there are more ranks than stages: sizes, groups and what replicas share, in one line
	Chunks       int    // chunks of all stages
	Microbatches int
	Layout       string
	BubblePct    float64 // ideal bubble: of the schedule's table if all actions of a kind take equally long
	PeakInFlight []int   // activations that a rank holds at most, by rank
	Device       string  // "cpu" or "cuda"; a list such as "cuda, cpu" or "cuda:0, cuda:1" if ranks differ
	Threads      int     // CPU threads, if a rank computes on the CPU
	Samples      bool    // TrainTokens, ValTokens and the windows count samples, not tokens
	// Classes describes labeled samples: the number of classes and the samples of each; "" if a coordinator trains
	// the run.
	Classes string
	Text    string // the tokens that begin and end a text, and the model's files that define them; "": none
	Auto    string // why device.kind = "auto" chose this device, in a sentence; "": auto is not used, or there is no GPU
	Kernels string // the kernels; of several devices, each with its ranks: "cuda-sm_90 (rank 0), cpu-avx2 (rank 1)"
}

// Result describes how a run ended.
type Result struct {
	Step         int
	Steps        int  // run.steps
	Stopped      bool // stopped by a request before the last step
	Early        bool // stopped before the last step because run.patience was used up
	FirstValLoss float64
	LastValLoss  float64 // NaN: the run has not validated
	BestValLoss  float64
	BestStep     int
	Dir          string // folder of the last checkpoint
	Updates      Updates
}

// Updates counts steps by the way of their update if pipeline.post_validation is on: applied early and kept, applied
// early and rolled back, or applied after waiting for the gradient norm.
type Updates struct{ Kept, RolledBack, Waited int64 }
