// Runs stories with the Go client: a JSON command on each line of stdin, JSON answers on stdout (tests/clients/runner.py).
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	penstock "github.com/penstock/penstock/clients/go"
)

type command struct {
	ID         int
	Do         string
	Stop       int
	Topic      string
	Key        string
	Records    json.RawMessage
	Options    struct{ BatchBytes, LingerMs int }
	Count      int
	Follow     bool
	From       json.RawMessage
	Filter     []string
	Group      string
	Member     string
	Keep       string
	Hold       int
	Value      string
	OutOfRange string
	Outcomes   map[string]string
	AtLeast    int64 `json:"at_least"`
	Body       string
	Headers    map[string]string
	Secrets    []string
	NowMS      int64 `json:"now_ms"`
	Path       json.RawMessage
	Method     string
	Position   string
	URL        string
	Bytes      int
}

type given struct {
	Value     json.RawMessage
	Key       *string
	Partition *int
}

const late = 1500 * time.Millisecond // longer than a lock of the stories

var (
	client  *penstock.Client
	writing sync.Mutex
	stops   sync.Map
	kept    sync.Map     // producers that stay, by the name of Keep
	token   atomic.Value // the present one, a string
	trace   atomic.Value // the present traceparent, a string
)

func say(line map[string]any) {
	text, err := json.Marshal(line)
	check(err)
	writing.Lock()
	defer writing.Unlock()
	os.Stdout.Write(append(text, '\n'))
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func row(record penstock.Record) map[string]any {
	return map[string]any{"partition": record.Partition, "offset": record.Offset, "key": string(record.Key), "value": string(record.Value), "count": record.DeliveryCount, "trace": record.TraceContext()["traceparent"]}
}

func records(text json.RawMessage) []penstock.NewRecord {
	var all []given
	check(json.Unmarshal(text, &all))
	made := make([]penstock.NewRecord, len(all))
	for index, one := range all {
		made[index] = penstock.NewRecord{Value: one.Value, Partition: one.Partition}
		if one.Key != nil {
			made[index].Key = []byte(*one.Key)
		}
	}
	return made
}

func run(ctx context.Context, c command) (any, error) {
	switch c.Do {
	case "produce":
		producer := producerOf(c)
		var sent []*penstock.Delivery
		for _, record := range records(c.Records) {
			delivery, err := producer.Send(ctx, c.Topic, record)
			if err != nil {
				return nil, err
			}
			sent = append(sent, delivery)
		}
		finish := producer.Close
		if c.Keep != "" {
			finish = producer.Flush
		}
		if err := finish(ctx); err != nil {
			return nil, err
		}
		positions := [][]int64{}
		for _, delivery := range sent {
			position, err := delivery.Wait(ctx)
			check(err)
			positions = append(positions, []int64{int64(position.Partition), position.Offset})
		}
		return positions, nil
	case "count":
		producer, err := client.Producer(penstock.ProducerOptions{BatchBytes: 200})
		check(err)
		for _, record := range records(c.Records) {
			if _, err := producer.Send(ctx, c.Topic, record); err != nil {
				return nil, err
			}
		}
		if err := producer.Flush(ctx); err != nil {
			return nil, err
		}
		now := producer.Statistics()
		statistics := []int64{now.RecordsAcknowledged, now.RecordsFailed, int64(now.Unanswered), int64(now.BufferedBytes)}
		return map[string]any{"counts": producer.TakeAcceptedCounts(), "left": producer.TakeAcceptedCounts(), "statistics": statistics}, producer.Close(ctx)
	case "append":
		appended, err := client.Append(ctx, c.Topic, c.Key, records(c.Records)...)
		rows := []any{}
		for _, one := range appended {
			rows = append(rows, map[string]any{"partition": one.Partition, "baseOffset": one.BaseOffset, "isDuplicate": one.Duplicate})
		}
		return rows, err
	case "consume":
		options := penstock.ConsumeOptions{Filter: c.Filter, OutOfRange: c.OutOfRange}
		if len(c.From) > 0 && c.From[0] == '{' {
			options.From = &penstock.Positions{}
			check(json.Unmarshal(c.From, options.From))
		}
		consumer := client.Consumer(c.Topic, options)
		loop := consumer.Records(ctx)
		if c.Follow {
			loop = consumer.Follow(ctx)
		}
		for record, err := range loop {
			if err != nil {
				return nil, err
			}
			say(map[string]any{"id": c.ID, "record": row(record)})
			if c.Count--; c.Count == 0 {
				break
			}
		}
		return consumer.Positions(), nil
	case "work":
		member := client.Group(c.Group, []string{c.Topic}, penstock.GroupOptions{MemberID: c.Member})
		for record, err := range member.Records(ctx) {
			if err != nil {
				return nil, errors.Join(ignoreCancelled(err), member.Close(context.Background()))
			}
			say(map[string]any{"id": c.ID, "record": row(record)})
			if c.Hold--; c.Hold == 0 {
				select {} // at work, so that it is never finished
			}
		}
	case "queue":
		for job, err := range client.Queue(c.Group, []string{c.Topic}, penstock.QueueOptions{Wait: 2 * time.Second}).Jobs(ctx) {
			if err != nil {
				return nil, err
			}
			outcome := c.Outcomes[string(job.Value)]
			if job.DeliveryCount == 1 && outcome == "hold" {
				say(map[string]any{"id": c.ID, "record": row(job.Record)})
				select {}
			}
			if job.DeliveryCount == 1 && outcome == "late" {
				time.Sleep(late)
			}
			switch {
			case job.DeliveryCount == 1 && outcome == "release":
				err = job.Release(ctx, 0, nil)
			case job.DeliveryCount == 1 && outcome == "reject":
				err = job.Reject(ctx, nil)
			default:
				err = job.Accept(ctx)
			}
			if err != nil {
				return nil, err
			}
			say(map[string]any{"id": c.ID, "record": row(job.Record)})
			if c.Count--; c.Count == 0 {
				break
			}
		}
	case "look_up":
		table := client.Table(c.Topic)
		record, err := table.GetAtLeast(ctx, []byte(c.Key), c.AtLeast, 5*time.Second)
		if err != nil || record == nil {
			return nil, err
		}
		return row(*record), nil
	case "table":
		rows := map[string]string{}
		for record, err := range client.Table(c.Topic).Rows(ctx) {
			if err != nil {
				return nil, err
			}
			rows[string(record.Key)] = string(record.Value)
		}
		return rows, nil
	case "verify":
		header := http.Header{}
		for name, value := range c.Headers {
			header.Set(name, value)
		}
		event, err := penstock.VerifyWebhook([]byte(c.Body), header, c.Secrets, time.UnixMilli(c.NowMS))
		if err != nil {
			return nil, err
		}
		return event.ID, nil
	case "events":
		options := penstock.EventOptions{Earliest: string(c.From) == `"earliest"`, Position: c.Position, Filter: c.Filter, OutOfRange: c.OutOfRange, URL: c.URL}
		stream := client.Events(c.Topic, options)
		for record, err := range stream.Records(ctx) {
			if err != nil {
				return nil, err
			}
			say(map[string]any{"id": c.ID, "record": row(record)})
			if c.Count--; c.Count == 0 {
				break
			}
		}
		return stream.Position(), nil
	case "sign":
		var path string
		check(json.Unmarshal(c.Path, &path))
		return client.SignURL(ctx, path, penstock.SignOptions{Method: c.Method})
	case "set_trace":
		trace.Store(c.Value)
	case "set_token":
		token.Store(c.Value)
	case "call":
		var path penstock.Path
		check(json.Unmarshal(c.Path, &path))
		return nil, client.Call(ctx, penstock.OpDescribeTopic, path, nil, nil, nil)
	case "load":
		return load(ctx, c)
	}
	return nil, nil
}

func producerOf(c command) *penstock.Producer {
	if producer, ok := kept.Load(c.Keep); ok {
		return producer.(*penstock.Producer)
	}
	options := penstock.ProducerOptions{BatchBytes: c.Options.BatchBytes, Linger: time.Duration(c.Options.LingerMs) * time.Millisecond}
	producer, err := client.Producer(options)
	check(err)
	if c.Keep != "" {
		kept.Store(c.Keep, producer)
	}
	return producer
}

func load(ctx context.Context, c command) (any, error) {
	var count int
	check(json.Unmarshal(c.Records, &count))
	producer, err := client.Producer(penstock.ProducerOptions{})
	check(err)
	record, err := penstock.JSON(strings.Repeat("x", c.Bytes-2))
	check(err)
	began := time.Now()
	for range count {
		if _, err := producer.Send(ctx, c.Topic, record); err != nil {
			return nil, err
		}
	}
	err = producer.Close(ctx)
	return float64(count) / time.Since(began).Seconds(), err
}

func ignoreCancelled(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

func answer(ctx context.Context, c command) {
	done, err := run(ctx, c)
	var problem *penstock.Problem
	switch {
	case err == nil:
		say(map[string]any{"id": c.ID, "done": done})
	case errors.As(err, &problem):
		say(map[string]any{"id": c.ID, "error": map[string]any{"code": problem.Code, "status": problem.Status, "retryable": problem.Retryable, "maybe_done": problem.MaybeDone}})
	default:
		say(map[string]any{"id": c.ID, "error": map[string]any{"code": err.Error()}})
	}
}

// work prints the values, as the workers of docs/examples/workers do.
func work(group, topic, member string) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	consumer := client.Group(group, []string{topic}, penstock.GroupOptions{MemberID: member})
	for record, err := range consumer.Records(ctx) {
		if err != nil {
			check(ignoreCancelled(err))
			break
		}
		fmt.Println(string(record.Value))
	}
	check(consumer.Close(context.Background()))
}

// timeOf returns the milliseconds that a variable has; 0 is the client's default.
func timeOf(variable string) time.Duration {
	milliseconds, _ := strconv.Atoi(os.Getenv(variable))
	return time.Duration(milliseconds) * time.Millisecond
}

func main() {
	var err error
	token.Store(os.Getenv("PENSTOCK_TOKEN"))
	trace.Store("")
	traced := func(context.Context) map[string]string {
		return map[string]string{"traceparent": trace.Load().(string)}
	}
	client, err = penstock.New(penstock.Config{URLs: strings.Split(os.Getenv("PENSTOCK_URL"), ","),
		TraceContext: traced, Token: func() string { return token.Load().(string) }, Attempt: timeOf("PENSTOCK_ATTEMPT_MS"), Deadline: timeOf("PENSTOCK_DEADLINE_MS")})
	check(err)
	if len(os.Args) == 4 {
		work(os.Args[1], os.Args[2], os.Args[3])
		return
	}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<26)
	for lines.Scan() {
		var c command
		check(json.Unmarshal(lines.Bytes(), &c))
		if c.Do == "stop" {
			if stop, ok := stops.Load(c.Stop); ok {
				stop.(context.CancelFunc)()
			}
			continue
		}
		ctx, stop := context.WithCancel(context.Background())
		stops.Store(c.ID, stop)
		go answer(ctx, c)
	}
}
