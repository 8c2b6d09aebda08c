package telemetry

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Tracer makes a span for each request, and spans below it for the wait in the queue and for the commit of a create
// or an edit.
// A background goroutine sends them to an OpenTelemetry collector, so that a slow collector delays no request: spans
// that do not fit into its queue are dropped.
//
// No span has a token, a store, or the name or id of a plant.
type Tracer struct {
	tracer   trace.Tracer
	provider *sdktrace.TracerProvider
}

// NewTracer returns a Tracer as the environment variables of OpenTelemetry configure it. It returns nil if they name
// no collector, or disable traces.
func NewTracer(ctx context.Context, getenv func(string) string, version string, log *slog.Logger) (*Tracer, error) {
	client, err := newCollector(getenv)
	if client == nil || err != nil {
		return nil, err
	}
	exporter, err := otlptrace.New(ctx, client)
	if err != nil {
		return nil, err
	}
	service := resource.NewSchemaless(attribute.String("service.name", "plantstore"),
		attribute.String("service.version", version))
	res, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithHost(), resource.WithFromEnv())
	if err == nil {
		res, err = resource.Merge(service, res)
	}
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	var last atomic.Int64
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		now := time.Now().Unix()
		if then := last.Load(); now-then >= 60 && last.CompareAndSwap(then, now) {
			log.Warn("a problem with traces; further ones are logged once a minute", "reason", err.Error())
		}
	}))
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(res))
	return &Tracer{provider.Tracer("plantstore"), provider}, nil
}

// Close sends the last spans.
func (t *Tracer) Close(ctx context.Context) error { return t.provider.Shutdown(ctx) }

// Handler makes a span for each request, which continues the trace of the header traceparent.
func (t *Tracer) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
		ctx, span := t.tracer.Start(ctx, "HTTP", trace.WithSpanKind(trace.SpanKindServer))
		defer span.End()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// Request describes the span of a request when its response is complete. The number is that of its failure, 0 if it
// had none.
func (t *Tracer) Request(ctx context.Context, route, method string, status int, number int32) {
	span := trace.SpanFromContext(ctx)
	if !span.IsRecording() {
		return
	}
	if !slices.Contains(methods, method) {
		method = "_OTHER"
	}
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

// Write makes the spans of a create or an edit that joined a batch: for its wait, and for the commit unless it never
// started.
func (t *Tracer) Write(ctx context.Context, joined, started, ended time.Time, plants int, err error) {
	if !trace.SpanFromContext(ctx).IsRecording() {
		return
	}
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
func (t *Tracer) Logger(log *slog.Logger) *slog.Logger { return slog.New(traceLog{log.Handler()}) }

type traceLog struct{ slog.Handler }

func (l traceLog) Handle(ctx context.Context, r slog.Record) error {
	if span := trace.SpanContextFromContext(ctx); span.IsValid() {
		r = r.Clone()
		r.AddAttrs(slog.String("trace_id", span.TraceID().String()), slog.String("span_id", span.SpanID().String()))
	}
	return l.Handler.Handle(ctx, r)
}

func (l traceLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	return traceLog{l.Handler.WithAttrs(attrs)}
}

func (l traceLog) WithGroup(name string) slog.Handler { return traceLog{l.Handler.WithGroup(name)} }
