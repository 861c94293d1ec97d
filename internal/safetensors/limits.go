package safetensors

// The limits of what is read. The format names the first; the others are far
// above any published model and keep a hostile header cheap.
const (
	// HeaderBytesMax is the format's own limit on the header.
	HeaderBytesMax = 100_000_000
	// TensorsMax bounds the tensors of one file.
	TensorsMax = 1 << 20
	// RankMax bounds the dimensions of one tensor.
	RankMax = 64
	// NameBytesMax bounds the name of one tensor.
	NameBytesMax = 4096
)
