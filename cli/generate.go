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
)

// talking says that a command is a conversation.
type talking struct {
	chat     bool
	system   string
	messages string // a file
	tools    string // a file
	asJSON   bool
}

func (a *app) newGenerate() *cobra.Command {
	var (
		o troupe.GenerateOptions
		t talking
	)
	cmd := &cobra.Command{
		Use:   "generate --from DIR",
		Short: "Let a trained model continue a text, or answer",
		Long: `Let a trained model continue a text, and write it as it comes, the prompt first. The
text ends where the model ends it, before a --stop text, or after --tokens.
The same options give the same text. On a terminal, characters that could steer
it are shown as � instead.

The model sees as many tokens as it has positions, or --context, also where a run
trained it with a shorter model.context. Of a longer prompt it sees the end, and
when the context is full it continues from its last half: both are reported as warnings,
and with --json as prompt_cut and window_moves.

With --chat the prompt is what a user says, and the model's chat template makes
the text of it that the model continues: only the answer is written. Without --prompt each line
of the standard input is answered in turn, all in one conversation. --messages FILE answers a
conversation: a JSON array such as [{"role": "user", "content": "Hello"}]. --tools FILE gives
the template functions that an answer may call: a JSON array of their descriptions.`,
		Example: `  engine generate --from runs/run --prompt "func main() {"
  engine generate --from runs/run --tokens 1000 --temperature 1 --top-k 40 --seed 7 > text
  engine generate --from DIR --chat --prompt "Why is the sky blue?" --top-p 0.9`,
		Args: takes(),
		RunE: a.work(func(cmd *cobra.Command, _ []string) error {
			if err := checkGenerateFlags(cmd, o); err != nil {
				return err
			}
			if err := t.check(cmd); err != nil {
				return err
			}
			o.Warn = a.warn
			if t.chat || t.messages != "" {
				return a.talk(cmd.Context(), o, t, cmd.Flags().Changed("prompt"))
			}
			return a.continueText(cmd.Context(), o, t.asJSON)
		}),
	}
	modelFlags(cmd, &o.ModelOptions)
	f := cmd.Flags()
	f.StringVar(&o.Prompt, "prompt", "", "`text` to continue (default: a line break, which is not shown)")
	f.BoolVar(&t.chat, "chat", false, "answer the prompt, or each line of the input, by the model's chat template")
	f.StringVar(&t.system, "system", "", "`text` of a system message that a chat begins with")
	f.StringVar(&t.messages, "messages", "", "`file` with a conversation to answer, as JSON; - is the input")
	f.StringVar(&t.tools, "tools", "", "`file` with functions that an answer may call, for the chat template, as JSON")
	f.IntVar(&o.Tokens, "tokens", 200, "largest `number` of tokens to write")
	f.Float64Var(&o.Temperature, "temperature", defaultTemperature,
		"`number`: the larger, the more random; 0 always takes the most likely token")
	f.IntVar(&o.TopK, "top-k", 0, "choose among the `k` most likely tokens; 0: among all")
	f.Float64Var(&o.TopP, "top-p", 0, "choose among the most likely tokens that have this `share` of the probability together; 0: among all")
	f.Float64Var(&o.MinP, "min-p", 0, "leave out tokens less likely than this `share` of the most likely one's probability")
	f.Float64Var(&o.RepetitionPenalty, "repetition-penalty", 0,
		"`number` that logits of tokens already in the text are divided by; 0 or 1: none")
	f.StringArrayVar(&o.Stop, "stop", nil, "`text` to end before; repeatable")
	f.BoolVar(&o.IgnoreEnd, "ignore-end", false, "go on where the model ends its text")
	f.IntVar(&o.Context, "context", 0, "`tokens` that the model sees at most, the prompt's among them (default: all its positions)")
	f.BoolVar(&t.asJSON, "json", false, "print JSON: a line for each answer, when it is complete")
	f.Uint64Var(&o.Seed, "seed", 1, "`seed` of the random choices")
	completeWords(cmd, "context")
	return cmd
}

const defaultTemperature = 0.8

// checkGenerateFlags leaves numbers out of their range to the library.
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
	case t.messages != "" && cmd.Flags().Changed("prompt"):
		return usagef("--prompt and --messages: give one of them")
	case t.messages != "":
		return idle(cmd, "with --messages, which has the whole conversation", "chat", "system")
	case !t.chat:
		return idle(cmd, "without --chat", "system", "tools")
	}
	return nil
}

// warn shows a warning of a command that has no other place for it.
func (a *app) warn(text string) { say(a.err, "warning: %s", text) }

// generated is a text with what the model saw of it.
type generated struct {
	Text string `json:"text"` // without the prompt
	troupe.GenerateReport
}

// continueText continues a prompt.
func (a *app) continueText(ctx context.Context, o troupe.GenerateOptions, asJSON bool) error {
	if asJSON {
		var text strings.Builder
		o.Report = &troupe.GenerateReport{}
		if err := troupe.Generate(ctx, o, func(b []byte) error { text.Write(b); return nil }); err != nil {
			return err
		}
		return a.json(generated{text.String(), *o.Report})
	}
	if err := generate(ctx, o, a.programs()); err != nil {
		return err
	}
	if a.terminal {
		a.printf("\n") // a pipe gets the text alone
	}
	return nil
}

// generate writes a prompt and what the model makes of it.
func generate(ctx context.Context, o troupe.GenerateOptions, w io.Writer) error {
	unsaid := o.Prompt // until the model has shown that it knows it
	return troupe.Generate(ctx, o, func(text []byte) error {
		_, err := io.WriteString(w, unsaid+string(text))
		unsaid = ""
		return err
	})
}

// maxSaid bounds what is read as one message, or as a conversation.
const maxSaid = 1 << 20

// talk answers a conversation, a prompt, or the input line by line.
func (a *app) talk(ctx context.Context, o troupe.GenerateOptions, t talking, prompted bool) (err error) {
	said, in := []chat.Message{}, bufio.NewReader(os.Stdin)
	switch {
	case t.messages != "":
		if said, err = readMessages(t.messages); err != nil {
			return err
		}
	case t.system != "":
		said = append(said, chat.Message{Role: "system", Content: t.system})
	}
	if t.tools != "" {
		if o.Tools, err = readTools(t.tools); err != nil {
			return err
		}
	}
	if prompted {
		said = append(said, chat.Message{Role: "user", Content: o.Prompt})
	}
	g, err := troupe.OpenGenerator(o.ModelOptions)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	o.ModelOptions, o.Prompt = troupe.ModelOptions{}, ""
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
		err := g.Generate(ctx, o, func(text []byte) (err error) {
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

// readLine reads a line of the input, without its end. The last one need not have an end.
func readLine(in *bufio.Reader) (string, error) {
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > maxSaid:
			return "", usagef("a line of the input has more than %d bytes", maxSaid)
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
		return nil, usagef("--tools %s must be a JSON array of functions: %v", name, err)
	}
	if list == nil {
		return nil, usagef("--tools %s is null, it must be a JSON array of functions", name)
	}
	return b, nil
}

// readSaid reads a file up to its limit.
func readSaid(in io.Reader, name string) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(in, maxSaid+1))
	if err == nil && len(b) > maxSaid {
		err = usagef("%s has more than %d bytes", name, maxSaid)
	}
	return b, err
}
