// Package guard gives tests of assembly memory behind which nothing can be read or written,
// where the system has such. Only tests may import it; it imports nothing of Troupe.
package guard
