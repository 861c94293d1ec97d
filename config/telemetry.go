package config

import (
	"net"
	"net/netip"
	"net/url"
	"strconv"
)

// hostPort checks for an address to listen at.
var hostPort = &check{"HOST:PORT", func(v any) (string, string) {
	const hint = `use HOST:PORT, such as "127.0.0.1:9464"`
	if msg, hint := textUpTo(maxAddressBytes).judge(v); msg != "" {
		return msg, hint
	}
	_, port, err := net.SplitHostPort(v.(string))
	if err != nil {
		return quoted(v.(string)) + " is not an address", hint
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n > 65535 {
		return quoted(port) + " is not a port", hint + ", with a port from 0 (any free port) to 65535"
	}
	return "", ""
}}

// collector checks for the base URL of an OpenTelemetry collector.
var collector = &check{"a URL of http or https", func(v any) (string, string) {
	const hint = `use one such as "http://localhost:4318"`
	if msg, hint := textUpTo(maxAddressBytes).judge(v); msg != "" {
		return msg, hint
	}
	u, err := url.Parse(v.(string))
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return quoted(v.(string)) + " is not an http or https URL", hint
	case u.User != nil:
		return "the URL contains a password, and this file would show it", "set OTEL_EXPORTER_OTLP_HEADERS in the environment instead"
	case u.RawQuery != "" || u.Fragment != "":
		return quoted(v.(string)) + " has a query or a fragment", hint
	}
	return "", ""
}}

// OnLoopback reports whether only this machine can reach an address, host:port.
func OnLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// telemetry refuses an address that other hosts reach, unless metrics_insecure allows it.
func (c *checker) telemetry() {
	t := c.Telemetry
	if c.clean("telemetry.metrics", "telemetry.metrics_insecure") && t.Metrics != "" && !t.MetricsInsecure && !OnLoopback(t.Metrics) {
		c.fail("telemetry.metrics", quoted(t.Metrics)+" is not a loopback address: any host that reaches it could read the metrics, without TLS",
			"use 127.0.0.1, or set metrics_insecure = true in a network that you trust")
	}
}
