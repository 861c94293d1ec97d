package gguf

// The limits of files that are read and written. They are far above those of any published model and
// keep a hostile header cheap.
const (
	// HeaderBytesMax limits everything before the data. The largest vocabularies take some 20 MB.
	HeaderBytesMax = 256 << 20
	// EntriesMax limits the entries of a file.
	EntriesMax = 1 << 16
	// TensorsMax limits the tensors of a file.
	TensorsMax = 1 << 18
	// KeyBytesMax limits a key. The format sets this limit.
	KeyBytesMax = 65535
	// StringBytesMax limits a string: a chat template, a token, a license.
	StringBytesMax = 16 << 20
	// NameBytesMax limits the name of a tensor. The format allows 64; readers of older files allowed more.
	NameBytesMax = 256
	// RankMax limits the dimensions of a tensor, as in ggml.
	RankMax = 4
	// AlignmentMax limits general.alignment.
	AlignmentMax = 1 << 20
)
