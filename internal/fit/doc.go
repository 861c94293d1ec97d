// Package fit chooses how to tune a model in the memory of a machine: all weights, an adapter, or an adapter beside a base in 8 or
// 4 bits; the context, the microbatch and recomputation. engine tune runs its choice.
//
// It changes a proposal of package propose, and asks package plan what each option needs. It never trains and never prints.
package fit
