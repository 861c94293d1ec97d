// Package exampletest has helpers for the tests of examples. SameBits trains an example's model under many layouts in
// the test's process; losses, weights and optimizer state must be bit-identical. Program runs the test binary as the
// example's program. Golden compares output with a file in testdata.
//
// Only tests may import it.
package exampletest
