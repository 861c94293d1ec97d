package event

// Info describes a run that has been set up.
type Info struct {
	Name         string  `json:"name"`
	Out          string  `json:"out"`
	ID           string  `json:"id,omitempty"` // a UUID, which a resumed run keeps; empty if a coordinator trains the run
	Family       string  `json:"family"`
	Parameters   int64   `json:"parameters"`
	Frozen       int64   `json:"frozen,omitempty"` // parameters that are not trained
	Vocab        int     `json:"vocab"`
	TrainTokens  int64   `json:"train_tokens"`
	ValTokens    int64   `json:"val_tokens"`
	EvalWindows  int     `json:"eval_windows"`
	EvalSets     string  `json:"eval_sets,omitempty"` // the sets of [[eval]], with their windows; "": there are none
	Sources      string  `json:"sources,omitempty"`   // the sources of documents, or the stream, with what the run takes of each
	EpochWindows int64   `json:"epoch_windows"`       // training windows of an epoch, which visits each once
	EpochSteps   float64 `json:"epoch_steps"`         // steps of an epoch
	Epochs       float64 `json:"epochs"`              // epochs of all steps
	Steps        int     `json:"steps"`
	ResumedAt    int     `json:"resumed_at"` // step of the checkpoint that the run resumed from; 0: a fresh start
	// Changed lists the keys whose values differ from those of the run's last start, except paths and a changed learning
	// rate, which is a ChangeEvent: "run.keep 3 → 1, pipeline.stages 1 → 2".
	Changed      string  `json:"changed,omitempty"`
	Schedule     string  `json:"schedule"`
	Stages       int     `json:"stages"`         // pipeline stages
	Ranks        int     `json:"ranks"`          // ranks of the grid: equal to Stages unless parallel.tensor, context or data is above 1
	Grid         string  `json:"grid,omitempty"` // if there are more ranks than stages: sizes, groups and what replicas share, in one line
	Chunks       int     `json:"chunks"`         // chunks of all stages
	Microbatches int     `json:"microbatches"`
	Layout       string  `json:"layout"`
	BubblePct    float64 `json:"ideal_bubble_pct"`  // ideal bubble: of the schedule's table if all actions of a kind take equally long
	PeakInFlight []int   `json:"peak_in_flight"`    // activations that a rank holds at most, by rank
	Device       string  `json:"device"`            // "cpu" or "cuda"; a list such as "cuda, cpu" or "cuda:0, cuda:1" if ranks differ
	Threads      int     `json:"threads"`           // CPU threads, if a rank computes on the CPU
	Samples      bool    `json:"samples,omitempty"` // TrainTokens, ValTokens and the windows count samples, not tokens
	// Classes describes labeled samples: the number of classes and the samples of each; "" if a coordinator trains
	// the run.
	Classes string `json:"classes,omitempty"`
	// Documents describe documents of which only a part is learned; nil: the data is something else.
	Documents *Documents `json:"documents,omitempty"`
	// Packing describes sequences of several documents; nil: each sequence is one.
	Packing *Packing `json:"packing,omitempty"`
	// Text describes the tokens that begin and end a text, and the model's files that define them; "": none.
	Text string `json:"text,omitempty"`
	// Auto says why device.kind = "auto" chose this device, in a sentence; "": auto is not used, or there is no GPU.
	Auto string `json:"auto,omitempty"`
	// Kernels are the kernels; of several devices, each with its ranks: "cuda-sm_90 (rank 0), cpu-avx2 (rank 1)".
	Kernels string `json:"kernels"`
}

// Result describes how a run ended. A loss that was not measured is NaN, in JSON null.
type Result struct {
	Step         int     `json:"step"`
	Steps        int     `json:"steps"`           // run.steps
	Stopped      bool    `json:"stopped"`         // stopped by a request before the last step
	Early        bool    `json:"early,omitempty"` // stopped before the last step because run.patience was used up
	FirstValLoss float64 `json:"first_val_loss"`
	LastValLoss  float64 `json:"val_loss"` // NaN: the run has not validated
	BestValLoss  float64 `json:"best_val_loss"`
	BestStep     int     `json:"best_step"`
	Dir          string  `json:"checkpoint"`       // folder of the last checkpoint
	Updates      Updates `json:"updates,omitzero"` // zero without pipeline.post_validation
}

// Updates counts steps by the way of their update if pipeline.post_validation is on: applied early and kept, applied
// early and rolled back, or applied after waiting for the gradient norm.
type Updates struct {
	Kept       int64 `json:"kept"`
	RolledBack int64 `json:"rolled_back"`
	Waited     int64 `json:"waited"`
}
