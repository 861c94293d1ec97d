package checkpoint

// The limits of checkpoints that are written and read.
const (
	// defaultShardBytes is the size from which a model is split into shards.
	defaultShardBytes = 5_000_000_000
	// manifestBytesMax limits manifest.json.
	manifestBytesMax = 4 << 20
	// indexBytesMax limits model.safetensors.index.json.
	indexBytesMax = 64 << 20
	// FileBytesMax limits any other file that Checkpoint.File reads into memory.
	FileBytesMax = 256 << 20
	// ShardsMax limits the shards of one model.
	ShardsMax = 4096
	// FilesMax limits the files of one checkpoint.
	FilesMax = 2 * ShardsMax
	// keptFilesMax limits the files, other than those of tensors, that an open checkpoint keeps
	// open; a run's checkpoint has four.
	keptFilesMax = 16
	// pointerBytesMax limits what is read of `last` and `best`.
	pointerBytesMax = 256
)
