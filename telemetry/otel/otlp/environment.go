package otlp

import "strings"

// Environment looks up an environment variable, as os.LookupEnv does.
type Environment func(name string) (string, bool)

func (e Environment) get(name string) string {
	v, _ := e(name)
	return strings.TrimSpace(v)
}

// wants reports which signals to send: all if there is an endpoint, else those that have an endpoint in the
// environment.
func wants(endpoint string, env Environment) (traces, metrics bool) {
	if strings.EqualFold(env.get("OTEL_SDK_DISABLED"), "true") {
		return false, false
	}
	all := endpoint != "" || env.get("OTEL_EXPORTER_OTLP_ENDPOINT") != ""
	traces = all || env.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != ""
	metrics = all || env.get("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT") != ""
	return traces && env.get("OTEL_TRACES_EXPORTER") != "none", metrics && env.get("OTEL_METRICS_EXPORTER") != "none"
}

// Wanted reports whether there is anything to send: an endpoint is given, or the environment has one.
func Wanted(endpoint string, env Environment) bool {
	traces, metrics := wants(endpoint, env)
	return traces || metrics
}
