package peft

import "github.com/troupe-ml/troupe/stages"

// The limits of files that are read, far above those of published adapters.
const (
	// MaxConfigBytes limits adapter_config.json.
	MaxConfigBytes = 1 << 20
	// MaxRank limits a rank in adapter_config.json: one of several layers in one tensor is the sum of theirs.
	MaxRank = 8 * stages.MaxAdapterRank
	// maxNames limits each list and each object of names in adapter_config.json, and maxPatterns the regular expressions in it.
	maxNames, maxPatterns = 1 << 16, 256
	// maxScale limits lora_alpha.
	maxScale = 1e6
)
