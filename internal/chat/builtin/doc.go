// Package builtin has chat templates for models that have none. A configuration names one in
// data.chat_template.
//
// Each writes conversations as a published family of models does, without tools.
// internal/chat/testdata/vectors.py compares them with transformers.
//
// The package imports the standard library only. It must never know a model, a tokenizer or a
// configuration, and it does not parse its templates.
package builtin
