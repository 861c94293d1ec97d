package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/internal/chat"
	"github.com/troupe-ml/troupe/internal/show/term"
)

// talking are the flags of a conversation.
type talking struct {
	chat     bool
	system   string
	messages string // a file
	tools    string // a file
	asJSON   bool
	prompts  string // a file
	batch    int    // prompts of it at once
}

func (a *app) newGenerate() *cobra.Command {
	var (
		o troupe.GenerateOptions
		t talking
	)
	cmd := &cobra.Command{
		Use:   "generate [DIR]",
		Short: "Generate text with a trained model, or chat with it",
		Long: `Generate text with a trained model: print the prompt and then each token as it is
generated. The text ends where the model ends it, before a --stop text, or after --tokens
tokens. The same options give the same text. On a terminal, control characters are shown
as �.

Chat. With --chat the prompt is a user's message, which the model's chat template formats;
only the answer is printed. Without --prompt, every line of standard input is a message, and
all of them are one conversation. On a terminal, /help lists commands, and /exit or Ctrl-D
ends it. --chat-template chooses a template for a model without one. --messages answers a conversation
from a file: a JSON array such as [{"role": "user", "content": "Hello"}]. --tools
describes the functions that an answer may call, as a JSON array.

Context. The model sees up to --context tokens. The default is its number of positions, even
if it was trained with a shorter model.context. Of a longer prompt it sees only the end. When
the context is full, it continues with the last half of it. Warnings report both cases; the
JSON has them as prompt_cut and window_moves.

Defaults. If the model has a generation_config.json, its max_new_tokens, temperature, top_k,
top_p, min_p, repetition_penalty and stop_strings are the defaults of the flags, and
do_sample = false means --temperature 0. A warning names its keys that have no effect.

Many prompts. --prompts continues the prompts of a file, --batch at once, and prints one JSON
line for each, in the order of the file. Each text is the one that --prompt gives. Empty lines
are skipped. In a .jsonl file each line has "prompt" or "messages", and may have "tools" and
"seed". With --chat each prompt is the first message of a conversation.

See also: engine serve (answer over HTTP), engine eval (loss), engine export (use the model in other programs).`,
		Example: `  engine generate --from runs/run --prompt "func main() {"
  engine generate --from runs/run --tokens 1000 --temperature 1 --top-k 40 --seed 7 > text
  engine generate --from DIR --chat --prompt "Why is the sky blue?" --top-p 0.9
  engine generate --from DIR --prompts prompts.txt --json > texts.jsonl`,
		Args:              takesModel,
		ValidArgsFunction: completeFolders,
		RunE: a.work(func(cmd *cobra.Command, _ []string) error {
			if err := checkGenerateFlags(cmd, o); err != nil {
				return err
			}
			if err := t.check(cmd); err != nil {
				return err
			}
			o.Warn = a.warn
			given := cmd.Flags().Changed
			switch {
			case t.prompts != "":
				return a.generateAll(cmd.Context(), o, t, given)
			case t.chat || t.messages != "":
				return a.talk(cmd.Context(), o, t, given)
			}
			return a.continueText(cmd.Context(), o, t.asJSON, given)
		}),
	}
	modelFlags(cmd, &o.ModelOptions)
	f := cmd.Flags()
	f.StringVar(&o.Prompt, "prompt", "", "`text` to continue (default: a line break, which is not printed)")
	f.BoolVar(&t.chat, "chat", false, "answer the prompt, or each line of standard input, with the model's chat template")
	chatTemplateFlag(cmd, &o.ModelOptions)
	f.StringVar(&t.system, "system", "", "with --chat: `text` of the system message at the start")
	f.StringVar(&t.messages, "messages", "", "`file` with a conversation to answer, as JSON; - is standard input")
	f.StringVar(&t.tools, "tools", "", "with --chat or --messages: `file` with the functions that an answer may call, as JSON")
	f.IntVar(&o.Tokens, "tokens", 200, "most `tokens` to generate")
	f.Float64Var(&o.Temperature, "temperature", defaultTemperature,
		"randomness, a `number` from 0: larger is more random, 0 always takes the most likely token")
	f.IntVar(&o.TopK, "top-k", 0, "sample from the `k` most likely tokens; 0: from all")
	f.Float64Var(&o.TopP, "top-p", 0,
		"sample from the most likely tokens that together have this `share` of the probability, 0 to 1; 0: from all")
	f.Float64Var(&o.MinP, "min-p", 0, "skip tokens less likely than this `share` of the most likely token's probability, 0 to 1")
	f.Float64Var(&o.RepetitionPenalty, "repetition-penalty", 0,
		"`number` that divides the logits of tokens already in the text; 0 or 1: no penalty")
	f.StringArrayVar(&o.Stop, "stop", nil, "stop before this `text`; repeatable")
	f.BoolVar(&o.IgnoreEnd, "ignore-end", false, "continue after the model's end-of-text token")
	f.IntVar(&o.Context, "context", 0, "most `tokens` that the model sees, prompt included (default: all its positions)")
	f.BoolVar(&t.asJSON, "json", false, "print one JSON object per text or answer, when it is complete")
	f.StringVar(&t.prompts, "prompts", "",
		"with --json: `file` with a prompt in each line, or JSON lines if its name ends in .jsonl; - is standard input")
	f.IntVar(&t.batch, "batch", usualBatch, "with --prompts: most `prompts` to continue at once")
	f.Uint64Var(&o.Seed, "seed", 1, "`seed` of the random numbers")
	completeWords(cmd, "context")
	return cmd
}

