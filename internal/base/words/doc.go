// Package words writes numbers, sizes, durations and untrusted words for people to read. It
// imports the standard library alone, so that arithmetic can use it as terminals do.
package words
