package tensorops

import "unsafe"

// Number is the Go type of an element: uint16 has the bits of a bfloat16.
type Number interface {
	float32 | float64 | int32 | uint16
}

// bytesOf views numbers as the bytes that hold them, without a copy.
func bytesOf[E Number](s []E) []byte {
	if len(s) == 0 {
		return nil
	}
	var e E
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(e)))
}

// HostBytes views numbers in host memory as bytes, for Upload and Fetch.
func HostBytes[E Number](s []E) []byte { return bytesOf(s) }

// HostNumbers views bytes in host memory as numbers; it is the inverse of
// HostBytes. The bytes must be aligned for E, as all that Go allocates for
// numbers are.
func HostNumbers[E Number](b []byte) []E {
	if len(b) == 0 {
		return nil
	}
	var e E
	return unsafe.Slice((*E)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(e)))
}
