package telemetry

import "github.com/prometheus/client_golang/prometheus"

// Sampled is a metric whose values are read for each scrape.
type Sampled struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

// The sampled metrics. A metric that has no value, such as the WAL of PostgreSQL, is not set.
var (
	Ready          = gauge("plantstore_ready", "1 if the service would accept a create now, as in /readyz.")
	QueuePlants    = gauge("plantstore_queue_plants", "Creates or edits that wait for a commit.", "operation")
	QueueLimit     = gauge("plantstore_queue_limit", "Creates or edits that may wait for a commit (--queue).", "operation")
	Connections    = gauge("plantstore_connections", "Open connections of the public port.", "state")
	MaxConnections = gauge("plantstore_connections_limit", "Connections that may be open (--max-conns).")
	Evicted        = counter("plantstore_connections_evicted_total", "Connections closed in favour of others.", "reason")
	Refused        = counter("plantstore_connections_refused_total",
		"Connections refused with 503 before a request was read.", "reason")
	AcceptErrors  = counter("plantstore_accept_errors_total", "Connections that could not be accepted.")
	DatabaseBytes = gauge("plantstore_database_bytes", "Size of the database.")
	WALBytes      = gauge("plantstore_wal_bytes", "Size of the write-ahead log of SQLite.")
	DiskFreeBytes = gauge("plantstore_database_disk_free_bytes", "Free bytes on the disk of the SQLite file.")
	LastBackup    = gauge("plantstore_last_backup_timestamp_seconds", "When the last plantstore backup started.")
	WritesStopped = gauge("plantstore_writes_stopped",
		"1 if nothing is written until a restart, such as after a failed sync.")
	Nodes             = gauge("plantstore_nodes", "Nodes of the Citus cluster.", "state")
	CertificateExpiry = gauge("plantstore_tls_certificate_expiry_timestamp_seconds",
		"When the certificate in use expires.")
	OldestDelivery = gauge("plantstore_webhook_oldest_waiting_seconds", "Age of the oldest waiting delivery to an "+
		"enabled push endpoint; 0 without one, and in a process that does not deliver.")
	DatabaseConnections = gauge("db_client_connection_count", "Connections to the database.",
		"db_client_connection_pool_name", "db_client_connection_state")
	MaxDatabaseConnections = gauge("db_client_connection_max", "Connections to the database that may be in use.",
		"db_client_connection_pool_name")
)

func gauge(name, help string, labels ...string) Sampled {
	return Sampled{prometheus.NewDesc(name, help, labels, nil), prometheus.GaugeValue}
}

func counter(name, help string, labels ...string) Sampled {
	return Sampled{prometheus.NewDesc(name, help, labels, nil), prometheus.CounterValue}
}

// Set sets the value of a metric for the values of its labels.
type Set func(metric Sampled, value float64, labels ...string)

// sampler is the prometheus.Collector of the sampled metrics.
type sampler func(Set)

// Describe implements prometheus.Collector. Which metrics there are depends on the engine, so it announces none.
func (sampler) Describe(chan<- *prometheus.Desc) {}

func (s sampler) Collect(collected chan<- prometheus.Metric) {
	s(func(m Sampled, value float64, labels ...string) {
		collected <- prometheus.MustNewConstMetric(m.desc, m.kind, value, labels...)
	})
}
