package tensorops

import "unsafe"

// bytesOf views numbers as the bytes that hold them, without a copy.
func bytesOf[E float32 | float64 | int32](s []E) []byte {
	if len(s) == 0 {
		return nil
	}
	var e E
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(e)))
}

// HostBytes views numbers in host memory as bytes, for Upload and Fetch.
func HostBytes[E float32 | float64 | int32](s []E) []byte { return bytesOf(s) }

// HostNumbers views bytes in host memory as numbers; it is the inverse of
// HostBytes. The bytes must be aligned for E, as all that Go allocates for
// numbers are.
func HostNumbers[E float32 | float64 | int32](b []byte) []E {
	if len(b) == 0 {
		return nil
	}
	var e E
	return unsafe.Slice((*E)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(e)))
}
