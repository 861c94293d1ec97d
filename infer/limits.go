package infer

// The limits of generating several texts at once.
const (
	// LimitTexts is the most texts of a Batch that are generated at once, LimitWaiting the most that wait.
	LimitTexts   = 256
	LimitWaiting = 1 << 16
	usualTexts   = 8
	usualWaiting = 64
	// limitEncodings is the most prompts of a Batch that are encoded at once.
	limitEncodings = 4
	// limitFeed is the most tokens of a text that the model reads at once if it may read them in parts, limitStep those of all prompts.
	limitFeed = 512
	limitStep = 2 * limitFeed
)
