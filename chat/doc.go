// Package chat renders conversations by the chat template of a model: a Jinja template in
// chat_template.jinja or tokenizer_config.json, as transformers' apply_chat_template does.
//
// A template comes with a model, from strangers. It sees the messages and the names of special
// tokens, no files and no other templates, and it ends: what it may compute and write is
// limited. Jinja is github.com/nikolalohinski/gonja; where that differs from Python in what
// templates use (methods of strings and dicts, tojson, range, the place of "not"), the code here
// stands in its place. Known to differ still: a member of what is not
// defined is not defined either, and so is a loop over it empty, where Python ends with an error.
//
// The package knows no tokenizer, model or file.
package chat

import "errors"

var (
	// ErrTemplate: a template can't be parsed, or uses what is not supported.
	ErrTemplate = errors.New("chat template")
	// ErrRender: a template failed on a conversation, or refused it.
	ErrRender = errors.New("chat template failed")
	// ErrMessages: what should be messages is something else.
	ErrMessages = errors.New("messages of a chat")
)

// Limits of what a template may be and do. Published templates have at most 20 KiB, and render a
// message in some dozens of steps.
const (
	MaxTemplateBytes = 128 << 10
	MaxInputBytes    = 16 << 20 // of all messages as JSON
	MaxOutputBytes   = 64 << 20
	MaxMessages      = 10_000
	maxSteps         = 300_000  // statements, turns of loops and outputs of one rendering
	maxRange         = 10_000   // numbers in range()
	maxVariableBytes = 32 << 20 // of a text in a variable
	maxMacroDepth    = 100
	maxNesting       = 100 // of brackets in one expression
	maxTimes         = 100 // x * 100: the greatest number that may repeat a text
)
