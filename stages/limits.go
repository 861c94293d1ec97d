package stages

// The limits of a model's sizes, far above any published model. They equal the limits of the config
// (package config). Within them, the bytes of any weight, of all weights, and of a position's
// activations fit in an int64.
const (
	MaxLayers    = 1 << 12
	MaxHidden    = 1 << 20
	MaxHeads     = 1 << 13
	MaxFFN       = 4 * MaxHidden
	MaxContext   = 1 << 20
	MaxVocab     = 1 << 24
	MaxMTPLayers = 1 << 8
	MaxExperts   = 1 << 12
	MinRopeTheta = 1
	MaxRopeTheta = 1e15
	MinNormEps   = 1e-30 // still above zero as a float32
	maxNormEps   = 1
	// maxLayerParam limits the elements of a parameter of a program's own layer, MaxFields the
	// fields of its data, maxOptions the options of a model.
	maxLayerParam = 1 << 34
	MaxFields     = 64
	maxOptions    = 256
	// MaxMetrics limits the metrics of a Report.
	MaxMetrics = 64
	// MaxAdapterRank limits the rank of an adapter.
	MaxAdapterRank  = 1 << 12
	maxAdapterAlpha = 1e6
	// MaxHFBytes limits the text of a config.json.
	MaxHFBytes = 1 << 20
)
