// Package words writes numbers, sizes, durations and untrusted words for people to read.
package words
