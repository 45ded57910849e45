// Package penstock is a client of Penstock, the HTTP-native event log.
//
// A Client is safe for concurrent use. Every call obeys its context. Retries follow what the contract promises for each
// error: a request that may have been carried out is repeated only if the node recognises the repeat.
package penstock

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Version of this module.
const Version = "0.1.0"

const (
	backoff       = 50 * time.Millisecond
	backoffMax    = 5 * time.Second
	retryAfterMax = time.Minute // a longer one is no load control but a mistake
	leadersMax    = 10_000
)

// Config of a client. Zero values are the defaults.
type Config struct {
	// URLs are addresses of nodes. Any node takes any request.
	URLs []string
	// Token returns the present token, which each request carries; nil or "" without authentication.
	Token func() string
	// TraceContext returns the traceparent and tracestate of the caller's context, as a propagator of OpenTelemetry puts them
	// into a carrier: records get them as headers if the trace is sampled. Record.TraceContext gives them back.
	TraceContext func(context.Context) map[string]string
	// HTTP is http.DefaultTransport's settings with more connections by default.
	HTTP *http.Client
	// Deadline is how long a call is retried, a minute by default. Long polls get their wait on top.
	Deadline time.Duration
	// Attempt is how long one attempt may take, 40 s by default: more than a node waits for replicas.
	Attempt time.Duration
	// Logger gets a line for each retry; nil logs nothing.
	Logger *slog.Logger
}

// Client of a node or a cluster.
type Client struct {
	config  Config
	urls    []*url.URL
	mutex   sync.Mutex
	current int
	leaders map[string]string
	owned   *http.Transport
}

// New makes a client; it connects with the first call.
func New(config Config) (*Client, error) {
	client := &Client{config: config, leaders: map[string]string{}}
	for _, text := range config.URLs {
		parsed, err := url.Parse(strings.TrimRight(text, "/"))
		if err != nil || parsed.Host == "" {
			return nil, fmt.Errorf("penstock: %q is no address such as http://127.0.0.1:8080", text)
		}
		client.urls = append(client.urls, parsed)
	}
	if len(client.urls) == 0 {
		return nil, errors.New("penstock: Config.URLs is empty")
	}
	if config.HTTP == nil {
		client.owned = http.DefaultTransport.(*http.Transport).Clone()
		client.owned.MaxIdleConnsPerHost, client.owned.DisableCompression = 64, true
		client.config.HTTP = &http.Client{Transport: client.owned}
	}
	noRedirect := *client.config.HTTP // the token goes to the given hosts only
	noRedirect.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	client.config.HTTP = &noRedirect
	if config.Deadline == 0 {
		client.config.Deadline = time.Minute
	}
	if config.Attempt == 0 {
		client.config.Attempt = 40 * time.Second
	}
	return client, nil
}

// Close closes idle connections of a client that made its own HTTP client. Close producers and consumers first.
func (c *Client) Close() {
	if c.owned != nil {
		c.owned.CloseIdleConnections()
	}
}

// Path has the values of the parameters of an operation's path.
type Path map[string]string

// Call makes an operation of the contract: body and into may be nil. It repeats where that is harmless.
func (c *Client) Call(ctx context.Context, operation Operation, path Path, query url.Values, body, into any) error {
	target := operation.Path
	for name, value := range path {
		target = strings.ReplaceAll(target, "{"+name+"}", url.PathEscape(value))
	}
	if strings.Contains(target, "{") {
		return fmt.Errorf("penstock: %s needs more path parameters", target)
	}
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	sent := request{method: operation.Method, target: target, repeatable: operation.Repeatable}
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return err
		}
		sent.body, sent.header = encoded, http.Header{"Content-Type": {"application/json"}}
		var waits struct {
			WaitMS int64 `json:"wait_ms"`
		}
		if json.Unmarshal(encoded, &waits) == nil {
			sent.wait = time.Duration(waits.WaitMS) * time.Millisecond
		}
	}
	if wait, err := strconv.ParseInt(query.Get("wait_ms"), 10, 32); err == nil {
		sent.wait = time.Duration(wait) * time.Millisecond
	}
	answer, err := c.send(ctx, sent)
	if err != nil || len(answer) == 0 && into == nil {
		return err
	}
	if into == nil {
		into = new(json.RawMessage) // a page of a proxy is no success
	}
	if err := json.Unmarshal(answer, into); err != nil {
		return &Problem{Code: "not_a_node", Detail: "the answer is not that of the contract", MaybeDone: true, cause: err}
	}
	return nil
}

// Appended says where the records of one partition are.
type Appended struct {
	Partition  int
	BaseOffset int64 `json:"base_offset"`
	Count      int
	Duplicate  bool
	Problem    json.RawMessage
}

// Append stores records in one request, once: repeats carry the key. An empty key is a random one.
func (c *Client) Append(ctx context.Context, topic, key string, records ...NewRecord) ([]Appended, error) {
	var body []byte
	for _, record := range records {
		body = appendLine(body, c.traced(ctx, record))
	}
	if key == "" {
		key = randomName("")
	}
	header := http.Header{"Content-Type": {"application/x-ndjson"}, "Idempotency-Key": {key}}
	target := "/v1/topics/" + url.PathEscape(topic) + "/records?ndjson=records"
	until := time.Now().Add(c.config.Deadline)
	for attempt := 1; ; attempt++ {
		answer, err := c.send(ctx, request{method: "POST", target: target, body: body, header: header, repeatable: true})
		if err != nil {
			return nil, err
		}
		var produced struct{ Results []Appended }
		if err := json.Unmarshal(answer, &produced); err != nil {
			return nil, &Problem{Code: "not_a_node", Detail: "the answer to a produce has no positions", MaybeDone: true, cause: err}
		}
		var failed *Problem
		for _, result := range produced.Results {
			if result.Problem != nil {
				failed = problemOf(0, result.Problem, 0).asMaybeDone() // other partitions are stored
			}
		}
		if failed == nil {
			return produced.Results, nil
		}
		if delay := retryDelay(failed, attempt); !failed.Retryable || time.Now().Add(delay).After(until) {
			return nil, failed
		} else if err := sleep(ctx, delay); err != nil {
			return nil, err
		}
	}
}

