package collective

// OverSizes is Over with sizes of the test's.
func OverSizes(name string, rank, size int, c Carrier, piece, gather, eager, copied int) *Group {
	return over(name, rank, size, c, sizes{piece: piece, gather: gather, eager: eager, copied: copied})
}
