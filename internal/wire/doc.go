// Package wire has the schema of what processes send each other, wire.proto, and the Go
// code that is generated from it by make proto.
//
// It has no rules of its own: what a message means is for the packages that send it.
package wire
