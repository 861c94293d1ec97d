package config

// The limits of what a configuration may say, far above anything sensible. Each
// fits a 32-bit int, and they are chosen so that the bytes of any single tensor
// (a weight, a whole step's activations, attention scores or logits) fit an
// int64. A sum over layers and tensors need not.
const (
	MaxFileBytes           = 1 << 20 // of the file
	MaxErrors              = 50      // mistakes reported before the reader gives up
	MaxPatterns            = 1024    // entries of data.train or data.val
	MaxPathBytes           = 4096    // of a path or pattern
	MaxNameBytes           = 100     // of run.name, a folder's name
	MaxLayoutBytes         = 1 << 16 // of pipeline.layout
	MaxWordBytes           = 32      // of device.kernels
	MaxScheduleBytes       = 64      // of a schedule's name
	MaxAddressBytes        = 2048    // of an address or a URL
	MaxSteps               = 1_000_000_000
	MaxCount               = 1_000_000_000 // of a number of steps, batches or checkpoints
	MaxStallS              = 1_000_000_000
	MinSilenceS            = 0.1
	MaxSilenceS            = 3600
	MaxSampleTokens        = 1 << 16 // of run.sample_tokens
	MaxPromptBytes         = 1 << 16 // of run.sample_prompt
	MaxLayers              = 1 << 12
	MaxHidden              = 1 << 20
	MaxHeads               = 1 << 13
	MaxFFN                 = 4 * MaxHidden // so that the default always fits
	MaxContext             = 1 << 20
	MaxVocab               = 1 << 24
	MaxMTPLayers           = 1 << 8
	MaxMTPWeight           = 1e6
	MaxSequences           = 1 << 20
	MaxStepTokens          = 1 << 26 // batch.sequences × model.context
	MaxOptions             = 256     // entries of model.stack and model.options
	MaxOptionBytes         = 1024    // of one
	MaxScale               = 1e30
	MaxStages              = 1 << 12
	MaxMemoryGiB           = 1 << 20
	MaxRanks               = 1 << 16 // along each dimension of the grid
	MaxChunks              = 1 << 12
	MaxMicrobatchGroupSize = 1 << 20
	LimitInFlight          = 1 << 26
	MaxThreads             = 1 << 12
	MaxLR                  = 1e6
	MinEps                 = 1e-30 // still above zero as a float32
	MaxWeightDecay         = 1e6
	MaxClipNorm            = 1e30
	MaxRopeTheta           = 1e15
	maxEntries             = MaxStages // of any list, as far as it is read: one more is too many for each key
	maxSuggestBytes        = 64        // of a mistyped word that a near one is sought for
)
