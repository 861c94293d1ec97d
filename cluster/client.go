package cluster

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"

	"github.com/troupe-ml/troupe/cluster/internal/locate"
	"github.com/troupe-ml/troupe/cluster/internal/pki"
	"github.com/troupe-ml/troupe/internal/base/clock"
)

// ClientConfig says how an operator or a viewer reaches a coordinator.
type ClientConfig struct {
	Address  string // the coordinator's host:port, or a URL for package discovery
	Token    Token  // to get a certificate, if CertFile has none yet
	CertFile string // keeps the certificate; "": the client gets a new one at each start
	Name     string // of the person, for the coordinator's log; "": the role
}

// Client sends an operator's or a viewer's requests to a coordinator.
type Client struct {
	at     *locate.Locator // of the coordinator
	root   []byte
	keeper *pki.Keeper
}

// NewClient reads the certificate in cfg.CertFile, or gets one from the coordinator with cfg.Token.
func NewClient(ctx context.Context, cfg ClientConfig) (*Client, error) {
	at, err := locate.New(cfg.Address)
	if err != nil {
		return nil, err
	}
	c := &Client{at: at}
	if err := c.prepare(ctx, cfg); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// Close stops the search for the coordinator. Requests in progress continue, but don't reconnect
// after a broken connection.
func (c *Client) Close() { c.at.Close() }

func (c *Client) prepare(ctx context.Context, cfg ClientConfig) error {
	cert, err := c.certificate(ctx, cfg)
	if err != nil {
		return err
	}
	c.keeper = pki.NewKeeper(cert, func(ctx context.Context, csr []byte) ([]byte, error) {
		return renew(ctx, c.at, c.root, c.keeper, csr)
	}, slog.New(slog.DiscardHandler))
	if cfg.CertFile == "" {
		return nil
	}
	c.keeper.OnRenewed(func(cert tls.Certificate) error { return pki.WriteCertificateFile(cfg.CertFile, cert) })
	if err := c.keeper.RenewDue(ctx); err != nil {
		return fmt.Errorf("renew the certificate in %s: %w", cfg.CertFile, unreachable(err))
	}
	return nil
}

// certificate returns the certificate in the file, or a new one.
func (c *Client) certificate(ctx context.Context, cfg ClientConfig) (cert tls.Certificate, err error) {
	if cfg.CertFile != "" {
		cert, c.root, err = pki.ReadCertificateFile(cfg.CertFile)
		switch {
		case err == nil && (cfg.Token.ID == "" || outlived(cert, c.root, cfg.Token, clock.Now()) == ""):
			return cert, checkRole("certificate in "+cfg.CertFile, pki.RoleIn(cert), RoleOperator, RoleViewer)
		case err != nil && !errors.Is(err, os.ErrNotExist):
			return cert, err
		case cfg.Token.ID == "":
			return cert, fmt.Errorf("%w; give a token to get a certificate (--token-file)", err)
		}
	}
	if err := checkRole("token", cfg.Token.Role, RoleOperator, RoleViewer); err != nil {
		return cert, err
	}
	var id [4]byte
	_, _ = rand.Read(id[:]) // its documentation says that it never fails
	name := cfg.Name
	if name == "" {
		name = string(cfg.Token.Role)
	}
	if cert, c.root, err = join(ctx, c.at, cfg.Token, clientName(name)+"-"+hex.EncodeToString(id[:]), cfg.CertFile != ""); err != nil {
		return cert, fmt.Errorf("get a certificate from the coordinator at %s: %w", cfg.Address, unreachable(err))
	}
	if cfg.CertFile != "" {
		err = pki.WriteCertificateFile(cfg.CertFile, cert)
	}
	return cert, err
}

// clientName turns a person's name into one that is valid in a certificate.
func clientName(name string) string {
	name = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(name))
	if name = strings.Trim(name[:min(len(name), 32)], "-"); name == "" {
		return "client"
	}
	return name
}

// keep renews the certificate while the client follows a run or a log, which may take days.
func (c *Client) keep(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Add(1)
	go func() { // ends with ctx
		defer running.Done()
		c.keeper.Run(ctx)
	}()
	return func() {
		cancel()
		running.Wait()
	}
}
