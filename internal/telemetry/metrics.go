package telemetry

import (
	"log"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Metrics keeps the metrics of the service and serves /metrics. Every label has few values, and none is a token, a
// store, or the name or id of a plant.
//
// Names are those of the OpenTelemetry semantic conventions where these have one, and start with plantstore_
// otherwise. Histograms have classic buckets and, for a server that scrapes protobuf, native ones.
type Metrics struct {
	registry *prometheus.Registry

	requests       *prometheus.HistogramVec
	protocolErrors *prometheus.CounterVec
	outcomes       map[string]*prometheus.CounterVec // by operation
	commits        prometheus.ObserverVec
	checkpoints    prometheus.ObserverVec
	batches        prometheus.ObserverVec
	webhookTries   *prometheus.CounterVec
}

var (
	seconds = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
	sizes   = []float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 512}
	methods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE", "QUERY"}
)

// NewMetrics returns the metrics of a version of the program. For each scrape, sample sets the Sampled ones.
func NewMetrics(version string, sample func(Set)) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry()}
	m.requests = m.histogram("http_server_request_duration_seconds", "Duration of requests, until the response was "+
		"written.", seconds, "http_request_method", "http_route", "http_response_status_code", "error_type")
	for _, write := range []string{"POST /plants", "PUT /plants/{id}", "DELETE /plants/{id}"} {
		method, route, _ := strings.Cut(write, " ")
		m.requests.WithLabelValues(method, route, "503", "50304") // so that the first full disk is visible as an increase
	}
	m.protocolErrors = m.counter("plantstore_protocol_errors_total", "Requests that are not valid HTTP/1.1 and have "+
		"no route.", "error_type", "40024")
	m.outcomes = map[string]*prometheus.CounterVec{
		"create": m.counter("plantstore_creates_total", "Creates that were committed, or repeated or refused an id.",
			"outcome", "created", "same", "taken"),
		"edit": m.counter("plantstore_edits_total", "Edits that were committed, or refused because of what is stored.",
			"outcome", "replaced", "removed", "absent", "changed"),
	}
	m.commits = m.histogram("plantstore_commit_duration_seconds", "Duration of commits.", seconds, "operation", "result")
	m.checkpoints = m.histogram("plantstore_checkpoint_duration_seconds", "Duration of checkpoints of SQLite.", seconds,
		"result")
	m.batches = m.histogram("plantstore_commit_batch_plants", "Creates or edits in a commit.", sizes, "operation")
	for _, result := range []string{"ok", "failed", "unknown"} { // so that the first is visible as an increase
		m.checkpoints.WithLabelValues(result)
		for operation := range m.outcomes {
			m.commits.WithLabelValues(operation, result)
			m.batches.WithLabelValues(operation)
		}
	}
	m.webhookTries = m.counter("plantstore_webhook_tries_total", "Requests to receivers of webhooks.", "result",
		"delivered", "status", "dns", "refused", "timeout", "tls", "target", "connection")
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "plantstore_build_info", Help: "The running program."},
		[]string{"version", "go_version"})
	build.WithLabelValues(version, runtime.Version()).Set(1)
	m.registry.MustRegister(build, sampler(sample), collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

func (m *Metrics) histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: name, Help: help, Buckets: buckets,
		NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100, NativeHistogramMinResetDuration: time.Hour,
	}, labels)
	m.registry.MustRegister(h)
	return h
}

// counter registers a counter that has the given values of its label from the start, so that the first increment is
// visible as one.
func (m *Metrics) counter(name, help, label string, values ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
	for _, value := range values {
		c.WithLabelValues(value)
	}
	m.registry.MustRegister(c)
	return c
}

// Handler serves /metrics in the format that the client accepts.
func (m *Metrics) Handler(errors *log.Logger) http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		EnableOpenMetrics: true, ErrorLog: errors, ErrorHandling: promhttp.ContinueOnError,
	})
}

// Request counts a request of a route. number is the error code, or 0 for a success. A request with an injected fault
// has another route and error type, so that it concerns no alert.
func (m *Metrics) Request(route, method string, status int, number int32, injected bool, took time.Duration) {
	errorType := ""
	if number != 0 {
		errorType = strconv.Itoa(int(number))
	}
	if injected {
		route, errorType = "injected", "injected"
	}
	m.requests.WithLabelValues(methodLabel(method), route, strconv.Itoa(status), errorType).Observe(took.Seconds())
}

func methodLabel(method string) string {
	if slices.Contains(methods, method) {
		return method
	}
	return "_OTHER"
}

// ProtocolError counts a request that did not reach a route, by the number of its failure.
func (m *Metrics) ProtocolError(number int32) {
	m.protocolErrors.WithLabelValues(strconv.Itoa(int(number))).Inc()
}

// Commit counts a commit of an operation, create or edit, with its result: ok, failed or unknown.
func (m *Metrics) Commit(operation string, plants int, result string, took time.Duration) {
	m.batches.WithLabelValues(operation).Observe(float64(plants))
	m.commits.WithLabelValues(operation, result).Observe(took.Seconds())
}

// Outcomes counts creates or edits by their outcome.
func (m *Metrics) Outcomes(operation string, n int, outcome string) {
	m.outcomes[operation].WithLabelValues(outcome).Add(float64(n))
}

// Checkpoint counts a checkpoint with its result, as Commit does.
func (m *Metrics) Checkpoint(result string, took time.Duration) {
	m.checkpoints.WithLabelValues(result).Observe(took.Seconds())
}

// WebhookTry counts a request to a receiver of webhooks by its result.
func (m *Metrics) WebhookTry(result string) { m.webhookTries.WithLabelValues(result).Inc() }
