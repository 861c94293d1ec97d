// Package propose looks at data files and proposes a configuration to train on them: format, tokenizer, context, number of
// steps and, for tuning, the model to start from. engine init writes it.
//
// The proposal is a guess from file names, the start of the files, and their sizes. It is made to train at once, and to be changed.
//
// The package must never know a run, a device or a terminal. It reads data, and changes nothing.
package propose
