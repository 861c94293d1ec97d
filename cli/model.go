package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/chat/builtin"
	"github.com/troupe-ml/troupe/tensorops/cpu"
)

// modelFlags adds the flags that choose a trained model and the device to run it on.
func modelFlags(cmd *cobra.Command, o *troupe.ModelOptions) {
	f := cmd.Flags()
	f.StringVar(&o.From, "from", "", "`folder` of a run, a checkpoint or a Hugging Face model, or a GGUF file; or give it as the argument DIR")
	f.BoolVar(&o.EMA, "ema", false, "use the moving averages of the weights, of a run with optimizer.ema")
	f.StringVar(&o.Adapter, "adapter", "", "PEFT `directory` with an adapter of the model (default: that of the run, if it trained one)")
	f.StringVar(&o.Device, "device", "cpu", "`device` to compute on: cpu, cuda, or one GPU by its number, such as cuda:1")
	f.IntVar(&o.Threads, "threads", 0, "`number` of CPU cores to use; 0: all")
	f.StringVar(&o.Kernels, "kernels", "auto", "CPU kernels to use: auto, or a `name` that engine version lists")
	f.StringVar(&o.DType, "dtype", "", "data `type` to compute in: float32 or bfloat16 (default: the run's)")
	must(cmd.MarkFlagRequired("from"))
	must(cmd.MarkFlagDirname("from"))
	must(cmd.MarkFlagDirname("adapter"))
	completeWords(cmd, "threads")
	completeWords(cmd, "dtype", "float32", "bfloat16")
	completeWords(cmd, "device", "cpu", "cuda")
	completeWords(cmd, "kernels", append([]string{"auto"}, cpu.Paths()...)...)
}

// takesModel takes the folder of a model as an argument in place of --from.
func takesModel(cmd *cobra.Command, args []string) error {
	given := cmd.Flags().Changed("from")
	switch {
	case len(args) == 0 && !given:
		return usagef("DIR is missing: %s; give the folder of a run, a checkpoint or a Hugging Face model", cmd.UseLine())
	case len(args) == 0:
		return nil
	case given:
		return usagef("unexpected argument %q: --from names the model already; %s", args[0], argumentHint(cmd, args[0]))
	case len(args) > 1:
		return usagef("unexpected argument %q: %s; %s", args[1], cmd.UseLine(), argumentHint(cmd, args[1]))
	}
	return cmd.Flags().Set("from", args[0])
}

// chatTemplateFlag adds the flag that chooses a chat template.
func chatTemplateFlag(cmd *cobra.Command, o *troupe.ModelOptions) {
	cmd.Flags().StringVar(&o.ChatTemplate, "chat-template", "",
		"`template` for conversations instead of the model's: "+strings.Join(builtin.Names(), ", ")+", or a Jinja file")
	must(cmd.RegisterFlagCompletionFunc("chat-template", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return builtin.Names(), cobra.ShellCompDirectiveDefault
	}))
}

func checkModelFlags(cmd *cobra.Command, o troupe.ModelOptions) error {
	kind, _ := config.SplitDevice(o.Device)
	switch {
	case o.Threads < 0:
		return usagef("--threads %d: give 1 or more, or 0 for all cores", o.Threads)
	case kind != "cpu" && kind != "cuda":
		return usagef("--device %q: give cpu, cuda, or one GPU by its number, such as cuda:1", o.Device)
	case o.DType != "" && o.DType != "float32" && o.DType != "bfloat16":
		return usagef("--dtype %q: give float32 or bfloat16", o.DType)
	case kind == "cuda":
		return idle(cmd, "with --device "+o.Device, "threads", "kernels")
	}
	return nil
}
