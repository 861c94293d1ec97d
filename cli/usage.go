package cli

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/troupe-ml/troupe/config"
)

// usageError reports a command line with a mistake in it.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// unwanted rejects flags that would be ignored without a word.
func unwanted(cmd *cobra.Command, names []string, why string) error {
	for _, name := range names {
		if cmd.Flags().Changed(name) {
			return usagef("--%s "+why, name)
		}
	}
	return nil
}

// anyChanged reports whether the command line has one of the flags.
func anyChanged(cmd *cobra.Command, names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return cmd.Flags().Changed(name) })
}

// idle rejects flags that have no effect together with others, or without them.
func idle(cmd *cobra.Command, beside string, names ...string) error {
	return unwanted(cmd, names, "has no effect "+beside+"; remove it")
}

// asGroup makes cmd a command that only has subcommands. Without a subcommand it shows its help; for a
// mistyped one it suggests a name.
func asGroup(cmd *cobra.Command) {
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return unknownCommand(cmd, args[0])
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cmd.SetOut(cmd.ErrOrStderr())
		return errors.Join(cmd.Help(), usagef("the command is missing: choose one from the list"))
	}
}

func unknownCommand(group *cobra.Command, name string) error {
	var names []string
	for _, c := range group.Commands() {
		names = append(names, c.Name())
	}
	hint := didYouMean(name, names, "")
	if use := otherCommands[name]; use != "" && !group.HasParent() {
		hint = ", use " + use
	}
	return usagef("unknown command %q for %q%s; see %s --help", name, group.CommandPath(), hint, group.CommandPath())
}

// takes checks the number of arguments. The names are those in the usage line.
func takes(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return usagef("%s is missing: %s", names[len(args)], cmd.UseLine())
		case len(args) > len(names):
			return usagef("unexpected argument %q: %s; %s", args[len(names)], cmd.UseLine(), argumentHint(cmd, args[len(names)]))
		}
		return nil
	}
}

// requires checks the arguments, and then that the command line has a flag. hint says what to give.
func requires(args cobra.PositionalArgs, flag, hint string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, given []string) error {
		if err := args(cmd, given); err != nil {
			return err
		}
		if !cmd.Flags().Changed(flag) {
			return usagef("--%s is missing: %s", flag, hint)
		}
		return nil
	}
}

// defaultConfig is the config file of a command line without one.
const defaultConfig = "config.toml"

// takesConfig checks for at most one argument, a config file. There need be none if the working directory has a config.toml.
func takesConfig(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) > 1:
		return usagef("unexpected argument %q: %s; %s", args[1], cmd.UseLine(), argumentHint(cmd, args[1]))
	case len(args) == 0 && !exists(defaultConfig):
		return usagef("CONFIG is missing, and there is no %s here: %s; engine init --data FILE writes a config", defaultConfig, cmd.UseLine())
	}
	return nil
}

// configArg returns the config file of a command line.
func configArg(args []string) string {
	if len(args) > 0 {
		return args[0]
	}
	return defaultConfig
}

// argumentHint guesses what an argument too many was meant to be.
func argumentHint(cmd *cobra.Command, arg string) string {
	key, value, isKey := strings.Cut(arg, "=")
	switch {
	case isKey && cmd.Flags().Lookup("set") != nil:
		if known, note := config.Synonym(key); known != "" && note == "" {
			arg = known + "=" + value
		}
		return "to override a key of the config, write --set " + shellWord(arg)
	case cmd.Flags().Lookup("from") != nil && cmd.Flags().Lookup("prompt") != nil:
		return "the text to continue is --prompt, and --from names the model"
	}
	return "quote arguments that contain spaces or wildcards"
}

// takesUpTo checks the number of arguments where the last ones are optional.
func takesUpTo(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > len(names) {
			return usagef("unexpected argument %q: %s", args[len(names)], cmd.UseLine())
		}
		return nil
	}
}

var flagName = regexp.MustCompile(`(?m)^.{6}--([a-z-]+)`)

// flagNames returns the names of a command's flags.
func flagNames(cmd *cobra.Command) []string {
	var names []string
	for _, m := range flagName.FindAllStringSubmatch(cmd.Flags().FlagUsages(), -1) {
		names = append(names, m[1])
	}
	return names
}

// didYouMean suggests the names that are similar to a word. Cobra suggests only commands, so each name
// becomes one.
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

// helpCommand is cobra's, except that an unknown topic is an error.
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

// must panics on an error that only a mistake in this program's own flags can cause.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// completeFiles completes an argument with the files of an extension.
func completeFiles(ext string) cobra.CompletionFunc {
	return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return []string{ext}, cobra.ShellCompDirectiveFilterFileExt
	}
}

// completeFolders completes an argument with folders.
func completeFolders(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveFilterDirs
}

// helpColumns is the width that flags' descriptions are wrapped at.
const helpColumns = 100

// usageTemplate changes cobra's template of help texts: it wraps the descriptions of flags, and prints the command
// that shows a topic.
func usageTemplate(cobras string) string {
	return strings.NewReplacer("Flags.FlagUsages ", fmt.Sprintf("Flags.FlagUsagesWrapped %d ", helpColumns),
		"{{rpad .CommandPath .CommandPathPadding}}", "{{.Root.Name}} help {{rpad .Name .NamePadding}}").Replace(cobras)
}

// completeWords completes a flag with one of the words.
func completeWords(cmd *cobra.Command, flag string, words ...string) {
	must(cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)))
}
