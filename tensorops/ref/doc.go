// Package ref is the oracle: a Device that computes every operation in float64
// with the plainest loops that say what the operation means. It is slow on
// purpose. Every other device is compared with it (package optest), and its own
// gradients are compared with central differences of its own forward operations.
//
// Each operation is a function of its Op, one file for a family: linear, embed,
// norm, act, attention, loss, optim, move. Tensors of all types but
// int32 are stored as float64, so that nothing is rounded between operations but what is
// written into a tensor of bfloat16; Upload and Fetch convert from and to the host's types.
//
// The package must not know models, schedules or actors, and nothing in it may be made faster at
// the price of a line that needs explaining.
package ref