type request struct {
	method     string
	target     string
	body       []byte
	header     http.Header
	repeatable bool
	wait       time.Duration
}

// send returns the body of a success, retrying until the deadline.
func (c *Client) send(ctx context.Context, sent request) ([]byte, error) {
	until := time.Now().Add(c.config.Deadline + sent.wait)
	maybeDone := false
	for attempt := 1; ; attempt++ {
		answer, err := c.attempt(ctx, sent, until)
		if err == nil {
			return answer, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		problem := asProblem(err)
		maybeDone = maybeDone || problem.MaybeDone
		delay := retryDelay(problem, attempt)
		if !mayRetry(problem, sent.repeatable) || time.Now().Add(delay).After(until) {
			if maybeDone {
				problem = problem.asMaybeDone()
			}
			return nil, problem
		}
		if c.config.Logger != nil {
			c.config.Logger.InfoContext(ctx, "penstock: retry", "target", sent.target, "attempt", attempt, "delay", delay, "code", problem.Code)
		}
		if err := sleep(ctx, delay); err != nil {
			return nil, err
		}
	}
}

// attempt sends once. The error is a *Problem.
func (c *Client) attempt(ctx context.Context, sent request, until time.Time) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, min(c.config.Attempt+sent.wait, time.Until(until)))
	defer cancel()
	response, err := c.open(ctx, sent)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		c.leave(placeOf(sent.target))
		return nil, lost(err)
	}
	return body, nil
}

// open sends once and returns a success, whose body is still to be read. The error is a *Problem.
func (c *Client) open(ctx context.Context, sent request) (*http.Response, error) {
	place, base := c.address(sent.target)
	made, err := http.NewRequestWithContext(ctx, sent.method, base+sent.target, bytes.NewReader(sent.body))
	if err != nil {
		return nil, &Problem{Code: "client_error", Detail: err.Error(), cause: err}
	}
	for name, values := range sent.header {
		made.Header[name] = values
	}
	made.Header.Set("User-Agent", "penstock-go/"+Version)
	if sent.repeatable {
		made.Header["Idempotency-Key"] = sent.header["Idempotency-Key"] // present and empty: net/http may send it again
	}
	if c.config.Token != nil && base != "" {
		if token := c.config.Token(); token != "" {
			made.Header.Set("Authorization", "Bearer "+token)
		}
	}
	response, err := c.config.HTTP.Do(made)
	if err != nil {
		c.leave(place)
		return nil, lost(err)
	}
	if response.StatusCode >= 503 {
		c.leave(place)
	} else {
		c.note(place, response.Header.Get("Penstock-Leader"))
	}
	if response.StatusCode >= 200 && response.StatusCode < 300 {
		return response, nil
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, lost(err)
	}
	seconds, _ := strconv.ParseFloat(response.Header.Get("Retry-After"), 64)
	return nil, problemOf(response.StatusCode, body, time.Duration(seconds*float64(time.Second)))
}

func lost(err error) *Problem {
	return &Problem{Code: "connection_failed", Detail: err.Error(), Retryable: true, MaybeDone: !isRefused(err), cause: err}
}

// placeOf is the partition of a target by its path; empty for one that any node takes.
func placeOf(target string) string {
	if !strings.Contains(target, "/partitions/") {
		return ""
	}
	place, _, _ := strings.Cut(target, "?")
	return place
}

func (c *Client) address(target string) (place, base string) {
	if strings.HasPrefix(target, "http") {
		return "", "" // a signed URL carries its own right, and no token
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	place = placeOf(target)
	if leader, ok := c.leaders[place]; ok {
		return place, leader
	}
	return place, c.urls[c.current%len(c.urls)].String()
}

func (c *Client) leave(place string) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if _, ok := c.leaders[place]; ok {
		delete(c.leaders, place)
	} else {
		c.current++
	}
}

// note remembers a leader whose host is one of the given ones: the token goes to no other host.
func (c *Client) note(place, leader string) {
	named, err := url.Parse(strings.TrimRight(leader, "/"))
	if place == "" || leader == "" || err != nil {
		return
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for _, given := range c.urls {
		if given.Scheme == named.Scheme && given.Hostname() == named.Hostname() {
			if len(c.leaders) >= leadersMax {
				clear(c.leaders)
			}
			c.leaders[place] = named.String()
			return
		}
	}
}

func mayRetry(problem *Problem, repeatable bool) bool {
	return problem.Retryable && (repeatable || !problem.MaybeDone)
}

// retryDelay has full jitter; the node's Retry-After is a lower bound.
func retryDelay(problem *Problem, attempt int) time.Duration {
	longest := min(backoff<<min(attempt, 20), backoffMax)
	return min(problem.RetryAfter, retryAfterMax) + time.Duration(mathrand.Int64N(int64(longest)))
}

func sleep(ctx context.Context, delay time.Duration) error {
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// isRefused is true if the connection was never made.
func isRefused(err error) bool {
	var operation *net.OpError
	return errors.As(err, &operation) && operation.Op == "dial"
}

func randomName(prefix string) string {
	var random [16]byte
	rand.Read(random[:])
	return prefix + hex.EncodeToString(random[:])
}
