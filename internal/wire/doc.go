// Package wire has wire.proto, the schema of the messages between processes, and the Go code that
// make proto generates from it.
//
// It has no rules: the packages that send a message define its meaning.
package wire
