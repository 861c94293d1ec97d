package cli

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
)

// usageError is a command line that is not understood.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// unwanted refuses flags that would silently mean nothing.
func unwanted(cmd *cobra.Command, names []string, why string) error {
	for _, name := range names {
		if cmd.Flags().Changed(name) {
			return usagef("--%s: "+why, name)
		}
	}
	return nil
}

// idle refuses flags that have no effect beside others.
func idle(cmd *cobra.Command, beside string, names ...string) error {
	return unwanted(cmd, names, "it has no effect "+beside+"; leave it out")
}

// asGroup makes a command that does nothing but have subcommands: without one it
// shows its help, a mistyped one gives a suggestion.
func asGroup(cmd *cobra.Command) {
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return unknownCommand(cmd, args[0])
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cmd.SetOut(cmd.ErrOrStderr())
		return errors.Join(cmd.Help(), usagef("name a command"))
	}
}

func unknownCommand(group *cobra.Command, name string) error {
	var names []string
	for _, c := range group.Commands() {
		names = append(names, c.Name())
	}
	return usagef("unknown command %q for %q%s; see %s --help", name, group.CommandPath(), didYouMean(name, names, ""), group.CommandPath())
}

// takes checks the number of arguments; the names are those of the usage line.
func takes(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return usagef("%s is missing: %s", names[len(args)], cmd.UseLine())
		case len(args) > len(names):
			return usagef("unexpected argument %q: %s; quote what the shell should leave alone", args[len(names)], cmd.UseLine())
		}
		return nil
	}
}

// takesUpTo checks the number of arguments where the last ones may be left out.
func takesUpTo(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > len(names) {
			return usagef("unexpected argument %q: %s", args[len(names)], cmd.UseLine())
		}
		return nil
	}
}

// renamedFlags are the flags of earlier versions under another name.
var renamedFlags = map[string]string{"group": "microbatch-group-size", "bound": "max-in-flight"}

// flagError explains a flag that is not understood.
func flagError(cmd *cobra.Command, err error) error {
	// A mistyped command's flags look wrong, but are not what is.
	if args := cmd.Flags().Args(); cmd.HasSubCommands() && len(args) > 0 {
		return unknownCommand(cmd, args[0])
	}
	hint := ""
	var unknown interface{ GetSpecifiedName() string } // the flag library's error
	if errors.As(err, &unknown) && strings.HasPrefix(err.Error(), "unknown flag") {
		hint = didYouMean(unknown.GetSpecifiedName(), flagNames(cmd), "--")
		if now := renamedFlags[unknown.GetSpecifiedName()]; now != "" && cmd.Flags().Lookup(now) != nil {
			hint = ", its new name is --" + now
		}
		if unknown.GetSpecifiedName() == "insecure" {
			return usagef("there is no --insecure: between processes everything is encrypted, by certificates that the coordinator makes itself and that need no set-up, since whoever could talk to them unknown could stop and forge all that they do; leave it out")
		}
	}
	return usagef("%v%s; see %s --help", err, hint, cmd.CommandPath())
}

var flagName = regexp.MustCompile(`(?m)^.{6}--([a-z-]+)`)

// flagNames lists a command's flags.
func flagNames(cmd *cobra.Command) []string {
	var names []string
	for _, m := range flagName.FindAllStringSubmatch(cmd.Flags().FlagUsages(), -1) {
		names = append(names, m[1])
	}
	return names
}

// didYouMean names those of the names that are near a word. It asks cobra, which
// suggests commands, so each name is made one.
func didYouMean(word string, names []string, prefix string) string {
	group := &cobra.Command{SuggestionsMinimumDistance: 2}
	for _, name := range names {
		group.AddCommand(&cobra.Command{Use: name, Run: func(*cobra.Command, []string) {}})
	}
	near := group.SuggestionsFor(word)
	if len(near) == 0 {
		return ""
	}
	return ", did you mean " + prefix + strings.Join(near, " or "+prefix) + "?"
}

// helpCommand is cobra's, but an unknown topic is an error.
func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [command or topic]",
		Short: "Show help for a command or a topic",
		RunE: func(cmd *cobra.Command, args []string) error {
			about, rest, err := cmd.Root().Find(args)
			if err != nil {
				return err
			}
			if len(rest) > 0 && about.HasSubCommands() {
				return unknownCommand(about, rest[0])
			}
			about.InitDefaultHelpFlag()
			return about.Help()
		},
	}
}

// must is for what can fail only by a mistake in this program's own flags.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// completeFiles completes an argument with files of an extension.
func completeFiles(ext string) cobra.CompletionFunc {
	return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return []string{ext}, cobra.ShellCompDirectiveFilterFileExt
	}
}

// completeFolders completes an argument with folders.
func completeFolders(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveFilterDirs
}

// completeWords completes a flag with one of some words.
func completeWords(cmd *cobra.Command, flag string, words ...string) {
	must(cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)))
}
