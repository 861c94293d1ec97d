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
	"github.com/troupe-ml/troupe/internal/host/folder"
)

// Environment variables of the commands that send requests to a coordinator.
const (
	envCluster   = "ENGINE_CLUSTER"
	envTokenFile = "ENGINE_TOKEN_FILE"
)

// Files that engine cluster start writes to its folder.
const (
	workerTokenFile   = "worker.token"
	operatorTokenFile = "operator.token"
)

// clientFlags say which coordinator to connect to, and with which credentials.
type clientFlags struct {
	cluster   string
	tokenFile string
	certFile  string
	dir       string
}

// set adds the flags to a command.
func (o *clientFlags) set(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.cluster, "cluster", "",
		"`address` of the coordinator: HOST:PORT, or a discovery URL (see engine worker --help) (default: $"+
			envCluster+", else the coordinator on this host)")
	o.setCredentials(cmd)
}

func (o *clientFlags) setCredentials(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.tokenFile, "token-file", "", "`file` with an operator token or a viewer token (default: $"+envTokenFile+
		", else "+operatorTokenFile+" in --dir)")
	f.StringVar(&o.certFile, "cert-file", "", "`file` to keep the client certificate in; later connections then need no token")
	f.StringVar(&o.dir, "dir", "", "`folder` of the coordinator, if it runs on this host (default: as for engine cluster start)")
}

// words returns the flags for another command to the same coordinator, such as " --cluster head:7070 --dir state".
func (o *clientFlags) words() string {
	text := ""
	for _, flag := range [][2]string{{"--cluster", o.cluster}, {"--token-file", o.tokenFile}, {"--cert-file", o.certFile}, {"--dir", o.dir}} {
		if flag[1] != "" {
			text += " " + flag[0] + " " + shellWord(flag[1])
		}
	}
	return text
}

// folder is the coordinator's folder on its own host.
func (o *clientFlags) folder() (string, error) { return clusterDir(o.dir) }

// clusterDir returns the folder in which a coordinator keeps its files.
func clusterDir(dir string) (string, error) {
	if dir != "" {
		return filepath.Abs(dir)
	}
	if state := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(state) {
		return filepath.Join(state, "troupe"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", usagef("--dir is missing, and there is no home folder for the default: %v", err)
	}
	return filepath.Join(home, ".local", "state", "troupe"), nil
}

// connect connects to the coordinator.
func (o *clientFlags) connect(ctx context.Context) (*cluster.Client, error) {
	dir, noDir := o.folder() // a service has no home folder, and needs none if its flags name everything
	if err := o.find(dir, noDir); err != nil {
		return nil, err
	}
	cfg := cluster.ClientConfig{Address: o.cluster, CertFile: o.certFile}
	if u, err := user.Current(); err == nil {
		cfg.Name = u.Username
	}
	// If both files exist, the token is there to replace a certificate that is no longer valid.
	if o.certFile != "" && (o.tokenFile == "" || !exists(o.tokenFile)) && exists(o.certFile) {
		return cluster.NewClient(ctx, cfg)
	}
	path, where := o.tokenFile, "--token-file"
	if path == "" {
		path, where = os.Getenv(envTokenFile), envTokenFile
	}
	if path == "" {
		if noDir != nil {
			return nil, noDir
		}
		path = filepath.Join(dir, operatorTokenFile)
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return nil,
				usagef("--token-file is missing: give a file with an operator or a viewer token, or the coordinator's folder with --dir (default token %s: no such file). engine cluster token --role operator creates a token on the coordinator's host", path)
		}
	}
	var err error
	if cfg.Token, err = cluster.ReadTokenFile(path); err != nil {
		return nil, folder.Missing(err, where, "file", path)
	}
	return cluster.NewClient(ctx, cfg)
}

// find sets the coordinator's address.
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
		return usagef("--cluster is missing: give the coordinator's HOST:PORT or a discovery URL (dns://…, etcd://…), or set %s. No coordinator runs on this host with the folder %s", envCluster, dir)
	}
	return err
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
