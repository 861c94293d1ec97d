package infer

// For the tests that also train, which the package's own can't.
var (
	Open         = open
	EvaluateText = evaluateText
)
