// Package registry knows by name what a program has registered beside what it was built
// with, such as its own schedules (scheduler.Register).
//
// A package that takes registrations has a Set for its kind:
//
//	var own = registry.New[Generator]("schedule")
//
// Names lists what is in all of them. The processes of a cluster compare these lists, since
// what one has and another lacks can't be run together.
//
// Registering is for a program's beginning, before it does anything else: the order of
// registration must not matter, and nothing is ever taken back. It panics where that is the
// programmer's mistake: a bad name, one that is taken, too many.
//
// The package must never know what is registered.
package registry
