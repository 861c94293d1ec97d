package driver

// Nowhere is a driver without a GPU: whatever it is asked for succeeds, and nothing is done. It is
// to count what launches take.
func Nowhere() *Driver { return &Driver{} }

// BLASNowhere is such a library: it has an algorithm for every product.
func BLASNowhere() *BLAS { return &BLAS{} }
