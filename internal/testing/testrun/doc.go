// Package testrun trains small models for the tests in test/, and compares what comes of them.
//
// Only tests may import it.
package testrun
