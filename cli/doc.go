// Package cli is the command line of engine: its commands, flags, output, signals and
// exit codes. A program that registers things of its own gets all of it by one call:
//
//	func main() {
//		scheduler.Register("mine", scheduler.Generator{Rows: mine})
//		cli.Main()
//	}
//
// Main does not return. The program calls itself engine in what it prints.
//
// The package turns flags into options of package troupe, and what comes back into lines, a
// progress bar or JSON, and an exit status. The package must not know how anything is computed.
package cli
