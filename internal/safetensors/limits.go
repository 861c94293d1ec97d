package safetensors

// The limits of files that are read. The format defines the first. The others are far above any
// published model and keep a hostile header cheap.
const (
	// HeaderBytesMax is the format's own limit on the header.
	HeaderBytesMax = 100_000_000
	// TensorsMax limits the tensors of one file.
	TensorsMax = 1 << 20
	// RankMax limits the dimensions of one tensor.
	RankMax = 64
	// NameBytesMax limits the name of one tensor.
	NameBytesMax = 4096
)
