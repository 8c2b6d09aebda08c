package telemetry

import (
	"log"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
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
	tokensRefused  *prometheus.CounterVec
	rateLimited    *prometheus.CounterVec
	protocolErrors *prometheus.CounterVec
	outcomes       map[string]*prometheus.CounterVec // by operation
	commits        prometheus.ObserverVec
	checkpoints    prometheus.ObserverVec
	batches        prometheus.ObserverVec

	mu     sync.Mutex                                     // held while series is replaced
	series atomic.Pointer[map[requestKind]*requestSeries] // that requests had so far
}

// requestKind is what requests of one time series have in common.
type requestKind struct {
	route, method string
	status        int
	number        int32
}

// requestSeries is what a request of a kind is counted in.
type requestSeries struct {
	durations prometheus.Observer
	reason    prometheus.Counter // nil for most
}

// sampled are the metrics whose values are read for each scrape.
var sampled = []struct {
	name, help string
	kind       prometheus.ValueType
	labels     []string
}{
	{"plantstore_ready", "1 if the service would accept a create now, as in /readyz.", prometheus.GaugeValue, nil},
	{"plantstore_queue_plants", "Creates or edits that wait for a commit.", prometheus.GaugeValue, []string{"operation"}},
	{"plantstore_queue_limit", "Creates or edits that may wait for a commit (--queue).", prometheus.GaugeValue,
		[]string{"operation"}},
	{"plantstore_connections", "Open connections of the public port.", prometheus.GaugeValue, []string{"state"}},
	{"plantstore_connections_limit", "Connections that may be open (--max-conns).", prometheus.GaugeValue, nil},
	{"plantstore_connections_evicted_total", "Connections closed in favour of others.", prometheus.CounterValue,
		[]string{"reason"}},
	{"plantstore_connections_refused_total", "Connections refused with 503 before a request was read.",
		prometheus.CounterValue, []string{"reason"}},
	{"plantstore_accept_errors_total", "Connections that could not be accepted.", prometheus.CounterValue, nil},
	{"plantstore_database_bytes", "Size of the database.", prometheus.GaugeValue, nil},
	{"plantstore_wal_bytes", "Size of the write-ahead log of SQLite.", prometheus.GaugeValue, nil},
	{"plantstore_database_disk_free_bytes", "Free bytes on the disk of the SQLite file.", prometheus.GaugeValue, nil},
	{"plantstore_last_backup_timestamp_seconds", "When the last plantstore backup started.", prometheus.GaugeValue, nil},
	{"plantstore_writes_stopped", "1 if nothing is written until a restart, such as after a failed sync.",
		prometheus.GaugeValue, nil},
	{"plantstore_nodes", "Nodes of the Citus cluster.", prometheus.GaugeValue, []string{"state"}},
	{"plantstore_tls_certificate_expiry_timestamp_seconds", "When the certificate in use expires.",
		prometheus.GaugeValue, nil},
	{"db_client_connection_count", "Connections to the database.", prometheus.GaugeValue,
		[]string{"db_client_connection_pool_name", "db_client_connection_state"}},
	{"db_client_connection_max", "Connections to the database that may be in use.", prometheus.GaugeValue,
		[]string{"db_client_connection_pool_name"}},
}

// Set sets the value of a sampled metric for the values of its labels.
type Set func(name string, value float64, labels ...string)

// The reasons of failures, by their numbers in the catalogue.
var (
	refusedTokens = map[int32]string{
		40101: "missing", 40102: "malformed", 40103: "mistyped", 40104: "unknown", 40105: "expired", 40106: "revoked",
		40107: "rejected", 40301: "scope",
	}
	limitedRates = map[int32]string{42901: "token", 42902: "wrong_tokens", 42903: "lookups"}
)

var (
	seconds = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
	sizes   = []float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 512}
	methods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE", "QUERY"}
)

// NewMetrics returns the metrics of a version of the program. For each scrape, sample is called to set the sampled
// ones.
func NewMetrics(version string, sample func(Set)) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry()}
	m.series.Store(&map[requestKind]*requestSeries{})
	m.requests = m.histogram("http_server_request_duration_seconds", "Duration of requests, until the response was "+
		"written.", seconds, "http_request_method", "http_route", "http_response_status_code", "error_type")
	for _, write := range []string{"POST /plants", "PUT /plants/{id}", "DELETE /plants/{id}"} {
		method, route, _ := strings.Cut(write, " ")
		m.requests.WithLabelValues(method, route, "503", "50304") // so that the first full disk is visible as an increase
	}
	m.tokensRefused = m.counter("plantstore_tokens_refused_total", "Requests whose token was refused.", "reason",
		slices.Collect(maps.Values(refusedTokens))...)
	m.rateLimited = m.counter("plantstore_rate_limited_total", "Requests that exceeded a rate.", "reason",
		slices.Collect(maps.Values(limitedRates))...)
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
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "plantstore_build_info", Help: "The running program."},
		[]string{"version", "go_version"})
	build.WithLabelValues(version, runtime.Version()).Set(1)
	m.registry.MustRegister(build, newSampler(sample), collectors.NewGoCollector(),
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

// Request counts a request of a route. The number is that of its failure, 0 if it had none.
func (m *Metrics) Request(route, method string, status int, number int32, took time.Duration) {
	kind := requestKind{route, method, status, number}
	series := (*m.series.Load())[kind]
	if series == nil {
		series = m.findSeries(kind)
	}
	series.durations.Observe(took.Seconds())
	if series.reason != nil {
		series.reason.Inc()
	}
}

// findSeries returns the series of a kind and keeps it, because finding it by its labels costs more than counting.
func (m *Metrics) findSeries(kind requestKind) *requestSeries {
	if !slices.Contains(methods, kind.method) {
		kind.method = "_OTHER"
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := (*m.series.Load())[kind]; s != nil {
		return s
	}
	errorType := ""
	if kind.number != 0 {
		errorType = strconv.Itoa(int(kind.number))
	}
	s := &requestSeries{
		durations: m.requests.WithLabelValues(kind.method, kind.route, strconv.Itoa(kind.status), errorType),
	}
	if reason, ok := refusedTokens[kind.number]; ok {
		s.reason = m.tokensRefused.WithLabelValues(reason)
	} else if reason, ok := limitedRates[kind.number]; ok {
		s.reason = m.rateLimited.WithLabelValues(reason)
	}
	all := maps.Clone(*m.series.Load())
	all[kind] = s
	m.series.Store(&all)
	return s
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

// sampler is the collector of the sampled metrics.
type sampler struct {
	sample func(Set)
	descs  map[string]*prometheus.Desc
	kinds  map[string]prometheus.ValueType
}

func newSampler(sample func(Set)) *sampler {
	s := &sampler{sample, map[string]*prometheus.Desc{}, map[string]prometheus.ValueType{}}
	for _, m := range sampled {
		s.descs[m.name] = prometheus.NewDesc(m.name, m.help, m.labels, nil)
		s.kinds[m.name] = m.kind
	}
	return s
}

// Describe implements prometheus.Collector.
func (s *sampler) Describe(descs chan<- *prometheus.Desc) {
	for _, d := range s.descs {
		descs <- d
	}
}

// Collect implements prometheus.Collector.
func (s *sampler) Collect(collected chan<- prometheus.Metric) {
	s.sample(func(name string, value float64, labels ...string) {
		collected <- prometheus.MustNewConstMetric(s.descs[name], s.kinds[name], value, labels...)
	})
}
