package cli

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/troupe-ml/troupe/cluster"
)

// tokenFlags say where tokens are: in the coordinator's folder, or with the coordinator.
type tokenFlags struct {
	clientFlags
}

func (o *tokenFlags) set(cmd *cobra.Command) {
	o.clientFlags.set(cmd)
	cmd.Flags().Lookup("cluster").Usage = "ask the coordinator at an `address`, which must have been started with --remote-tokens (default: work on --dir)"
}

// authority is whoever has the tokens.
type authority interface {
	newToken(cmd *cobra.Command, role cluster.Role, ttl time.Duration) (cluster.Token, error)
	list(cmd *cobra.Command) ([]cluster.TokenInfo, error)
	revoke(cmd *cobra.Command, id string) error
	names(cmd *cobra.Command) ([]cluster.NameInfo, error)
	release(cmd *cobra.Command, name string) error
}

type localTokens struct{ *cluster.Tokens }

func (t localTokens) newToken(_ *cobra.Command, role cluster.Role, ttl time.Duration) (cluster.Token, error) {
	return t.NewToken(role, ttl)
}
func (t localTokens) list(*cobra.Command) ([]cluster.TokenInfo, error) { return t.List(), nil }
func (t localTokens) revoke(_ *cobra.Command, id string) error         { return t.Revoke(id) }

func (t localTokens) names(*cobra.Command) ([]cluster.NameInfo, error) { return t.Names(), nil }
func (t localTokens) release(_ *cobra.Command, name string) error      { return t.Release(name) }

type remoteTokens struct{ *cluster.Client }

func (t remoteTokens) newToken(cmd *cobra.Command, role cluster.Role, ttl time.Duration) (cluster.Token, error) {
	return t.NewToken(cmd.Context(), role, ttl)
}
func (t remoteTokens) list(cmd *cobra.Command) ([]cluster.TokenInfo, error) {
	return t.Tokens(cmd.Context())
}
func (t remoteTokens) revoke(cmd *cobra.Command, id string) error { return t.Revoke(cmd.Context(), id) }

func (t remoteTokens) names(cmd *cobra.Command) ([]cluster.NameInfo, error) {
	return t.Names(cmd.Context())
}
func (t remoteTokens) release(cmd *cobra.Command, name string) error {
	return t.Release(cmd.Context(), name)
}

func (o *tokenFlags) open(cmd *cobra.Command) (authority, error) {
	if cmd.Flags().Changed("cluster") {
		c, err := o.connect(cmd.Context())
		return remoteTokens{c}, err
	}
	if err := idle(cmd, "without --cluster", "token-file", "cert-file"); err != nil {
		return nil, err
	}
	dir, err := o.folder()
	if err != nil {
		return nil, err
	}
	t, err := cluster.OpenTokens(dir)
	return localTokens{t}, err
}

func (a *app) newClusterToken() *cobra.Command {
	var o tokenFlags
	var role, out string
	var ttl time.Duration
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Make a token by which a process joins",
		Long: `Make a token by which processes join the cluster, and write it into a file that
nobody else may read. It is a secret, and holds until it expires or is revoked.
Roles: a worker computes stages; an operator begins, changes and stops runs; a
viewer watches.`,
		Example: `  engine cluster token --role worker --ttl 1h --out worker.token
  engine cluster token --role viewer --ttl 168h`,
		Args: takes(),
		RunE: a.work(func(cmd *cobra.Command, _ []string) error {
			switch cluster.Role(role) {
			case cluster.RoleWorker, cluster.RoleOperator, cluster.RoleViewer:
			default:
				return usagef("--role %q%s: worker, operator or viewer", role, didYouMean(role, []string{"worker", "operator", "viewer"}, ""))
			}
			if ttl < time.Second {
				return usagef("--ttl %v: give a second or more, such as 1h", ttl)
			}
			if out == "" {
				out = role + ".token"
			}
			to, err := o.open(cmd)
			if err != nil {
				return err
			}
			t, err := to.newToken(cmd, cluster.Role(role), ttl)
			if err == nil && out == "-" { // for a pipe, out of a container
				a.printf("%s\n", t.String())
				return nil
			}
			if err == nil {
				err = cluster.WriteTokenFile(out, t)
			}
			if err != nil {
				return err
			}
			a.printf("%s: a token for a %s, until %s; engine cluster revoke %s ends it\n", out, role, t.Expires.Local().Format(time.DateTime), t.ID)
			return nil
		}),
	}
	o.set(cmd)
	f := cmd.Flags()
	f.StringVar(&role, "role", "worker", "`role`: worker, operator or viewer")
	completeWords(cmd, "role", "worker", "operator", "viewer")
	f.DurationVar(&ttl, "ttl", time.Hour, "how long it holds: a `time` such as 90m or 24h")
	f.StringVar(&out, "out", "", "`file` to write it into; -: the standard output (default: the role, with .token)")
	return cmd
}

