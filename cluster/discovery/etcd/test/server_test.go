// Package etcd_test tests package etcd with a real etcd server.
package etcd_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	mrand "math/rand/v2"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/embed"

	"github.com/troupe-ml/troupe/cluster/discovery"
	_ "github.com/troupe-ml/troupe/cluster/discovery/etcd"
)

// server is an etcd of one member that can be stopped and started again.
type server struct {
	t       *testing.T
	dir     string
	client  string // where it listens: host:port
	peer    string
	tls     *files // nil: none
	running *embed.Etcd
}

func newServer(t *testing.T, tls *files) *server {
	t.Helper()
	s := &server{t: t, dir: t.TempDir(), client: freePort(t), peer: freePort(t), tls: tls}
	t.Cleanup(s.stop)
	s.start()
	return s
}

// freePort returns an address where no process listens. The port is below those that systems give to connections, so that it
// is still free when a stopped server restarts.
func freePort(t *testing.T) string {
	t.Helper()
	var err error
	for range 100 {
		var l net.Listener
		if l, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 20000+mrand.IntN(10000))); err == nil {
			defer l.Close() //nolint:errcheck // nobody has connected
			return l.Addr().String()
		}
	}
	t.Fatal(err)
	return ""
}

func (s *server) start() {
	s.t.Helper()
	c := embed.NewConfig()
	c.Dir, c.LogLevel, c.LogOutputs, c.UnsafeNoFsync = s.dir, "panic", []string{filepath.Join(s.dir, "log")}, true
	scheme := "http"
	if s.tls != nil {
		scheme = "https"
		c.ClientTLSInfo.CertFile, c.ClientTLSInfo.KeyFile, c.ClientTLSInfo.TrustedCAFile = s.tls.cert, s.tls.key, s.tls.ca
		c.ClientTLSInfo.ClientCertAuth = true
	}
	c.ListenClientUrls, c.ListenPeerUrls = []url.URL{{Scheme: scheme, Host: s.client}}, []url.URL{{Scheme: "http", Host: s.peer}}
	c.AdvertiseClientUrls, c.AdvertisePeerUrls = c.ListenClientUrls, c.ListenPeerUrls
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	running, err := embed.StartEtcd(c)
	if err != nil {
		s.t.Fatal(err)
	}
	s.running = running
	select {
	case <-running.Server.ReadyNotify():
	case <-time.After(time.Minute):
		s.t.Fatal("etcd is not ready after a minute")
	}
}

func (s *server) stop() {
	if s.running != nil {
		s.running.Close()
		s.running = nil
	}
}

// open opens an address of this server.
func (s *server) open(rest string) discovery.Announcer {
	s.t.Helper()
	a, err := discovery.OpenAnnouncer("etcd://" + s.client + rest)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = a.Close() })
	return a
}

// files are those of an authority and of a certificate that it has signed, in PEM.
type files struct{ ca, cert, key string }

func newFiles(t *testing.T) *files {
	t.Helper()
	dir := t.TempDir()
	f := &files{filepath.Join(dir, "ca.pem"), filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")}
	authority, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	root := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "root"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour),
		IsCA:     true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	leaf := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "etcd"}, NotBefore: root.NotBefore,
		NotAfter: root.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	rootDER, err := x509.CreateCertificate(rand.Reader, root, root, &authority.PublicKey, authority)
	if err != nil {
		t.Fatal(err)
	}
	leafDER, err := x509.CreateCertificate(rand.Reader, leaf, root, &key.PublicKey, authority)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for path, block := range map[string]*pem.Block{f.ca: {Type: "CERTIFICATE", Bytes: rootDER}, f.cert: {Type: "CERTIFICATE", Bytes: leafDER},
		f.key: {Type: "PRIVATE KEY", Bytes: keyDER}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return f
}
