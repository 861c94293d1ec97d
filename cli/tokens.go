package cli

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/troupe-ml/troupe/cluster"
)

// tokenFlags say where the tokens are: in the coordinator's folder, or with a coordinator on the network.
type tokenFlags struct {
	clientFlags
}

func (o *tokenFlags) set(cmd *cobra.Command) {
	o.clientFlags.set(cmd)
	cmd.Flags().Lookup("cluster").Usage = "`address` of a coordinator that was started with --remote-tokens (default: use the folder of --dir)"
}

// authority manages tokens and workers' names.
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
		Short: "Create a join token",
		Long: `Create a join token, with which processes join the cluster, and write it to a file that
only you can read. Keep it secret: any number of processes can use it until it expires or
is revoked. Roles:

  worker    computes stages (engine worker)
  operator  starts, changes and stops runs (engine run --cluster, stop, …)
  viewer    only watches (engine ps, status, logs, follow, top)

Run it on the coordinator's host, or elsewhere with --cluster if the coordinator was started
with --remote-tokens.

See also: engine cluster tokens, engine cluster revoke.`,
		Example: `  engine cluster token --role worker --ttl 1h --out worker.token
  engine cluster token --role viewer --ttl 168h`,
		Args: takes(),
		RunE: a.work(func(cmd *cobra.Command, _ []string) error {
			switch cluster.Role(role) {
			case cluster.RoleWorker, cluster.RoleOperator, cluster.RoleViewer:
			default:
				return usagef("--role %q%s: give worker, operator or viewer", role, didYouMean(role, []string{"worker", "operator", "viewer"}, ""))
			}
			if ttl < time.Second {
				return usagef("--ttl %v: give 1s or more, such as 1h", ttl)
			}
			if out == "" {
				out = role + ".token"
			}
			to, err := o.open(cmd)
			if err != nil {
				return err
			}
			t, err := to.newToken(cmd, cluster.Role(role), ttl)
			if err == nil && out == "-" { // for pipes, such as out of a container
				a.printf("%s\n", t.String())
				return nil
			}
			if err == nil {
				err = cluster.WriteTokenFile(out, t)
			}
			if err != nil {
				return err
			}
			a.printf("wrote %s: a token for role %s, valid until %s; to revoke it: engine cluster revoke %s\n", out, role,
				t.Expires.Local().Format(time.DateTime), t.ID)
			return nil
		}),
	}
	o.set(cmd)
	f := cmd.Flags()
	f.StringVar(&role, "role", "worker", "`role` of the processes that join with the token: worker, operator or viewer")
	completeWords(cmd, "role", "worker", "operator", "viewer")
	f.DurationVar(&ttl, "ttl", time.Hour, "`time` for which the token is valid, such as 90m or 24h")
	f.StringVar(&out, "out", "", "`file` to write the token to; - is standard output (default: ROLE.token)")
	return cmd
}

func (a *app) newClusterTokens() *cobra.Command {
	var o tokenFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "tokens",
		Short: "List the join tokens, without their secrets",
		Long: `List the join tokens: id, role, when each expires, how often it was used, and whether it is
valid, revoked or expired.

See also: engine cluster token, engine cluster revoke.`,
		Example: "  engine cluster tokens\n  engine cluster tokens --json",
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
				state := "valid"
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
		Short: "Revoke a join token and disconnect the processes that used it",
		Long: `Revoke a join token: no process can join with it any more. The certificates of processes
that joined with it become invalid too. The coordinator closes their connections within a
second and rejects new ones. Runs on such workers resume from their last checkpoint on the
workers that remain. To keep a worker, restart it with another token.

engine cluster tokens lists the ids. To disconnect a single worker, use engine cluster release.`,
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
			a.printf("revoked %s", args[0])
			if len(ended) > 0 {
				a.printf("; disconnected the workers %s", strings.Join(ended, ", "))
			}
			a.printf("\n")
			return nil
		}),
	}
	o.set(cmd)
	return cmd
}

// namesBy returns the names of the workers that joined with a token.
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
		Short: "Disconnect a worker and free its name",
		Long: `Disconnect a worker and free its name, so that a worker with another key can use it. The
coordinator revokes the worker's certificate and closes its connections.

A name belongs to the first key that joined under it. A worker that keeps its key in
--cert-file keeps its name until the certificate expires, 24 hours after its last renewal.
Use this command to free the name sooner: if that file was lost, or if the worker must not
rejoin.

See also: engine cluster revoke, engine status (lists the workers).`,
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
			a.printf("released %s\n", args[0])
			return nil
		}),
	}
	o.set(cmd)
	return cmd
}
