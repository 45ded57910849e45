package penstock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"testing"
	"time"

	penstock "github.com/penstock/penstock/clients/go"
)

// The examples need a node: PENSTOCK_URL. `make clients-tests` starts one and creates their topics.
func TestMain(m *testing.M) {
	if os.Getenv("PENSTOCK_URL") == "" {
		os.Setenv("PENSTOCK_URL", "http://127.0.0.1:8080")
	}
	os.Exit(m.Run())
}

func newClient() *penstock.Client {
	client, err := penstock.New(penstock.Config{URLs: []string{os.Getenv("PENSTOCK_URL")}})
	if err != nil {
		log.Fatal(err)
	}
	return client
}

func ExampleClient_Producer() {
	ctx, client := context.Background(), newClient()
	defer client.Close()
	producer, err := client.Producer(penstock.ProducerOptions{})
	if err != nil {
		log.Fatal(err)
	}
	record, err := penstock.JSON(map[string]any{"km": 12})
	if err != nil {
		log.Fatal(err)
	}
	record.Key = []byte("line-1")
	delivery, err := producer.Send(ctx, "go-rides", record)
	if err != nil {
		log.Fatal(err)
	}
	if err := producer.Close(ctx); err != nil {
		log.Fatal(err)
	}
	position, err := delivery.Wait(ctx)
	fmt.Println(position.Topic, position.Offset >= 0, err)
	// Output: go-rides true <nil>
}

func ExampleConsumer_Records() {
	ctx, client := context.Background(), newClient()
	defer client.Close()
	if _, err := client.Append(ctx, "go-visits", "visit-1", penstock.NewRecord{Value: []byte(`"a"`)}); err != nil {
		log.Fatal(err)
	}
	consumer := client.Consumer("go-visits", penstock.ConsumeOptions{})
	for record, err := range consumer.Records(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(record.Offset, string(record.Value)) // the work
	}
	fmt.Println(consumer.Positions().Offsets)
	// Output:
	// 0 "a"
	// map[0:1]
}

func ExampleProblem() {
	client := newClient()
	defer client.Close()
	err := client.Call(context.Background(), penstock.OpDescribeTopic, penstock.Path{"topic": "nothing"}, nil, nil, nil)
	var problem *penstock.Problem
	if errors.As(err, &problem) {
		fmt.Println(problem.Status, problem.Code, problem.Retryable, problem.MaybeDone)
	}
	fmt.Println(errors.Is(err, penstock.ErrUnknownTopic))
	// Output:
	// 404 unknown_topic false false
	// true
}

func ExampleGroupConsumer_Records() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client := newClient()
	defer client.Close()
	if _, err := client.Append(ctx, "go-mails", "mail-1", penstock.NewRecord{Value: []byte(`"hello"`)}); err != nil {
		log.Fatal(err)
	}
	member := client.Group("mail", []string{"go-mails"}, penstock.GroupOptions{MemberID: "mail-1"})
	for record, err := range member.Records(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(string(record.Value)) // the work
		member.Finish(record)
		break // a worker does not stop
	}
	fmt.Println(member.Close(ctx))
	// Output:
	// "hello"
	// <nil>
}
