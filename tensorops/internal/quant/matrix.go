package quant

// Matrix is rows that are stored one after the other.
type Matrix struct {
	Format Format
	Data   []byte
	Cols   int // of a row
}

// Decoder stores the numbers of whole blocks, as Format.Decode does.
type Decoder func(f Format, dst []float32, codes []byte, scales []float32)

// Row returns the bytes of a row.
func (m *Matrix) Row(i int) []byte {
	n := m.Format.RowBytes(m.Cols)
	return m.Data[i*n:][:n]
}

// Numbers stores consecutive numbers: those from an index on that counts the numbers of all rows.
func (m *Matrix) Numbers(dst []float32, at int, decode Decoder) {
	for len(dst) > 0 {
		row, col := at/m.Cols, at%m.Cols
		n := min(len(dst), m.Cols-col)
		m.ofRow(dst[:n], row, col, decode)
		dst, at = dst[n:], at+n
	}
}

// ofRow stores consecutive numbers of a row.
func (m *Matrix) ofRow(dst []float32, row, col int, decode Decoder) {
	codes, scales := m.Format.Parts(m.Row(row), m.Cols, col/Block)
	var some [Block]float32
	part := func(from int) { // of the first block
		decode(m.Format, some[:], codes, scales)
		n := copy(dst, some[from:])
		dst, codes, scales = dst[n:], codes[m.Format.codeBytes():], scales[1:]
	}
	if from := col % Block; from > 0 {
		part(from)
	}
	if whole := len(dst) / Block; whole > 0 {
		decode(m.Format, dst[:whole*Block], codes, scales)
		dst, codes, scales = dst[whole*Block:], codes[whole*m.Format.codeBytes():], scales[whole:]
	}
	if len(dst) > 0 {
		part(0)
	}
}

// At returns one number.
func (m *Matrix) At(at int) float32 {
	var one [1]float32
	m.Numbers(one[:], at, Format.Decode)
	return one[0]
}

// Codes returns the memory from the code of a number on, and the bytes from one row to the next.
func (m *Matrix) Codes(at int) (codes []byte, rowBytes int) {
	rowBytes = m.Format.RowBytes(m.Cols)
	return m.Data[at/m.Cols*rowBytes+at%m.Cols*m.Format.codeBytes()/Block:], rowBytes
}

// CodeBytes returns the bytes of the codes of n numbers.
func (m *Matrix) CodeBytes(n int) int { return (n*m.Format.codeBytes() + Block - 1) / Block }
