package cli

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/troupe-ml/troupe/cluster"
)

// Environment variables of the commands that ask a coordinator for something.
const (
	envCluster   = "ENGINE_CLUSTER"
	envTokenFile = "ENGINE_TOKEN_FILE"
)

// Files that engine cluster start writes into its folder.
const (
	workerTokenFile   = "worker.token"
	operatorTokenFile = "operator.token"
)

// clientFlags say which coordinator is asked, and by whom.
type clientFlags struct {
	cluster   string
	tokenFile string
	certFile  string
	dir       string
}

// set adds the flags to a command.
func (o *clientFlags) set(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.cluster, "cluster", "", "the coordinator's `address`, HOST:PORT or as of engine worker --join (default: $"+
		envCluster+", else the one of this host)")
	o.setCredentials(cmd)
}

func (o *clientFlags) setCredentials(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.tokenFile, "token-file", "", "`file` with an operator's or a viewer's token (default: $"+envTokenFile+
		", else the one in --dir)")
	f.StringVar(&o.certFile, "cert-file", "", "`file` that keeps a certificate; with it no token is needed again")
	f.StringVar(&o.dir, "dir", "", "the coordinator's `folder`, where this is its host (default: that of engine cluster start)")
}

// folder is the coordinator's folder on its own host.
func (o *clientFlags) folder() (string, error) { return clusterDir(o.dir) }

// clusterDir is where a coordinator keeps its files.
func clusterDir(dir string) (string, error) {
	if dir != "" {
		return filepath.Abs(dir)
	}
	if state := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(state) {
		return filepath.Join(state, "troupe"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", usagef("--dir is missing: there is no home folder to take for it: %v", err)
	}
	return filepath.Join(home, ".local", "state", "troupe"), nil
}

// connect reaches the coordinator.
func (o *clientFlags) connect(ctx context.Context) (*cluster.Client, error) {
	dir, noDir := o.folder() // services have no home, and need none when they name all
	if err := o.find(dir, noDir); err != nil {
		return nil, err
	}
	cfg := cluster.ClientConfig{Address: o.cluster, CertFile: o.certFile}
	if u, err := user.Current(); err == nil {
		cfg.Name = u.Username
	}
	// With both the token is for a certificate that is of no use any more, unless it was deleted after its use.
	if o.certFile != "" && (o.tokenFile == "" || !exists(o.tokenFile)) && exists(o.certFile) {
		return cluster.NewClient(ctx, cfg)
	}
	path := o.tokenFile
	if path == "" {
		path = os.Getenv(envTokenFile)
	}
	if path == "" {
		if noDir != nil {
			return nil, noDir
		}
		path = filepath.Join(dir, operatorTokenFile)
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return nil,
				usagef("--token-file is missing: give the file with an operator's or a viewer's token, which engine cluster token makes on the coordinator's host (there is no %s here)", path)
		}
	}
	var err error
	if cfg.Token, err = cluster.ReadTokenFile(path); err != nil {
		return nil, err
	}
	return cluster.NewClient(ctx, cfg)
}

// find finds out where the coordinator is.
func (o *clientFlags) find(dir string, noDir error) (err error) {
	if o.cluster == "" {
		o.cluster = os.Getenv(envCluster)
	}
	if o.cluster != "" {
		return nil
	}
	if noDir != nil {
		return noDir
	}
	o.cluster, err = cluster.AddressIn(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return usagef("--cluster is missing: give the coordinator's HOST:PORT, or dns:// or etcd:// with what finds it, or set %s; no coordinator runs on this host with the folder %s", envCluster, dir)
	}
	return err
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
