// Package sysinfo tells what the machine offers: memory, processor, caches,
// vector units. What it cannot find out is zero or empty.
//
// The package must not know what the answers are for.
package sysinfo
