package telemetry

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Tracer makes a span for each request. A create or an edit has two more spans below it: for the wait in the queue, and
// for the commit. A background goroutine sends the spans to an OpenTelemetry collector, so that a slow collector delays
// no request. Spans that do not fit into the queue of that goroutine are dropped.
//
// No span has a token, a store, or the name or id of a plant. A nil Tracer makes no spans.
type Tracer struct {
	tracer   trace.Tracer
	provider *sdktrace.TracerProvider
}

// NewTracer returns a Tracer that the environment variables of OpenTelemetry configure. It returns nil if they set no
// collector, or disable traces. The libraries of OpenTelemetry read the variables from the environment of the process.
func NewTracer(ctx context.Context, version string, log *slog.Logger) (*Tracer, error) {
	disabled := strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") || os.Getenv("OTEL_TRACES_EXPORTER") == "none"
	if disabled || os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT")+os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") == "" {
		return nil, nil
	}
	if err := checkVariables(); err != nil {
		return nil, err
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP: %w", err)
	}
	res, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", "plantstore"),
		attribute.String("service.version", version)), resource.WithTelemetrySDK(), resource.WithHost(),
		resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(&loggedExporter{SpanExporter: exporter, log: log}),
		sdktrace.WithResource(res))
	return &Tracer{tracer: provider.Tracer("plantstore"), provider: provider}, nil
}

// checkVariables returns an error for values with which no span would arrive, with which the library would panic, or
// that the exporter would print although they may have a secret. The libraries report other invalid values themselves,
// and use the default.
func checkVariables() error {
	const header, otlp = `[\w!#$%&'*+.^|~-]+=([^,%]|%[0-9A-Fa-f]{2})*`, "OTEL_EXPORTER_OTLP_"
	for _, variable := range []struct{ names, pattern, meaning string }{
		{otlp + "ENDPOINT " + otlp + "TRACES_ENDPOINT", `https?://[^/%]+(/.*)?`, "a URL such as http://127.0.0.1:4318"},
		{otlp + "HEADERS " + otlp + "TRACES_HEADERS", header + "(," + header + ")*",
			"name=value pairs, separated by commas, with %25 for %"},
		{otlp + "PROTOCOL " + otlp + "TRACES_PROTOCOL", "http/(protobuf|json)", "http/protobuf or http/json"},
		{"OTEL_BSP_MAX_QUEUE_SIZE OTEL_BSP_MAX_EXPORT_BATCH_SIZE", `[1-9]\d{0,5}`, "a number from 1 to 999999"},
	} {
		for name := range strings.FieldsSeq(variable.names) {
			if ok, _ := regexp.MatchString("^("+variable.pattern+")?$", os.Getenv(name)); !ok {
				return fmt.Errorf("%s must be %s", name, variable.meaning)
			}
		}
	}
	return nil
}

// loggedExporter logs failed exports, at most one a minute.
type loggedExporter struct {
	sdktrace.SpanExporter
	log  *slog.Logger
	last time.Time
}

// ExportSpans never returns an error, because the library would print it to standard error.
func (e *loggedExporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := e.SpanExporter.ExportSpans(ctx, spans)
	if err != nil && time.Since(e.last) >= time.Minute {
		e.last = time.Now()
		e.log.Warn("spans were not sent; further failures are logged once a minute", "reason", err.Error())
	}
	return nil
}

// Close sends the remaining spans. It waits at most 2 s for the collector.
func (t *Tracer) Close() error {
	if t == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	return t.provider.Shutdown(ctx)
}

// Handler makes a span for each request, which continues the trace of the header traceparent.
func (t *Tracer) Handler(next http.Handler) http.Handler {
	if t == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
		ctx, span := t.tracer.Start(ctx, "HTTP", trace.WithSpanKind(trace.SpanKindServer))
		defer span.End()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// Request sets the name and the attributes of a request's span when the response is complete. number is the error code,
// or 0 for a success.
func (t *Tracer) Request(ctx context.Context, route, method string, status int, number int32) {
	if t == nil {
		return
	}
	span := trace.SpanFromContext(ctx)
	method = methodLabel(method)
	span.SetName(method + " " + route)
	span.SetAttributes(attribute.String("http.request.method", method), attribute.String("http.route", route),
		attribute.Int("http.response.status_code", status))
	if number != 0 {
		span.SetAttributes(attribute.String("error.type", strconv.Itoa(int(number))))
	}
	if status >= http.StatusInternalServerError {
		span.SetStatus(codes.Error, "")
	}
}

// Write makes the spans of a create or an edit that joined a batch: for its wait, and for the commit if it started.
func (t *Tracer) Write(ctx context.Context, joined, started, ended time.Time, plants int, err error) {
	_, span := t.tracer.Start(ctx, "queue", trace.WithTimestamp(joined))
	if started.IsZero() {
		span.End(trace.WithTimestamp(ended))
		return
	}
	span.End(trace.WithTimestamp(started))
	_, span = t.tracer.Start(ctx, "commit", trace.WithTimestamp(started),
		trace.WithAttributes(attribute.Int("plantstore.commit.plants", plants)))
	if err != nil {
		span.SetStatus(codes.Error, "")
	}
	span.End(trace.WithTimestamp(ended))
}

// Logger returns a logger that adds the ids of the trace and the span to the records of a request.
func (t *Tracer) Logger(log *slog.Logger) *slog.Logger {
	if t == nil {
		return log
	}
	return slog.New(traceLog{log.Handler()})
}

// traceLog adds no ids to the records of handlers that WithAttrs and WithGroup return.
type traceLog struct{ slog.Handler }

func (l traceLog) Handle(ctx context.Context, r slog.Record) error {
	if span := trace.SpanContextFromContext(ctx); span.IsValid() {
		r = r.Clone()
		r.AddAttrs(slog.String("trace_id", span.TraceID().String()), slog.String("span_id", span.SpanID().String()))
	}
	return l.Handler.Handle(ctx, r)
}