const defaultTemperature = 0.8

// checkGenerateFlags rejects flags that contradict each other. The library checks the ranges of numbers.
func checkGenerateFlags(cmd *cobra.Command, o troupe.GenerateOptions) error {
	if err := checkModelFlags(cmd, o.ModelOptions); err != nil {
		return err
	}
	switch {
	case o.Temperature == 0:
		return idle(cmd, "with --temperature 0, which always takes the most likely token", "top-k", "top-p", "min-p", "seed")
	case o.TopK == 1:
		return idle(cmd, "with --top-k 1, which always takes the most likely token", "temperature", "top-p", "min-p", "seed")
	}
	return nil
}

func (t talking) check(cmd *cobra.Command) error {
	switch {
	case t.prompts == "":
		if err := idle(cmd, "without --prompts", "batch"); err != nil {
			return err
		}
	case !t.asJSON:
		return usagef("--prompts needs --json: each text is printed as a line of JSON")
	case cmd.Flags().Changed("prompt") || t.messages != "":
		return usagef("--prompts can't be combined with --prompt or --messages; give one of them")
	case t.batch < 1:
		return usagef("--batch %d: give 1 or more", t.batch)
	}
	switch {
	case t.messages != "" && cmd.Flags().Changed("prompt"):
		return usagef("--prompt and --messages can't be combined; give one of them")
	case t.messages != "":
		return idle(cmd, "with --messages, which contains the whole conversation", "chat", "system")
	case !t.chat:
		return idle(cmd, "without --chat", "system", "tools", "chat-template")
	}
	return nil
}

// warn prints a warning to the error stream.
func (a *app) warn(text string) { say(a.err, "warning: %s", text) }

// generated is a generated text in JSON output.
type generated struct {
	Text string `json:"text"` // without the prompt
	troupe.GenerateReport
}

// openGenerator opens a model, and sets the options that its generation_config.json has and no flag.
func (a *app) openGenerator(o *troupe.GenerateOptions, given func(flag string) bool) (*troupe.Generator, error) {
	g, err := troupe.OpenGenerator(o.ModelOptions)
	if err != nil {
		return nil, err
	}
	d, err := g.Defaults()
	if err != nil {
		return nil, errors.Join(err, g.Close())
	}
	a.applyDefaults(d, &o.TextOptions, given)
	return g, nil
}

func (a *app) applyDefaults(d troupe.GenerationDefaults, o *troupe.TextOptions, given func(flag string) bool) {
	d.Apply(o, given)
	if d.Warning != "" {
		a.warn(d.Warning)
	}
}

// continueText continues a prompt.
func (a *app) continueText(ctx context.Context, o troupe.GenerateOptions, asJSON bool, given func(flag string) bool) (err error) {
	g, err := a.openGenerator(&o, given)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	if asJSON {
		var text strings.Builder
		o.Report = &troupe.GenerateReport{}
		if err := g.Generate(ctx, o.TextOptions, func(b []byte) error { text.Write(b); return nil }); err != nil {
			return err
		}
		return a.json(generated{text.String(), *o.Report})
	}
	err = g.Generate(ctx, o.TextOptions, after(o.Prompt, a.programs()))
	if err == nil && a.terminal {
		a.printf("\n") // a pipe gets the text alone
	}
	return err
}

