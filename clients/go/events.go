package penstock

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// EventOptions: zero values follow a topic from now on.
type EventOptions struct {
	Earliest bool
	Position string   // of an earlier stream, to continue after it
	Filter   []string // conditions that the node checks; all must hold
	// OutOfRange "earliest" goes on with a topic that was made again under the name; it is an error without it.
	OutOfRange string
	// URL is a signed URL of the topic's records with value=base64, for a client without a token. It has its own query.
	URL string
}

// An EventStream follows all partitions of a topic over one connection, as Server-Sent Events. It is for one goroutine.
type EventStream struct {
	client   *Client
	topic    string
	options  EventOptions
	position string
}

const (
	silence    = 45 * time.Second // a node sends a line every 15 s
	eventBytes = 64 << 20         // of the largest record, as base64, with room
)

// Events makes an event stream of a topic.
func (c *Client) Events(topic string, options EventOptions) *EventStream {
	return &EventStream{client: c, topic: topic, options: options, position: options.Position}
}

// Position is where to continue after the last record that was handed out. Save it with the result of the work.
func (s *EventStream) Position() string { return s.position }

// Records yields records until the loop or ctx ends, and resumes where a connection was lost. It ends after the first
// error that no retry can help.
func (s *EventStream) Records(ctx context.Context) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		for failures := 0; ; {
			ended := false
			err := s.read(ctx, func(record Record) bool {
				failures = 0
				ended = !yield(record, nil)
				return !ended
			})
			if ended {
				return
			}
			failures++
			problem := asProblem(err)
			if ctx.Err() == nil && problem.Retryable {
				err = sleep(ctx, retryDelay(problem, failures))
			}
			if ctx.Err() != nil {
				err = ctx.Err()
			}
			if err != nil {
				yield(Record{}, err)
				return
			}
		}
	}
}

// read reads one connection to its end. The error is a *Problem.
func (s *EventStream) read(ctx context.Context, take func(Record) bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	quiet := time.AfterFunc(silence, cancel)
	defer quiet.Stop()
	query := url.Values{"value": {"base64"}, "from": {"latest"}, "filter": s.options.Filter}
	if s.options.Earliest {
		query.Set("from", "earliest")
	}
	target := orDefault(s.options.URL, "/v1/topics/"+url.PathEscape(s.topic)+"/records?"+query.Encode())
	header := http.Header{"Accept": {"text/event-stream"}}
	if s.position != "" {
		header.Set("Last-Event-ID", s.position)
	}
	answer, err := s.client.open(ctx, request{method: "GET", target: target, header: header, repeatable: true})
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, eventBytes)
	event := map[string]string{}
	for lines.Scan() {
		quiet.Reset(silence)
		if name, value, ok := strings.Cut(lines.Text(), ":"); ok {
			event[name] = strings.TrimPrefix(value, " ")
			continue
		}
		record, err := s.decode(event)
		if err != nil {
			return err
		}
		s.position = orDefault(event["id"], s.position)
		if record != nil && !take(*record) {
			return nil
		}
		clear(event)
	}
	return &Problem{Code: "connection_failed", Detail: "the stream has ended", Retryable: true, cause: errors.Join(lines.Err())}
}

func (s *EventStream) decode(event map[string]string) (*Record, error) {
	data := []byte(event["data"])
	switch {
	case event["event"] == "problem":
		return nil, problemOf(0, data, 0)
	case event["event"] == "topic_recreated" && s.options.OutOfRange != "earliest":
		return nil, &Problem{Code: "topic_id_mismatch", Detail: s.topic + " was deleted and made again"}
	case event["event"] != "" || len(data) == 0:
		return nil, nil
	}
	var record Record
	if err := json.Unmarshal(data, &record); err != nil {
		return nil, &Problem{Code: "not_a_node", Detail: "an event is no record", MaybeDone: true, cause: err}
	}
	record.Topic = s.topic
	return &record, nil
}

// SignOptions: zero values are the node's defaults.
type SignOptions struct {
	Method   string        // GET, or POST to produce
	Life     time.Duration // 15 minutes
	MaxBytes int           // of a body, 64 KiB
}

// SignURL returns a URL with the caller's right to the records or the table of one topic, for a program without a token.
func (c *Client) SignURL(ctx context.Context, path string, options SignOptions) (string, error) {
	body := struct {
		URL      string `json:"url"`
		Method   string `json:"method"`
		LifeMS   int64  `json:"life_ms,omitempty"`
		MaxBytes int    `json:"max_bytes,omitempty"`
	}{path, orDefault(options.Method, "GET"), options.Life.Milliseconds(), options.MaxBytes}
	var signed struct{ URL string }
	if err := c.Call(ctx, OpSignURL, nil, nil, body, &signed); err != nil {
		return "", err
	}
	_, base := c.address("")
	return base + signed.URL, nil
}
