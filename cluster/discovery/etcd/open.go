package etcd

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/troupe-ml/troupe/cluster/discovery"
)

func init() { discovery.Register("etcd", Open) }

// defaultPrefix is the keys' prefix if the address has none.
const defaultPrefix = "troupe"

// Open makes a Finder for an address. The Finder is also an Announcer.
func Open(u *url.URL) (discovery.Finder, error) {
	endpoints, err := endpoints(u.Host)
	if err != nil {
		return nil, err
	}
	secure, err := credentials(u.RawQuery)
	if err != nil {
		return nil, err
	}
	prefix := strings.Trim(path.Clean("/"+u.Path), "/")
	if prefix == "" {
		prefix = defaultPrefix
	}
	// The client dials at the first request.
	client, err := clientv3.New(clientv3.Config{
		Endpoints: endpoints, TLS: secure, Logger: zap.NewNop(), DialTimeout: askTime,
		DialKeepAliveTime: aliveEvery, DialKeepAliveTimeout: aliveTime,
		MaxCallSendMsgSize: limitAnswerBytes, MaxCallRecvMsgSize: limitAnswerBytes,
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: retryTime / 4, Multiplier: 1.6, Jitter: 0.2, MaxDelay: redialMost},
			MinConnectTimeout: aliveTime,
		})},
	})
	if err != nil {
		return nil, err
	}
	return newFinder(client, "/"+prefix+"/coordinators/"), nil
}

// endpoints splits a list of servers.
func endpoints(hosts string) ([]string, error) {
	all := strings.Split(hosts, ",")
	if len(all) > limitEndpoints {
		return nil, fmt.Errorf("the address has %d servers; the limit is %d", len(all), limitEndpoints)
	}
	for _, one := range all {
		if host, port, err := net.SplitHostPort(one); err != nil || host == "" || port == "" {
			return nil, fmt.Errorf("the server is %q; want etcd://HOST:PORT,HOST:PORT/PREFIX (etcd's usual port is 2379)", one)
		}
	}
	return all, nil
}

// credentials returns the TLS config for an address's query; nil: no TLS.
func credentials(query string) (*tls.Config, error) {
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, err
	}
	for key, all := range values {
		switch {
		case key != "ca" && key != "cert" && key != "key":
			return nil, fmt.Errorf("unknown parameter %q; want ca, cert or key", key)
		case len(all) != 1 || all[0] == "":
			return nil, fmt.Errorf("parameter %s: give one file", key)
		}
	}
	ca, cert, key := values.Get("ca"), values.Get("cert"), values.Get("key")
	switch {
	case (cert == "") != (key == ""):
		return nil, errors.New("give both cert and key, or neither")
	case ca == "" && cert != "":
		return nil, errors.New("ca is missing: give the file with the authority of etcd's certificates")
	case ca == "":
		return nil, nil
	}
	secure := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: x509.NewCertPool()}
	pem, err := readFile(ca)
	if err != nil {
		return nil, err
	}
	if !secure.RootCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s contains no certificate", ca)
	}
	if cert == "" {
		return secure, nil
	}
	// The files are read for each connection, because certificates are replaced before they expire.
	get := func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		chain, err := readFile(cert)
		if err != nil {
			return nil, err
		}
		private, err := readFile(key)
		if err != nil {
			return nil, err
		}
		pair, err := tls.X509KeyPair(chain, private)
		if err != nil {
			return nil, fmt.Errorf("%s and %s: %w", cert, key, err)
		}
		return &pair, nil
	}
	if _, err := get(nil); err != nil {
		return nil, err
	}
	secure.GetClientCertificate = get
	return secure, nil
}

// readFile reads a file of at most limitFileBytes.
func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // it was only read
	content, err := io.ReadAll(io.LimitReader(f, limitFileBytes+1))
	if err == nil && len(content) > limitFileBytes {
		err = fmt.Errorf("%s has more than %d bytes, the limit", path, limitFileBytes)
	}
	return content, err
}
