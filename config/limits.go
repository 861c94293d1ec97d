package config

// Limits of the values in a configuration, far above any sensible value. Each
// fits a 32-bit int. They guarantee that the size in bytes of any single tensor
// (a weight, a step's activations, attention scores or logits) fits an
// int64. A sum over layers and tensors may not.
const (
	MaxFileBytes           = 1 << 20 // of the file
	maxErrors              = 50      // errors reported before reading stops
	maxPatterns            = 1024    // entries of data.train or data.val
	maxPathBytes           = 4096    // of a path or pattern
	maxNameBytes           = 100     // of run.name, a folder's name
	maxLayoutBytes         = 1 << 16 // of pipeline.layout
	maxWordBytes           = 32      // of device.kernels
	maxScheduleBytes       = 64      // of a schedule's name
	maxAddressBytes        = 2048    // of an address or a URL
	MaxSteps               = 1_000_000_000
	maxCount               = 1_000_000_000 // of a number of steps, batches or checkpoints
	maxSetNameBytes        = 64            // of the name of a validation set
	maxEvals               = 64            // [[eval]] sections
	maxSources             = 256           // [[data.source]] sections
	maxWeight              = 1e9
	maxShuffleWindow       = 1 << 24 // sequences
	maxStallS              = 1_000_000_000
	minSilenceS            = 0.1
	maxSilenceS            = 3600
	maxSampleTokens        = 1 << 16 // of run.sample_tokens
	maxTemperature         = 100.0   // of run.sample_temperature
	maxPromptBytes         = 1 << 16 // of run.sample_prompt
	MaxLayers              = 1 << 12
	MaxHidden              = 1 << 20
	MaxHeads               = 1 << 13
	MaxFFN                 = 4 * MaxHidden // so that the default always fits
	MaxContext             = 1 << 20
	MaxVocab               = 1 << 24
	MaxMTPLayers           = 1 << 8
	maxMTPWeight           = 1e6
	maxAdapterAlpha        = 1e6
	maxTeacherTokens       = 1 << 10 // distill.top_k
	leastSoftening         = 0.01    // distill.temperature; below, the divergence of one token is not finite
	maxSoftening           = 100
	maxPreference          = 1e3 // beta, gamma and weights of [preference]
	maxSequences           = 1 << 20
	maxStepTokens          = 1 << 26 // batch.sequences × model.context
	maxOptions             = 256     // entries of model.stack and model.options
	maxOptionBytes         = 1024    // of one
	maxScale               = 1e30
	maxStages              = 1 << 12
	maxMemoryGiB           = 1 << 20
	maxRanks               = 1 << 16 // along each dimension of the grid
	maxChunks              = 1 << 12
	maxMicrobatchGroupSize = 1 << 20
	limitInFlight          = 1 << 26
	maxThreads             = 1 << 12
	maxLR                  = 1e6
	maxLRScale             = 1e6
	maxGroups              = 64    // [[optimizer.group]] sections
	minEps                 = 1e-30 // still above zero as a float32
	maxWeightDecay         = 1e6
	maxClipNorm            = 1e30
	MaxRopeTheta           = 1e15
	maxEntries             = maxStages // of any list; reading stops after one more
	maxSuggestBytes        = 64        // of a mistyped word for which a near one is suggested
)
