package checkpoint

// The limits of what is written and read.
const (
	// defaultShardBytes is the size from which a model is split into shards.
	defaultShardBytes = 5_000_000_000
	// manifestBytesMax bounds manifest.json.
	manifestBytesMax = 4 << 20
	// indexBytesMax bounds model.safetensors.index.json.
	indexBytesMax = 64 << 20
	// FileBytesMax bounds any other file that File reads into memory.
	FileBytesMax = 256 << 20
	// ShardsMax bounds the shards of one model.
	ShardsMax = 4096
	// FilesMax bounds the files of one checkpoint.
	FilesMax = 2 * ShardsMax
	// keptFilesMax bounds the files, besides those of tensors, that an open checkpoint
	// keeps open; a run's has four.
	keptFilesMax = 16
	// pointerBytesMax bounds what is read of `last` and `best`.
	pointerBytesMax = 256
)
