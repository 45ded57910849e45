// JSON lines from stdin into one partition, each exactly once and in their order. Needs Go 1.19 or newer.
//
//	go run . URL TOPIC PARTITION <lines
//
// Producer ids and sequences as in docs/produce.md, with up to four requests at once.
// Says where each batch is stored; ends with 0 only if all are.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"math/rand"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"
)

const (
	inFlightMax = 4 // a node remembers the last 16 batches
	giveUp      = 10 * time.Minute
	sequences   = int64(1) << 31 // after 2^31-1 comes 0
)

var client = http.Client{Timeout: 40 * time.Second}

type answer struct {
	status     int
	retryAfter time.Duration
	body       struct {
		ProducerID    int64 `json:"producer_id"`
		ProducerEpoch int64 `json:"producer_epoch"`
		Code, Detail  string
		Results       []struct {
			BaseOffset int64 `json:"base_offset"`
		}
	}
}

type producer struct {
	records    string
	headers    http.Header
	mutex      sync.Mutex
	unanswered []int64 // sequences of the batches under way, in their order
}

// attempt sends a request once. An error means that nobody knows whether it was carried out.
func attempt(url string, headers http.Header, body []byte) (*answer, error) {
	request, err := http.NewRequest("POST", url, bytes.NewReader(body))
	if err != nil {
		log.Fatal(err)
	}
	request.Header = headers
	reply, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body) // an answer that was cut off is none
	if err != nil {
		return nil, err
	}
	seconds, _ := strconv.Atoi(reply.Header.Get("Retry-After"))
	one := &answer{status: reply.StatusCode, retryAfter: time.Duration(seconds) * time.Second}
	return one, json.Unmarshal(text, &one.body)
}

func isRepeatable(one *answer, err error) bool {
	return err != nil || one.status == 408 || one.status == 429 || one.status >= 500
}

func pause(one *answer, tries int) {
	wait := 2 * time.Second
	if tries < 6 {
		wait = 50 * time.Millisecond << tries
	}
	wait = wait/2 + time.Duration(rand.Int63n(int64(wait)))
	if one != nil && one.retryAfter > 0 {
		wait = one.retryAfter
	}
	time.Sleep(wait)
}

func newProducer(url, topic, partition string) *producer {
	for tries := 0; ; tries++ {
		one, err := attempt(url+"/v1/producers", http.Header{}, nil)
		if err == nil && one.status == 201 {
			headers := http.Header{}
			headers.Set("Content-Type", "application/x-ndjson")
			headers.Set("Producer-Id", strconv.FormatInt(one.body.ProducerID, 10))
			headers.Set("Producer-Epoch", strconv.FormatInt(one.body.ProducerEpoch, 10))
			return &producer{records: url + "/v1/topics/" + topic + "/partitions/" + partition + "/records", headers: headers}
		}
		if !isRepeatable(one, err) {
			log.Fatalf("no producer id: %+v", one.body)
		}
		pause(one, tries)
	}
}

// store sends a batch again and again until the answer says what became of it.
func (p *producer) store(sequence int64, which string, body []byte) {
	headers := p.headers.Clone()
	headers.Set("Producer-Seq", strconv.FormatInt(sequence, 10))
	since := time.Now()
	for tries := 0; time.Since(since) < giveUp; tries++ {
		isOldest := p.isOldest(sequence) // before it is sent: the answer may be older than others' answers
		one, err := attempt(p.records, headers, body)
		if err == nil && one.status == 200 {
			fmt.Printf("stored %s at %d\n", which, one.body.Results[0].BaseOffset)
			return
		}
		if err == nil && one.body.Code == "duplicate_older_than_window" {
			fmt.Printf("stored %s\n", which)
			return
		}
		if err == nil && one.body.Code == "sequence_gap" && !isOldest {
			pause(nil, 0) // one that goes before it is still on its way
			continue
		}
		if !isRepeatable(one, err) {
			log.Fatalf("refused for good: %+v", one.body)
		}
		pause(one, tries)
	}
	log.Fatalf("gave up: %s may be stored or not", which)
}

func (p *producer) isOldest(sequence int64) bool {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return p.unanswered[0] == sequence
}

func (p *producer) begin(sequence int64) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.unanswered = append(p.unanswered, sequence)
}

func (p *producer) end(sequence int64) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for n, one := range p.unanswered {
		if one == sequence {
			p.unanswered = append(p.unanswered[:n:n], p.unanswered[n+1:]...)
			return
		}
	}
}

func main() {
	log.SetFlags(0)
	batchLines := 100
	if text := os.Getenv("BATCH_LINES"); text != "" {
		batchLines, _ = strconv.Atoi(text)
	}
	p := newProducer(os.Args[1], os.Args[2], os.Args[3])
	slots := make(chan bool, inFlightMax)
	var sequence int64
	first := 1
	send := func(lines int, body []byte) {
		own, isFirst := sequence, first == 1
		which := fmt.Sprintf("lines %d-%d", first, first+lines-1)
		sequence = (sequence + int64(lines)) % sequences
		first += lines
		p.begin(own)
		if isFirst { // alone: until it is stored, the node cannot tell which sequence is the first
			p.store(own, which, body)
			p.end(own)
			return
		}
		slots <- true
		go func() {
			p.store(own, which, body)
			p.end(own)
			<-slots
		}()
	}
	input := bufio.NewScanner(os.Stdin)
	input.Buffer(nil, 1<<20)
	var body []byte
	lines := 0
	for input.Scan() {
		body = append(append(body, input.Bytes()...), '\n')
		if lines++; lines == batchLines {
			send(lines, body)
			lines, body = 0, nil
		}
	}
	if input.Err() != nil {
		log.Fatal(input.Err())
	}
	if lines > 0 {
		send(lines, body)
	}
	for n := 0; n < inFlightMax; n++ {
		slots <- true // all are free again: everything is stored
	}
}
