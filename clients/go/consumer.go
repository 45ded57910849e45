package penstock

import (
	"context"
	"encoding/json"
	"iter"
	"net/url"
	"strconv"
	"time"
)

// Positions of a topic: where to continue. Save them with the result of the work.
type Positions struct {
	TopicID string        `json:"topicId,omitempty"`
	Offsets map[int]int64 `json:"offsets"`
}

// ConsumeOptions: zero values read all partitions from the earliest record.
type ConsumeOptions struct {
	From       *Positions
	Latest     bool
	Since      time.Time // begin at the first record of this time
	Partitions []int
	Filter     []string // conditions that the node checks; all must hold
	MaxBytes   int
	Wait       time.Duration // of a long poll, 20 s
	// OutOfRange says where to go on if records were deleted before they were read or the topic was made again:
	// "earliest", "latest", or an error without it.
	OutOfRange string
}

// A Consumer reads the partitions of a topic by positions that the caller keeps. It is for one goroutine.
type Consumer struct {
	client    *Client
	topic     string
	options   ConsumeOptions
	topicID   string
	offsets   map[int]int64
	ends      map[int]int64
	order     []int
	learnedAt time.Time
	failures  int
}

const learnNewPartitions = 30 * time.Second

// Consumer makes a reader of a topic.
func (c *Client) Consumer(topic string, options ConsumeOptions) *Consumer {
	return &Consumer{client: c, topic: topic, options: options, offsets: map[int]int64{}, ends: map[int]int64{}}
}

// Positions are those after the last record that was handed out.
func (c *Consumer) Positions() Positions {
	offsets := make(map[int]int64, len(c.offsets))
	for partition, offset := range c.offsets {
		offsets[partition] = offset
	}
	return Positions{c.topicID, offsets}
}

// Records yields what the partitions have now. It ends after the first error.
func (c *Consumer) Records(ctx context.Context) iter.Seq2[Record, error] { return c.read(ctx, false) }

// Follow yields records and waits for more, until the loop ends or ctx does.
func (c *Consumer) Follow(ctx context.Context) iter.Seq2[Record, error] { return c.read(ctx, true) }

func (c *Consumer) read(ctx context.Context, following bool) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		for {
			if len(c.offsets) == 0 || following && time.Since(c.learnedAt) > learnNewPartitions {
				if err := c.learn(ctx, c.options.From); err != nil {
					yield(Record{}, err)
					return
				}
			}
			var asked []int
			for _, partition := range c.order {
				if following || c.offsets[partition] < c.ends[partition] {
					asked = append(asked, partition)
				}
			}
			if len(asked) == 0 {
				return
			}
			fetched, err := c.fetch(ctx, asked, following)
			if err != nil {
				yield(Record{}, err)
				return
			}
			for _, part := range fetched {
				for _, record := range part.Records {
					record.Topic, record.Partition = c.topic, part.Partition
					c.offsets[part.Partition] = record.NextOffset
					if !yield(record, nil) {
						return
					}
				}
				c.offsets[part.Partition] = part.NextOffset
			}
		}
	}
}

type fetchedPart struct {
	Topic      string
	Partition  int
	NextOffset int64 `json:"next_offset"`
	Records    []Record
	Problem    json.RawMessage
}

func (c *Consumer) fetch(ctx context.Context, asked []int, following bool) ([]fetchedPart, error) {
	type slot struct {
		Topic     string `json:"topic"`
		Partition int    `json:"partition"`
		Offset    int64  `json:"offset"`
		TopicID   string `json:"topic_id,omitempty"`
	}
	body := struct {
		Partitions []slot   `json:"partitions"`
		WaitMS     int64    `json:"wait_ms"`
		Value      string   `json:"value"`
		MaxBytes   int      `json:"max_bytes,omitempty"`
		Filter     []string `json:"filter,omitempty"`
	}{Value: "base64", MaxBytes: c.options.MaxBytes, Filter: c.options.Filter}
	for _, partition := range asked {
		body.Partitions = append(body.Partitions, slot{c.topic, partition, c.offsets[partition], c.topicID})
	}
	if following {
		body.WaitMS = orDefault(c.options.Wait, 20*time.Second).Milliseconds()
	}
	var answer struct{ Partitions []fetchedPart }
	if err := c.client.Call(ctx, OpFetchMany, nil, nil, body, &answer); err != nil {
		// of an answer of which no partition could be read, the problem has the entries
		if problem := asProblem(err); json.Unmarshal(problem.Members, &answer) != nil || answer.Partitions == nil {
			return nil, err
		}
	}
	var fetched []fetchedPart
	var failure *Problem
	hasRecords := false
	for _, part := range answer.Partitions {
		if part.Problem == nil {
			fetched = append(fetched, part)
			hasRecords = hasRecords || len(part.Records) > 0
		} else if problem := problemOf(0, part.Problem, 0); problem.Retryable {
			failure = problem
		} else if err := c.reposition(ctx, part.Partition, problem); err != nil {
			return nil, err
		}
	}
	if failure == nil {
		c.failures = 0
		return fetched, nil
	}
	c.failures++
	if hasRecords {
		return fetched, nil
	}
	return fetched, sleep(ctx, retryDelay(failure, c.failures))
}

func (c *Consumer) reposition(ctx context.Context, partition int, problem *Problem) error {
	if c.options.OutOfRange == "" {
		return problem
	}
	if problem.Code == "topic_id_mismatch" {
		c.topicID = ""
		clear(c.offsets)
		c.order = nil
		return c.learn(ctx, nil)
	}
	var bounds struct {
		LogStart      *int64 `json:"log_start"`
		HighWatermark *int64 `json:"high_watermark"`
	}
	if json.Unmarshal(problem.Members, &bounds) != nil || bounds.LogStart == nil || bounds.HighWatermark == nil {
		return problem
	}
	c.offsets[partition] = *bounds.HighWatermark
	if c.options.OutOfRange == "earliest" {
		c.offsets[partition] = *bounds.LogStart
	}
	return nil
}

func (c *Consumer) learn(ctx context.Context, from *Positions) error {
	first := len(c.order) == 0
	if from != nil && first {
		c.topicID = from.TopicID
	}
	numbers := c.options.Partitions
	if numbers == nil {
		count, err := c.client.partitions(ctx, c.topic)
		if err != nil {
			return err
		}
		for partition := range count {
			numbers = append(numbers, partition)
		}
	}
	for _, partition := range numbers {
		if _, ok := c.offsets[partition]; ok {
			continue
		}
		var found struct {
			TopicID       string `json:"topic_id"`
			LogStart      int64  `json:"log_start"`
			HighWatermark int64  `json:"high_watermark"`
			Offset        *int64
		}
		query := url.Values{}
		if !c.options.Since.IsZero() {
			query.Set("timestamp", strconv.FormatInt(c.options.Since.UnixMilli(), 10))
		}
		path := Path{"topic": c.topic, "partition": strconv.Itoa(partition)}
		if err := c.client.Call(ctx, OpFindOffsets, path, query, nil, &found); err != nil {
			return err
		}
		if c.topicID == "" {
			c.topicID = found.TopicID
		}
		start := found.LogStart
		if c.options.Latest && first {
			start = found.HighWatermark
		} else if !c.options.Since.IsZero() {
			start = found.HighWatermark
			if found.Offset != nil {
				start = *found.Offset
			}
		}
		if from != nil {
			if saved, ok := from.Offsets[partition]; ok {
				start = saved
			}
		}
		c.offsets[partition], c.ends[partition] = start, found.HighWatermark
		c.order = append(c.order, partition)
	}
	c.learnedAt = time.Now()
	return nil
}
