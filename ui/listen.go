package ui

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"golang.org/x/net/netutil"

	"github.com/troupe-ml/troupe/internal/base/guard"
)

// Listener is the listener of a server. It uses TLS unless it is on loopback.
type Listener struct {
	net.Listener
	Remote      bool   // other machines can reach it
	TLS         bool   // it uses TLS
	Fingerprint string // SHA-256 of its self-signed certificate as pairs of hex digits; "": the caller's certificate
	host        string // host and port for links
}

// ErrPlain means that other machines could reach a server without TLS.
var ErrPlain = errors.New("plain HTTP is allowed on loopback only")

// Listen listens at HOST:PORT. With certFile and keyFile (PEM) it uses TLS with that certificate. Without them it
// uses plain HTTP on loopback, and TLS with a self-signed certificate on other addresses.
func Listen(address, certFile, keyFile string) (*Listener, error) {
	if (certFile == "") != (keyFile == "") {
		return nil, fmt.Errorf("%w: a certificate and its key are needed together: give both files", ErrOptions)
	}
	plain, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	at, ok := plain.Addr().(*net.TCPAddr)
	plain = netutil.LimitListener(plain, limitConnections) // below TLS: the server must see TLS connections
	l := &Listener{Listener: plain, Remote: !ok || !at.IP.IsLoopback()}
	l.host = reachableAs(address, plain.Addr().String())
	if !l.Remote && certFile == "" {
		return l, nil
	}
	var cert tls.Certificate
	if certFile != "" {
		cert, err = tls.LoadX509KeyPair(certFile, keyFile)
	} else {
		cert, err = selfSigned(guard.Hostname(l.host))
		if err == nil {
			l.Fingerprint = fingerprint(cert.Certificate[0])
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("load the certificate: %w", err), plain.Close())
	}
	l.TLS = true
	l.Listener = tls.NewListener(plain, &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert},
		NextProtos: []string{"h2", "http/1.1"}})
	return l, nil
}

// reachableAs returns the host and port to reach a listener: the given name, or the name of this host if the listener
// has all addresses.
func reachableAs(given, bound string) string {
	_, port, err := net.SplitHostPort(bound)
	host, _, err2 := net.SplitHostPort(given)
	if err != nil || err2 != nil {
		return bound
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		if name, err := os.Hostname(); err == nil {
			host = name
		}
	}
	return net.JoinHostPort(host, port)
}

// Host returns the name or the address in links, which a server on loopback accepts as the host of a request.
func (l *Listener) Host() string { return guard.Hostname(l.host) }

// Link returns the address of the page. The token, if any, comes after the #, which browsers never send to a server.
func (l *Listener) Link(token string) string {
	scheme := "http"
	if l.TLS {
		scheme = "https"
	}
	link := scheme + "://" + l.host + "/"
	if token != "" {
		link += "#token=" + token
	}
	return link
}

// Serve answers requests until ctx ends. It closes slow and idle connections.
func Serve(ctx context.Context, l *Listener, h http.Handler) error {
	if l.Remote && !l.TLS {
		return fmt.Errorf("%w: other machines can reach %s", ErrPlain, l.Addr())
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: headerTimeout, ReadTimeout: bodyTimeout, WriteTimeout: answerTimeout,
		IdleTimeout: idleTimeout, MaxHeaderBytes: limitHeaderBytes,
		ErrorLog: log.New(io.Discard, "", 0)} // it only reports broken connections of clients
	served := make(chan error, 1)
	go func() { served <- server.Serve(l.Listener) }() // ends with Shutdown or Close
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.Background(), endPatience)
	defer cancel()
	err := server.Shutdown(last)
	if errors.Is(err, context.DeadlineExceeded) {
		err = server.Close()
	}
	return errors.Join(err, closed(<-served))
}

// closed returns the error of a server, except for an orderly end.
func closed(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// certificateTime is the validity of a self-signed certificate, which is used only until the process ends.
const certificateTime = 90 * 24 * time.Hour

// selfSigned makes a certificate for a host. Users compare its fingerprint.
func selfSigned(host string) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return tls.Certificate{}, err
	}
	now := time.Now()
	template := &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: "engine ui"}, NotBefore: now.Add(-time.Hour),
		NotAfter: now.Add(certificateTime),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, BasicConstraintsValid: true}
	if ip := net.ParseIP(host); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{host}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

// fingerprint returns the SHA-256 of a certificate in the form of browsers.
func fingerprint(der []byte) string {
	sum := sha256.Sum256(der)
	pairs := make([]string, len(sum))
	for i, b := range sum {
		pairs[i] = fmt.Sprintf("%02X", b)
	}
	return strings.Join(pairs, ":")
}
