package chart

// The limits of a picture.
const (
	// LimitLines bounds the lines of a chart: more could not be distinguished.
	LimitLines = 6
	// LimitMarks bounds the marks of a chart, and its marked gaps.
	LimitMarks = 200
)
