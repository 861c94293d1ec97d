package config

import (
	"net"
	"net/netip"
	"net/url"
	"strconv"
)

// hostPort checks for an address to listen at.
func hostPort(v any) (string, string) {
	const hint = `give HOST:PORT, such as "127.0.0.1:9464"`
	if msg, hint := textUpTo(maxAddressBytes)(v); msg != "" {
		return msg, hint
	}
	_, port, err := net.SplitHostPort(v.(string))
	if err != nil {
		return quoted(v.(string)) + " is no address", hint
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n > 65535 {
		return quoted(port) + " is no port", hint + ", of 0 (any that is free) to 65535"
	}
	return "", ""
}

// collector checks for the base URL of an OpenTelemetry collector.
func collector(v any) (string, string) {
	const hint = `give one such as "http://localhost:4318"`
	if msg, hint := textUpTo(maxAddressBytes)(v); msg != "" {
		return msg, hint
	}
	u, err := url.Parse(v.(string))
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return quoted(v.(string)) + " is no URL of http or https", hint
	case u.User != nil:
		return "the URL has a password, which this file would show", "put it into the environment, in OTEL_EXPORTER_OTLP_HEADERS"
	case u.RawQuery != "" || u.Fragment != "":
		return quoted(v.(string)) + " has more than a host and a path", hint
	}
	return "", ""
}

// OnLoopback reports whether an address, host:port, is reached from this machine alone.
func OnLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// telemetry refuses to open metrics to other hosts unless that was asked for.
func (c *checker) telemetry() {
	t := c.Telemetry
	if c.clean("telemetry.metrics", "telemetry.metrics_insecure") && t.Metrics != "" && !t.MetricsInsecure && !OnLoopback(t.Metrics) {
		c.fail("telemetry.metrics", quoted(t.Metrics)+" is not on loopback, and metrics travel in the clear, to whoever asks",
			"use 127.0.0.1, or set metrics_insecure = true where the network is one that you trust, as Prometheus's pods are")
	}
}
