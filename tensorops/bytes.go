package tensorops

import "unsafe"

// Number is the Go type of an element. uint16 holds the bits of a bfloat16.
type Number interface {
	float32 | float64 | int32 | uint16 | uint8
}

// bytesOf returns a view of numbers as bytes, without a copy.
func bytesOf[E Number](s []E) []byte {
	if len(s) == 0 {
		return nil
	}
	var e E
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(e)))
}

// HostBytes returns a view of numbers in host memory as bytes, for Upload and Fetch.
func HostBytes[E Number](s []E) []byte { return bytesOf(s) }

// HostNumbers returns a view of bytes in host memory as numbers; it is the inverse of HostBytes.
// The bytes must be aligned for E. Go aligns all memory that it allocates for numbers.
func HostNumbers[E Number](b []byte) []E {
	if len(b) == 0 {
		return nil
	}
	var e E
	return unsafe.Slice((*E)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(e)))
}
