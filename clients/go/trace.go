package penstock

import (
	"context"
	"regexp"
	"strings"
)

const (
	traceparent = "traceparent"
	tracestate  = "tracestate"
)

var sampled = regexp.MustCompile(`-[0-9a-f][13579bdf]$`)

// traced adds the context of the caller's trace to a record that has none, if the trace is sampled.
func (c *Client) traced(ctx context.Context, record NewRecord) NewRecord {
	if c.config.TraceContext == nil {
		return record
	}
	given := c.config.TraceContext(ctx)
	if !sampled.MatchString(given[traceparent]) {
		return record
	}
	for _, header := range record.Headers {
		if strings.EqualFold(strings.TrimPrefix(header.Name, "ce_"), traceparent) {
			return record
		}
	}
	headers := append([]Header(nil), record.Headers...) // the caller may use its own for another record
	for _, name := range []string{traceparent, tracestate} {
		if given[name] != "" {
			headers = append(headers, Header{name, []byte(given[name])})
		}
	}
	record.Headers = headers
	return record
}

// TraceContext is the context of the trace that the record is of, as propagators of OpenTelemetry take it; empty without
// one. A CloudEvent has it in its extension attributes, which come first.
func (r Record) TraceContext() map[string]string {
	found := map[string]string{}
	for _, prefix := range []string{"ce_", ""} {
		for _, header := range r.Headers {
			for _, name := range []string{traceparent, tracestate} {
				if strings.EqualFold(header.Name, prefix+name) {
					found[name] = string(header.Value)
				}
			}
		}
		if found[traceparent] != "" {
			return found
		}
		clear(found)
	}
	return found
}