func (a *app) newClusterTokens() *cobra.Command {
	var o tokenFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "tokens",
		Short:   "List the tokens, without their secrets",
		Example: "  engine cluster tokens",
		Args:    takes(),
		RunE: a.work(func(cmd *cobra.Command, _ []string) error {
			of, err := o.open(cmd)
			if err != nil {
				return err
			}
			all, err := of.list(cmd)
			if err != nil {
				return err
			}
			if asJSON {
				list := make([]map[string]any, 0, len(all))
				for _, t := range all {
					list = append(list, map[string]any{"id": t.ID, "role": t.Role, "expires": t.Expires.UTC(), "revoked": t.Revoked, "uses": t.Uses})
				}
				return a.json(list)
			}
			w := tabwriter.NewWriter(a.people(), 0, 0, 2, ' ', 0)
			_, _ = fmt.Fprintln(w, "ID\tROLE\tEXPIRES\tUSES\tSTATE")
			for _, t := range all {
				state := "good"
				switch {
				case t.Revoked:
					state = "revoked"
				case a.now().After(t.Expires):
					state = "expired"
				}
				_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\n", t.ID, t.Role, t.Expires.Local().Format(time.DateTime), t.Uses, state)
			}
			return w.Flush()
		}),
	}
	o.set(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (a *app) newClusterRevoke() *cobra.Command {
	var o tokenFlags
	cmd := &cobra.Command{
		Use:   "revoke ID",
		Short: "End a token, and what has joined by it",
		Long: `End a token: no process can join by it any more. The certificates of processes that
joined by it end too: the coordinator closes their connections within a second,
refuses new ones and renews nothing. A worker that still has to compute joins again
with another token; runs resume from their last checkpoint. engine cluster tokens
lists the ids. To end one worker alone, use engine cluster release.`,
		Example: "  engine cluster revoke 0123456789abcdef",
		Args:    takes("ID"),
		RunE: a.work(func(cmd *cobra.Command, args []string) error {
			of, err := o.open(cmd)
			var ended []string
			if err == nil {
				ended, err = namesBy(cmd, of, args[0])
			}
			if err == nil {
				err = of.revoke(cmd, args[0])
			}
			if err != nil {
				return err
			}
			a.printf("%s is revoked", args[0])
			if len(ended) > 0 {
				a.printf("; it ends the workers %s", strings.Join(ended, ", "))
			}
			a.printf("\n")
			return nil
		}),
	}
	o.set(cmd)
	return cmd
}

// namesBy are the names of the workers that have joined by a token.
func namesBy(cmd *cobra.Command, of authority, token string) (names []string, err error) {
	all, err := of.names(cmd)
	for _, n := range all {
		if n.Token == token {
			names = append(names, n.Name)
		}
	}
	return names, err
}

func (a *app) newClusterRelease() *cobra.Command {
	var o tokenFlags
	cmd := &cobra.Command{
		Use:   "release NAME",
		Short: "Release a worker's name",
		Long: `Release a worker's name, so that a worker with another key can have it, and end the
certificate of the worker that has it: the coordinator closes its connections.

A name belongs to the first key that joined by it. A worker that keeps its key
(--cert-file) keeps its name until its certificate has expired, 24 hours after it was
last renewed. Release the name sooner where that file was lost, or where the worker is
not to come back.`,
		Example: "  engine cluster release rack1-node3",
		Args:    takes("NAME"),
		RunE: a.work(func(cmd *cobra.Command, args []string) error {
			of, err := o.open(cmd)
			if err == nil {
				err = of.release(cmd, args[0])
			}
			if err != nil {
				return err
			}
			a.printf("%s is released\n", args[0])
			return nil
		}),
	}
	o.set(cmd)
	return cmd
}
