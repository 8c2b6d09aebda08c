package telemetry

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// collector sends spans by OTLP over HTTP. The client of OpenTelemetry would add gRPC to the program.
type collector struct {
	url    string
	header http.Header
	client http.Client
}

// newCollector returns nil if no collector is set.
func newCollector(getenv func(string) string) (otlptrace.Client, error) {
	// setting returns the variable for traces, or else that for all signals, and the name of the one that is set.
	setting := func(name string) (value, variable string) {
		for _, variable := range []string{"OTEL_EXPORTER_OTLP_TRACES_" + name, "OTEL_EXPORTER_OTLP_" + name} {
			if value := getenv(variable); value != "" {
				return value, variable
			}
		}
		return "", ""
	}
	endpoint, variable := setting("ENDPOINT")
	disabled := strings.EqualFold(getenv("OTEL_SDK_DISABLED"), "true") || getenv("OTEL_TRACES_EXPORTER") == "none"
	if endpoint == "" || disabled {
		return nil, nil
	}
	address, err := url.Parse(endpoint)
	if err != nil || address.Host == "" || address.Scheme != "http" && address.Scheme != "https" {
		return nil, fmt.Errorf("%s is not a URL such as http://127.0.0.1:4318", variable)
	}
	if variable == "OTEL_EXPORTER_OTLP_ENDPOINT" {
		address = address.JoinPath("v1/traces")
	}
	if protocol, variable := setting("PROTOCOL"); cmp.Or(protocol, "http/protobuf") != "http/protobuf" {
		return nil, fmt.Errorf("%s is %q: only http/protobuf is supported", variable, protocol)
	}
	c := &collector{url: address.String(), header: http.Header{"Content-Type": {"application/x-protobuf"}}}
	headers, variable := setting("HEADERS")
	for pair := range strings.SplitSeq(headers, ",") {
		name, value, ok := strings.Cut(pair, "=")
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if headers != "" && (!ok || err != nil) {
			return nil, fmt.Errorf("%s must have the form name=value,name=value", variable)
		}
		c.header.Set(strings.TrimSpace(name), value)
	}
	for _, variable := range []string{
		"OTEL_BSP_MAX_QUEUE_SIZE", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "OTEL_BSP_SCHEDULE_DELAY", "OTEL_BSP_EXPORT_TIMEOUT",
	} {
		value := getenv(variable)
		if n, err := strconv.Atoi(cmp.Or(value, "1")); err != nil || n < 1 || n > 1_000_000 { // the library would panic
			return nil, fmt.Errorf("%s is %q: use 1 to 1000000", variable, value)
		}
	}
	timeout, variable := setting("TIMEOUT")
	ms, err := strconv.Atoi(cmp.Or(timeout, "10000"))
	if err != nil || ms <= 0 {
		return nil, fmt.Errorf("%s is %q: use a number of milliseconds", variable, timeout)
	}
	c.client.Timeout = time.Duration(ms) * time.Millisecond
	return c, nil
}

func (c *collector) Start(context.Context) error { return nil }

func (c *collector) Stop(context.Context) error { return nil }

// UploadTraces sends spans once. Those that the collector does not accept are lost.
func (c *collector) UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	body, err := proto.Marshal(&tracepb.TracesData{ResourceSpans: spans}) // as ExportTraceServiceRequest is encoded
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header = c.header
	response, err := c.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	io.CopyN(io.Discard, response.Body, 64<<10) // so that the connection can be used again
	if response.StatusCode >= 300 {
		return fmt.Errorf("the collector returned %s", response.Status)
	}
	return nil
}
