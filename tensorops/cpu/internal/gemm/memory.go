package gemm

import "unsafe"

// Memory is some rows of memory, in lines of 64 bytes, that are needed soon. The zero value is none.
type Memory struct {
	first  *byte
	lines  int // in all
	perRow int
	skip   int // bytes from the line after a row's last one to the next row's first one
}

const lineBytes = 64

// MemoryB is what PackB reads of B: nothing where it lies in neither direction.
func MemoryB(b Matrix, k, n int) Memory {
	rows, numbers, stride := k, n, b.Row
	if b.Row == 1 {
		rows, numbers, stride = n, k, b.Col
	} else if b.Col != 1 {
		return Memory{}
	}
	if b.Half != nil {
		return memory(b.Half, rows, numbers, stride)
	}
	if b.Coded != nil {
		codes, rowBytes := b.Coded.Codes(b.First)
		return memory(codes, rows, b.Coded.CodeBytes(numbers), rowBytes)
	}
	return memory(b.Data, rows, numbers, stride)
}

// memory is some rows of a slice. A row that does not begin with a line has one more than is counted, its first one: the strip
// before has it too.
func memory[T float32 | uint16 | byte](data []T, rows, numbers, stride int) Memory {
	size := int(unsafe.Sizeof(data[0]))
	at := min(lineBytes/size, numbers) - 1
	perRow := ceil(size*numbers, lineBytes)
	return Memory{(*byte)(unsafe.Pointer(&data[at])), rows * perRow, perRow, size*stride - lineBytes*perRow}
}
