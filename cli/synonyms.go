package cli

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/base/words"
)

// otherCommands maps names of commands that other programs have to engine's own.
var otherCommands = map[string]string{
	"train": "engine run CONFIG", "fit": "engine run CONFIG", "start": "engine run CONFIG",
	"finetune": "engine init --from MODEL --data FILE, then engine run", "tune": "engine init --from MODEL --data FILE, then engine run",
	"new": "engine init", "create": "engine init",
	"chat": "engine generate --from DIR --chat", "sample": "engine generate --from DIR", "complete": "engine generate --from DIR",
	"infer": "engine generate --from DIR", "evaluate": "engine eval --from DIR", "test": "engine eval --from DIR",
	"convert":     "engine export --from DIR",
	"pull":        "model.from with a folder: hf download NAME --local-dir DIR fetches a model",
	"download":    "model.from with a folder: hf download NAME --local-dir DIR fetches a model",
	"checkpoints": "engine ckpt ls DIR", "ls": "engine ckpt ls DIR (checkpoints) or engine ps",
	"list":    "engine ps (runs) or engine ui DIR (folders of runs)",
	"runs":    "engine ps (runs) or engine ui DIR (folders of runs)",
	"compare": "engine diff A B", "kill": "engine stop RUN", "log": "engine logs RUN", "dashboard": "engine ui DIR",
	"info":     "engine version or engine doctor",
	"validate": "engine config check FILE",
}

// renamedFlags maps flags of earlier versions to their new names.
var renamedFlags = map[string]string{"group": "microbatch-group-size", "bound": "max-in-flight"}

// otherFlags maps flags that other programs have to engine's own. A command gets the hint if it has the flag. Names of keys are not
// here: config.Synonym knows them.
var otherFlags = map[string]string{
	"max-tokens": "tokens", "max-new-tokens": "tokens", "max-length": "tokens", "num-predict": "tokens", "n": "tokens", "length": "tokens",
	"temp": "temperature", "model": "from", "checkpoint": "from", "ckpt": "from", "dir": "from", "interactive": "chat", "i": "chat",
	"output": "to", "out": "to", "o": "to", "input": "data", "file": "data", "override": "set", "overwrite": "force", "silent": "quiet",
	"port":    "ui",
	"restart": "fresh", "dashboard": "ui", "now": "kill", "immediately": "kill",
}

// flagHint suggests what an unknown flag was meant to be. args is the whole command line, which has the flag's value.
func flagHint(cmd *cobra.Command, name string, args []string) string {
	has := func(flag string) bool { return cmd.Flags().Lookup(flag) != nil }
	if now := renamedFlags[name]; now != "" && has(now) {
		return ", its new name is --" + now
	}
	if use := otherFlags[name]; use != "" && has(use) {
		return ", use --" + use
	}
	if name == "resume" && cmd.Name() == "run" {
		return ": without it, engine run resumes from the last checkpoint"
	}
	value := valueOf(name, args)
	if takesFile := strings.Contains(cmd.Use, "CONFIG") || strings.Contains(cmd.Use, "FILE"); takesFile && (name == "config" || name == "c") {
		return fmt.Sprintf(": the config is an argument: %s %s", cmd.CommandPath(), cmp.Or(value, defaultConfig))
	}
	if key, note := config.Synonym(name); key != "" && has("set") {
		if note != "" {
			return fmt.Sprintf(", use --set %s=…: %s", key, note)
		}
		return ", use --set " + shellWord(key+"="+cmp.Or(value, "VALUE"))
	}
	return didYouMean(name, flagNames(cmd), "--")
}

// valueOf returns the value of a flag on a command line; "": it has none.
func valueOf(name string, args []string) string {
	for i, arg := range args {
		flag, value, inside := strings.Cut(arg, "=")
		switch {
		case flag != "--"+name && flag != "-"+name:
		case inside:
			return value
		case i+1 < len(args) && !strings.HasPrefix(args[i+1], "--"):
			return args[i+1]
		}
	}
	return ""
}

// flagError returns the function that explains an invalid flag on a command line.
func flagError(args []string) func(*cobra.Command, error) error {
	return func(cmd *cobra.Command, err error) error {
		// With a mistyped command, its flags look wrong too: report the command.
		if args := cmd.Flags().Args(); cmd.HasSubCommands() && len(args) > 0 {
			return unknownCommand(cmd, args[0])
		}
		if told := notANumber(err); told != nil {
			return fmt.Errorf("%w; see %s --help", told, cmd.CommandPath())
		}
		hint := ""
		var unknown interface{ GetSpecifiedName() string } // the flag library's error
		if errors.As(err, &unknown) && strings.HasPrefix(err.Error(), "unknown") {
			name := unknown.GetSpecifiedName()
			if name == "insecure" {
				return usagef("there is no --insecure: connections between processes are always encrypted. The coordinator makes the certificates itself, without set-up; without them any client that can connect could stop or forge a run. Remove the flag")
			}
			hint = flagHint(cmd, name, args)
		}
		return usagef("%v%s; see %s --help", err, hint, cmd.CommandPath())
	}
}

// notANumber explains a flag whose value is not a number; nil: err has another cause.
func notANumber(err error) error {
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) || !errors.Is(err, strconv.ErrSyntax) {
		return nil
	}
	var want string
	switch kind := invalid.GetFlag().Value.Type(); {
	case strings.HasPrefix(kind, "float"):
		want = "a number"
	case strings.HasPrefix(kind, "int"), strings.HasPrefix(kind, "uint"):
		want = "a whole number"
	default:
		return nil
	}
	return usagef("invalid argument %q for --%s: give %s", words.Cut(invalid.GetValue(), shownArg), invalid.GetFlag().Name, want)
}
