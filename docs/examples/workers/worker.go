// A worker of a consumer group with Go's standard library only.
// usage: PENSTOCK_URL=http://127.0.0.1:8080 go run worker.go GROUP TOPIC MEMBER
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

type record struct {
	Value json.RawMessage `json:"value"`
}

type answer struct {
	Token      string `json:"token"`
	Code       string `json:"code"`
	Detail     string `json:"detail"`
	Partitions []struct {
		Records []record `json:"records"`
	} `json:"partitions"`
}

var client = http.Client{Timeout: 30 * time.Second}

// poll returns an answer or a problem, which has a code.
func poll(url, topic, token string) (found answer, err error) {
	body, _ := json.Marshal(map[string]any{"topics": []string{topic}, "token": token, "wait_ms": 20000})
	response, err := client.Post(url+"/poll", "application/json", bytes.NewReader(body))
	if err != nil {
		return found, err
	}
	defer response.Body.Close()
	err = json.NewDecoder(response.Body).Decode(&found)
	return found, err
}

func work(one record) {
	fmt.Println(string(one.Value))
}

// leave gives the partitions to the other members at once.
func leave(url string) {
	request, _ := http.NewRequest(http.MethodDelete, url, nil)
	if response, err := client.Do(request); err == nil {
		response.Body.Close()
	}
	os.Exit(0)
}

func main() {
	group, topic, member := os.Args[1], os.Args[2], os.Args[3]
	url := fmt.Sprintf("%s/v1/groups/%s/members/%s", os.Getenv("PENSTOCK_URL"), group, member)
	stopping := make(chan os.Signal, 1)
	signal.Notify(stopping, syscall.SIGTERM)
	go func() { <-stopping; leave(url) }()
	token := ""
	for {
		found, err := poll(url, topic, token)
		switch {
		case err != nil:
			time.Sleep(time.Second) // then the same request once more
			continue
		case found.Code == "stale_token":
			token = ""
			continue
		case found.Token == "":
			fmt.Fprintln(os.Stderr, found.Detail)
			time.Sleep(time.Second)
			continue
		}
		for _, partition := range found.Partitions {
			for _, one := range partition.Records {
				work(one)
			}
		}
		token = found.Token // the next poll commits these records
	}
}
