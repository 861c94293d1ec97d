// Package optest is the one table of cases that every device runs. A device
// proves itself with
//
//	func TestOps(t *testing.T) { optest.Run(t, dev, optest.Options{}) }
//
// Run carries out every case on the device and on ref, the float64 oracle, with
// the same inputs to the last bit, and compares all outputs: case by case
// (cases_*.go), in tolerances that belong to the kind of operation
// (tolerance.go). It also holds the device to what tensorops promises of
// streams and errors. Deterministic asks for the same bits for any number of
// threads, twice, and under load. Check is for programs: before a run chooses a device automatically,
// it tests the device with the table (internal/host/device).
//
// Inputs are drawn by the counter-based generator from the case's name. Outputs
// that an operation replaces are filled with NaN before, and so is what lies
// around the columns of a view: so reading or leaving garbage is detected.
//
// The package must not know any other device.
package optest
