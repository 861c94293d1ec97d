package driver

// Nowhere returns a driver without a GPU: every call succeeds and does nothing. It serves to count
// the memory of launches.
func Nowhere() *Driver { return &Driver{} }

// BLASNowhere is such a library: it has an algorithm for every product.
func BLASNowhere() *BLAS { return &BLAS{} }
