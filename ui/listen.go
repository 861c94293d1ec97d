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
)

// Listener is where a server is reached. Off loopback it speaks TLS alone.
type Listener struct {
	net.Listener
	Remote      bool   // other machines reach it
	TLS         bool   // it speaks TLS
	Fingerprint string // SHA-256 of a certificate that was made for it, by pairs of digits; "": the caller's
	host        string // as people reach it
}

// ErrPlain: a server that other machines reach has to speak TLS.
var ErrPlain = errors.New("plain HTTP is for loopback alone")

// Listen listens at HOST:PORT. Off loopback it takes the certificate and the key of two files (PEM),
// or with "" and "" makes a certificate of its own.
func Listen(address, certFile, keyFile string) (*Listener, error) {
	if (certFile == "") != (keyFile == "") {
		return nil, fmt.Errorf("%w: a certificate without its key, or a key alone: give both files", ErrOptions)
	}
	plain, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	at, ok := plain.Addr().(*net.TCPAddr)
	plain = netutil.LimitListener(plain, limitConnections) // beneath TLS, whose connections the server has to know
	l := &Listener{Listener: plain, Remote: !ok || !at.IP.IsLoopback()}
	l.host = reachableAs(address, plain.Addr().String())
	if !l.Remote && certFile == "" {
		return l, nil
	}
	var cert tls.Certificate
	if certFile != "" {
		cert, err = tls.LoadX509KeyPair(certFile, keyFile)
	} else {
		cert, err = selfSigned(hostname(l.host))
		if err == nil {
			l.Fingerprint = fingerprint(cert.Certificate[0])
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the certificate: %w", err), plain.Close())
	}
	l.TLS = true
	l.Listener = tls.NewListener(plain, &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert},
		NextProtos: []string{"h2", "http/1.1"}})
	return l, nil
}

// reachableAs is the host and port to reach a listener at: the name that was given, unless it
// stands for all addresses.
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

// Link is the address of the page, with a token where there is one behind the #, which no browser
// sends to any server.
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

// Serve answers requests until ctx ends. Slow and idle connections are cut off.
func Serve(ctx context.Context, l *Listener, h http.Handler) error {
	if l.Remote && !l.TLS {
		return fmt.Errorf("%w: %s can be reached from other machines", ErrPlain, l.Addr())
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: headerTimeout, ReadTimeout: bodyTimeout, WriteTimeout: answerTimeout,
		IdleTimeout: idleTimeout, MaxHeaderBytes: limitHeaderBytes,
		ErrorLog: log.New(io.Discard, "", 0)} // it tells of broken connections of anybody's
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

// closed passes on how serving ended, unless it was told to.
func closed(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// certificateTime is how long a certificate that is made at the start is good for. It ends with the
// process anyway.
const certificateTime = 90 * 24 * time.Hour

// selfSigned makes a certificate for a host. People compare its fingerprint.
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

// fingerprint is written as browsers write it.
func fingerprint(der []byte) string {
	sum := sha256.Sum256(der)
	pairs := make([]string, len(sum))
	for i, b := range sum {
		pairs[i] = fmt.Sprintf("%02X", b)
	}
	return strings.Join(pairs, ":")
}
