package chart

// The limits of a picture.
const (
	// LimitLines bounds the lines of a chart: as many are told apart.
	LimitLines = 6
	// LimitMarks bounds the marks of a chart that are drawn, and the points that are no numbers.
	LimitMarks = 200
)
