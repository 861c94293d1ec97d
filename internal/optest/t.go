package optest

// T is the part of *testing.T that this package uses. Package testing itself is not imported:
// programs also check a device (Check), and must not have its flags.
type T interface {
	Helper()
	Error(args ...any)
	Errorf(format string, args ...any)
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// Subtests is a T that has subtests of its own kind, as a *testing.T has.
type Subtests[S any] interface {
	T
	Run(name string, f func(S)) bool
}