// generate writes a prompt and its continuation.
func generate(ctx context.Context, o troupe.GenerateOptions, w io.Writer) error {
	return troupe.Generate(ctx, o, after(o.Prompt, w))
}

// after writes a prompt before the first piece of its continuation: the model may reject the prompt.
func after(prompt string, w io.Writer) func(text []byte) error {
	return func(text []byte) error {
		_, err := io.WriteString(w, prompt+string(text))
		prompt = ""
		return err
	}
}

// maxSaid is the most bytes of one message, and of a file with a conversation.
const maxSaid = 1 << 20

// talk answers a conversation, a prompt, or the input line by line.
func (a *app) talk(ctx context.Context, o troupe.GenerateOptions, t talking, given func(flag string) bool) (err error) {
	said, in, prompted := []chat.Message{}, bufio.NewReader(os.Stdin), given("prompt")
	switch {
	case t.messages != "":
		if said, err = readMessages(t.messages); err != nil {
			return err
		}
	default:
		said = append(said, t.opening()...)
	}
	if t.tools != "" {
		if o.Tools, err = readTools(t.tools); err != nil {
			return err
		}
	}
	if prompted {
		said = append(said, chat.Message{Role: "user", Content: o.Prompt})
	}
	g, err := a.openGenerator(&o, given)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	o.Prompt = ""
	if !prompted && t.messages == "" && !t.asJSON && a.terminal && term.IsTerminal(os.Stdin) {
		return (&conversation{app: a, model: g, o: o.TextOptions, in: in, said: said}).converse(ctx)
	}
	for {
		if once := prompted || t.messages != ""; !once {
			if a.terminal {
				a.printf("> ")
			}
			line, err := readLine(in)
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			if line == "" {
				continue
			}
			said = append(said, chat.Message{Role: "user", Content: line})
		}
		o.Messages, o.Report = said, &troupe.GenerateReport{}
		var answer strings.Builder
		err := g.Generate(ctx, o.TextOptions, func(text []byte) (err error) {
			if answer.Write(text); !t.asJSON {
				_, err = a.programs().Write(text)
			}
			return err
		})
		if err == nil && t.asJSON {
			err = a.json(generated{answer.String(), *o.Report})
		}
		if err != nil {
			return err
		}
		if !t.asJSON {
			a.printf("\n")
		}
		if prompted || t.messages != "" {
			return nil
		}
		said = append(said, chat.Message{Role: "assistant", Content: answer.String()})
	}
}

// readLine reads a line of the input, without the line break. The last line may lack one.
func readLine(in *bufio.Reader) (string, error) {
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > maxSaid:
			return "", usagef("a line of standard input is longer than the limit of %d bytes", maxSaid)
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(line) == 0:
			return "", io.EOF
		case err != nil && !errors.Is(err, io.EOF):
			return "", err
		default:
			return strings.TrimRight(string(line), "\r\n"), nil
		}
	}
}

// readMessages reads a conversation.
func readMessages(name string) (_ []chat.Message, err error) {
	in := os.Stdin
	if name != "-" {
		if in, err = os.Open(name); err != nil {
			return nil, err
		}
		defer func() { _ = in.Close() }() // nothing was written
	}
	b, err := readSaid(in, "--messages "+name)
	if err != nil {
		return nil, err
	}
	messages, err := chat.ParseMessages(b)
	if err != nil {
		return nil, usagef("--messages %s: %v", name, err)
	}
	return messages, nil
}

// readTools reads functions that an answer may call.
func readTools(name string) (json.RawMessage, error) {
	in, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = in.Close() }() // nothing was written
	b, err := readSaid(in, "--tools "+name)
	if err != nil {
		return nil, err
	}
	var list []json.RawMessage
	if err := json.Unmarshal(b, &list); err != nil {
		return nil, usagef("--tools %s: not a JSON array of functions: %v", name, err)
	}
	if list == nil {
		return nil, usagef("--tools %s: null instead of a JSON array of functions", name)
	}
	return b, nil
}

// readSaid reads a file up to its limit.
func readSaid(in io.Reader, name string) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(in, maxSaid+1))
	if err == nil && len(b) > maxSaid {
		err = usagef("%s: larger than the limit of %d bytes", name, maxSaid)
	}
	return b, err
}
