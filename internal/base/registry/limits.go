package registry

const (
	// MaxNameBytes bounds a name.
	MaxNameBytes = 64
	// MaxNames bounds the things of all kinds together.
	MaxNames = 256
	// maxListed is how many names an error lists.
	maxListed = 8
)
