package penstock

import (
	"context"
	"encoding/base64"
	"errors"
	"iter"
	"net/url"
	"strconv"
	"time"
)

// A Table is a compacted topic: the last record of each key.
type Table struct {
	client *Client
	topic  string
}

// Table makes a reader of a compacted topic.
func (c *Client) Table(topic string) *Table { return &Table{c, topic} }

// Get returns the last record of a key; nil if there is none.
func (t *Table) Get(ctx context.Context, key []byte) (*Record, error) {
	return t.get(ctx, key, url.Values{})
}

// GetAtLeast waits until the key's partition has the record at this offset, as a write has returned it.
func (t *Table) GetAtLeast(ctx context.Context, key []byte, offset int64, wait time.Duration) (*Record, error) {
	query := url.Values{"at_least": {strconv.FormatInt(offset, 10)}, "wait_ms": {strconv.FormatInt(wait.Milliseconds(), 10)}}
	return t.get(ctx, key, query)
}

func (t *Table) get(ctx context.Context, key []byte, query url.Values) (*Record, error) {
	query.Set("key", "base64url")
	query.Set("value", "base64")
	var row Record
	path := Path{"topic": t.topic, "key": base64.RawURLEncoding.EncodeToString(key)}
	err := t.client.Call(ctx, OpReadTableKey, path, query, nil, &row)
	var problem *Problem
	if errors.As(err, &problem) && problem.Code == "unknown_key" {
		return nil, nil
	}
	row.Topic = t.topic
	return &row, err
}

// Rows yields the table page by page; the last row of a key counts. It ends after the first error.
func (t *Table) Rows(ctx context.Context) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		query := url.Values{"value": {"base64"}}
		for {
			var page struct {
				Positions string
				Complete  bool
				Rows      []Record
			}
			if err := t.client.Call(ctx, OpReadTable, Path{"topic": t.topic}, query, nil, &page); err != nil {
				yield(Record{}, err)
				return
			}
			for _, row := range page.Rows {
				row.Topic = t.topic
				if !yield(row, nil) {
					return
				}
			}
			if page.Complete {
				return
			}
			query.Set("positions", page.Positions)
		}
	}
}
