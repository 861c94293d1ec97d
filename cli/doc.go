// Package cli is the command line of engine: its commands, flags, output, signals and exit
// codes. A custom program, which registers its own layers, schedules or data formats, gets all
// of them with one call:
//
//	func main() {
//		scheduler.Register("mine", scheduler.Generator{Rows: mine})
//		cli.Main()
//	}
//
// Main does not return. In its messages the program calls itself engine, whatever its file name.
//
// The package turns flags into options of package troupe. It turns results into lines, a progress
// bar or JSON, and an exit status. It must not know how anything is computed.
package cli
