package penstock_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	penstock "github.com/penstock/penstock/clients/go"
)

// A node that answers nothing until the request is given up.
func silent(t *testing.T) *penstock.Client {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/v1/topics/t") {
			w.Write([]byte(`{"partitions":[{}],"later":"unknown"}`))
		} else if strings.HasSuffix(r.URL.Path, "/producers") {
			w.Write([]byte(`{"producer_id":1,"producer_epoch":0}`))
		} else {
			io.Copy(io.Discard, r.Body) // before that the server does not see that the client has gone
			<-r.Context().Done()
		}
	}))
	t.Cleanup(server.Close)
	client, err := penstock.New(penstock.Config{URLs: []string{server.URL}})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func TestNoGoroutineIsLeftAfterCloseWhoseTimeIsOver(t *testing.T) {
	client := silent(t)
	before := runtime.NumGoroutine()
	producer, err := client.Producer(penstock.ProducerOptions{Linger: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	delivery, err := producer.Send(context.Background(), "t", penstock.NewRecord{Value: []byte("1")})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if producer.Close(ctx) == nil {
		t.Fatal("the node never answered")
	}
	if _, err := delivery.Wait(context.Background()); err == nil {
		t.Fatal("a record that may be stored has an error")
	}
	client.Close()
	for deadline := time.Now().Add(30 * time.Second); runtime.NumGoroutine() > before; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			stacks := make([]byte, 1<<16)
			t.Fatalf("goroutines are left:\n%s", stacks[:runtime.Stack(stacks, true)])
		}
	}
}

func TestEveryWaitEndsWithItsContext(t *testing.T) {
	client := silent(t)
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err := client.Append(ctx, "t", "", penstock.NewRecord{}); err == nil {
		t.Fatal("append")
	}
	for _, err := range client.Consumer("t", penstock.ConsumeOptions{}).Follow(ctx) {
		if err == nil {
			t.Fatal("follow")
		}
	}
	if _, err := client.Group("g", []string{"t"}, penstock.GroupOptions{}).Poll(ctx); err == nil {
		t.Fatal("poll")
	}
}
