// Package exampletest is what the tests of examples share: a program's own model is trained by
// its configuration under many layouts, in the test's process, and must give the same losses,
// weights and optimizer state to the last bit. Program runs the test binary as the example's
// program. Golden compares with a file in testdata.
//
// Only tests import it.
package exampletest
