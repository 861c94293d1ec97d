package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const cliHead = `# Command line

<!-- make docs writes this page from the commands in cli/. Edit the texts there. -->

` + "`engine COMMAND --help`" + ` prints the help of a command, and ` + "`engine help TOPIC`" + ` a topic. This page has the same texts.

`

// TestDocs holds docs/cli.md against the commands. `make docs` writes it.
func TestDocs(t *testing.T) {
	const file = "../docs/cli.md"
	a := &app{out: &stream{w: io.Discard}, err: io.Discard, now: time.Now}
	got := cliDocs(a.newRoot())
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v; run make docs", err)
	}
	if got == string(want) {
		return
	}
	have, now := strings.Split(string(want), "\n"), strings.Split(got, "\n")
	for i := range min(len(have), len(now)) {
		if have[i] != now[i] {
			t.Fatalf("docs/cli.md differs from the commands; run make docs\nline %d has  %s\nand not     %s", i+1, have[i], now[i])
		}
	}
	t.Fatalf("docs/cli.md has %d lines, and the commands make %d; run make docs", len(have), len(now))
}

// cliDocs writes docs/cli.md: an index, a section for each command and each topic, and the exit codes with the topics.
func cliDocs(root *cobra.Command) string {
	var commands, topics []*cobra.Command
	var visit func(*cobra.Command)
	visit = func(c *cobra.Command) {
		switch {
		case c.Hidden:
		case c.IsAdditionalHelpTopicCommand():
			topics = append(topics, c)
		default:
			commands = append(commands, c)
			for _, sub := range c.Commands() {
				visit(sub)
			}
		}
	}
	visit(root)

	var b strings.Builder
	b.WriteString(cliHead)
	b.WriteString("| Command | Purpose |\n|---|---|\n")
	for _, c := range commands[1:] {
		fmt.Fprintf(&b, "| [%s](#%s) | %s |\n", c.CommandPath(), anchor(c.CommandPath()), cell(c.Short))
	}
	for _, c := range topics {
		fmt.Fprintf(&b, "| [engine help %s](#%s) | %s |\n", c.Name(), anchor("engine help "+c.Name()), cell(c.Short))
	}
	for _, c := range commands {
		fmt.Fprintf(&b, "\n## %s\n\n", c.CommandPath())
		writeCommand(&b, c)
	}
	for _, c := range topics {
		fmt.Fprintf(&b, "\n## engine help %s\n\n", c.Name())
		writeProse(&b, c.Long)
	}
	return b.String()
}

func writeCommand(b *strings.Builder, c *cobra.Command) {
	if c.Long == "" {
		writeProse(b, c.Short+".")
	} else {
		writeProse(b, c.Long)
	}
	if c.HasSubCommands() {
		var names []string
		for _, sub := range c.Commands() {
			if !sub.Hidden && !sub.IsAdditionalHelpTopicCommand() {
				names = append(names, fmt.Sprintf("[%s](#%s)", sub.Name(), anchor(sub.CommandPath())))
			}
		}
		fmt.Fprintf(b, "\nCommands: %s\n", strings.Join(names, ", "))
	} else {
		fmt.Fprintf(b, "\n```text\n%s\n```\n", c.UseLine())
	}
	if c.Example != "" {
		fmt.Fprintf(b, "\nExamples:\n\n```sh norun\n%s\n```\n", dedent(c.Example))
	}
	var rows strings.Builder
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		name, usage := pflag.UnquoteUsage(f)
		flag := "--" + f.Name
		if f.Shorthand != "" {
			flag = "-" + f.Shorthand + ", " + flag
		}
		switch {
		case name == "":
		case f.NoOptDefVal != "":
			flag += "[=" + name + "]"
		default:
			flag += " " + name
		}
		fmt.Fprintf(&rows, "| `%s` | %s | %s |\n", flag, flagDefault(f), cell(usage))
	})
	if rows.Len() > 0 {
		fmt.Fprintf(b, "\n| Flag | Default | Meaning |\n|---|---|---|\n%s", rows.String())
	}
}

// flagDefault is a flag's default; it is empty if that is the zero value of its type.
func flagDefault(f *pflag.Flag) string {
	switch f.DefValue {
	case "", "0", "false", "[]", "0s":
		return ""
	}
	return "`" + f.DefValue + "`"
}

// writeProse writes a help text as Markdown: paragraphs as they are, and those with indented lines as blocks.
func writeProse(b *strings.Builder, text string) {
	for i, paragraph := range strings.Split(strings.Trim(text, "\n"), "\n\n") {
		if i > 0 {
			b.WriteString("\n")
		}
		if strings.HasPrefix(paragraph, " ") || strings.Contains(paragraph, "\n ") {
			fmt.Fprintf(b, "```text\n%s\n```\n", dedent(paragraph))
			continue
		}
		b.WriteString(escapeMarkdown(paragraph) + "\n")
	}
}

// dedent removes the indent that all lines have.
func dedent(text string) string {
	lines := strings.Split(strings.Trim(text, "\n"), "\n")
	least := -1
	for _, line := range lines {
		if n := len(line) - len(strings.TrimLeft(line, " ")); strings.TrimSpace(line) != "" && (least < 0 || n < least) {
			least = n
		}
	}
	for i, line := range lines {
		lines[i] = line[min(max(least, 0), len(line)):]
	}
	return strings.Join(lines, "\n")
}

func escapeMarkdown(s string) string {
	return strings.NewReplacer("<", `\<`, "*", `\*`, "[", `\[`).Replace(s)
}

// cell writes a text for a table.
func cell(s string) string {
	return strings.ReplaceAll(strings.ReplaceAll(escapeMarkdown(s), "\n", " "), "|", `\|`)
}

// anchor is the anchor that a heading gets.
func anchor(heading string) string { return strings.ReplaceAll(strings.ToLower(heading), " ", "-") }
