// Package testrun trains small models for the tests in test/ and compares their results.
//
// Only tests may import it.
package testrun
