package spans

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"talf/internal/limits"
)

// A client sends spans over HTTP in OTLP's binary form. OpenTelemetry's own, otlptracehttp, does the
// same and brings gRPC along, which takes 7 MB of the program.
type client struct {
	url     string
	headers http.Header
	http    *http.Client
	log     *slog.Logger
	wait    time.Duration // before the second attempt; it doubles
	failing atomic.Bool
}

var _ otlptrace.Client = (*client)(nil)

const (
	sendTime  = 10 * time.Second // of one attempt
	attempts  = 3
	firstWait = time.Second
	mostReply = 64 * limits.KiB
)

// parseHeaders reads OTEL_EXPORTER_OTLP_HEADERS: name=value, separated by commas, values escaped as in
// URLs.
func parseHeaders(s string) (http.Header, error) {
	h := http.Header{}
	for pair := range strings.SplitSeq(s, ",") {
		if pair = strings.TrimSpace(pair); pair == "" {
			continue
		}
		name, value, ok := strings.Cut(pair, "=")
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if name = strings.TrimSpace(name); !ok || name == "" || err != nil {
			return nil, errors.New("OTEL_EXPORTER_OTLP_HEADERS: want name=value, separated by commas")
		}
		h.Set(name, value)
	}
	return h, nil
}

func (c *client) Start(context.Context) error { return nil }

func (c *client) Stop(context.Context) error {
	c.http.CloseIdleConnections()
	return nil
}

// UploadTraces sends spans. What cannot be sent is lost: the log says so once, and once that spans arrive again. A
// collector that is away must not fill the log.
func (c *client) UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	// TracesData has the wire format of ExportTraceServiceRequest, whose package imports gRPC.
	body, err := proto.Marshal(&tracepb.TracesData{ResourceSpans: spans})
	if err != nil {
		return err
	}
	wait := c.wait
	for i := range attempts {
		var again bool
		if again, err = c.send(ctx, body); !again {
			break
		}
		if i == attempts-1 {
			break
		}
		select {
		case <-time.After(wait):
			wait *= 2
		case <-ctx.Done():
			err = errors.Join(err, ctx.Err())
		}
		if ctx.Err() != nil {
			break
		}
	}
	switch {
	case err != nil && !c.failing.Swap(true):
		c.log.Warn("cannot send spans; they are lost until the collector takes them", "url", c.shown(), "error", err)
	case err == nil && c.failing.Swap(false):
		c.log.Info("spans are sent again", "url", c.shown())
	}
	return nil
}

// shown is the URL without a password, for the log.
func (c *client) shown() string {
	u, err := url.Parse(c.url)
	if err != nil {
		return ""
	}
	return u.Redacted()
}

// send makes one attempt, and says whether another may succeed.
func (c *client) send(ctx context.Context, body []byte) (again bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, sendTime)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return false, err
	}
	r.Header = c.headers.Clone()
	r.Header.Set("Content-Type", "application/x-protobuf")
	resp, err := c.http.Do(r)
	if err != nil {
		return true, err
	}
	defer func() { _ = resp.Body.Close() }()
	_, _ = io.CopyN(io.Discard, resp.Body, mostReply) // so that the connection is used again
	switch resp.StatusCode {
	case http.StatusOK, http.StatusAccepted, http.StatusNoContent:
		return false, nil
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		again = true
	}
	return again, fmt.Errorf("%s", resp.Status)
}
