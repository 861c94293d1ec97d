// Package chat renders conversations by the chat template of a model: a Jinja template in
// chat_template.jinja or tokenizer_config.json, as transformers' apply_chat_template does.
//
// A template comes with a model, from strangers. It sees the messages and the names of special
// tokens, no files and no other templates, and it ends: what it may compute and write is
// limited. github.com/nikolalohinski/gonja parses a template and runs its statements; what expressions mean is
// computed here as Python does (tree.go): operators, members, filters, tests, methods and printing. What is not here is
// refused by its name and the template's line: the filters filesizeformat, groupby, pprint, random, slice, striptags,
// truncate, urlencode, urlize, wordwrap and xmlattr, the tests escaped, filter and test, cycler, joiner and lipsum, methods
// that nobody calls, printing generators, and whole numbers beyond 64 bits. Texts know no Markup: what is escaped
// is a text like any other.
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
