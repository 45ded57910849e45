package penstock

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"
)

func TestPartitionOfIsThatOfKafka(t *testing.T) {
	// The hashes are those of Kafka's own test of murmur2.
	if got := PartitionOf([]byte("foobar"), 1<<31-1); got != (-790332482&0x7fffffff)%(1<<31-1) {
		t.Fatal(got)
	}
	if got := PartitionOf([]byte("a-little-bit-long-string"), 1<<31-1); got != (-985981536&0x7fffffff)%(1<<31-1) {
		t.Fatal(got)
	}
	if got := PartitionOf([]byte("abc"), 1<<31-1); got != 479470107 {
		t.Fatal(got)
	}
}

func TestALineIsDecodedAsItWasGiven(t *testing.T) {
	record := NewRecord{Key: []byte{0xff, 0}, Value: []byte("a\n\"b\""), Time: time.UnixMilli(17),
		Headers: []Header{{"h", []byte("1")}, {"h", nil}, {"g", []byte{0}}}}
	line := appendLine(nil, record)
	var document map[string]any
	if err := json.Unmarshal(line, &document); err != nil {
		t.Fatal(err)
	}
	document["offset"] = 3
	text, _ := json.Marshal(document)
	var got Record
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Key, record.Key) || !bytes.Equal(got.Value, record.Value) || !got.Timestamp.Equal(record.Time) || got.NextOffset != 4 {
		t.Fatalf("%+v", got)
	}
	if len(got.Headers) != 3 || got.Headers[0].Name != "g" || got.Headers[2].Value != nil {
		t.Fatalf("%+v", got.Headers)
	}
}

func TestHalvesOfABatchHaveItsRecords(t *testing.T) {
	at := time.UnixMilli(1_700_000_000_000)
	var whole = newBatch(true)
	for n := range 301 {
		record := NewRecord{Key: []byte{byte(n)}, Value: bytes.Repeat([]byte("v"), n), Headers: []Header{{"h", nil}}}
		whole.add(at.Add(time.Duration(n)*time.Millisecond), appendFromKey(nil, record), &Delivery{})
	}
	whole.counted = len(whole.data)
	parts := whole.halves()
	if len(parts[0].deliveries)+len(parts[1].deliveries) != 301 || parts[0].counted+parts[1].counted != len(whole.data) {
		t.Fatal(len(parts[0].deliveries), len(parts[1].deliveries))
	}
	if again := parts[0].halves(); !bytes.HasPrefix(whole.data[headBytes:], again[0].data[headBytes:]) {
		t.Fatal("the first records have changed")
	}
}

func FuzzRecord(f *testing.F) {
	for _, seed := range []string{`{"offset":1,"key":"k","value_base64":"YQ==","headers":{"a":["b",null,{"base64":"AA=="}]}}`,
		`{"offset":9223372036854775807}`, `{"offset":1,"last_offset":0}`, `null`, `[]`, `{"offset":1,"headers":{"a":[ ]}}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var record Record
		if json.Unmarshal(data, &record) == nil && record.Offset != 0 && record.NextOffset <= record.Offset {
			t.Fatalf("%s: a position that does not move: %+v", data, record)
		}
	})
}

func TestAProblemFollowsTheContract(t *testing.T) {
	lies := []byte(`{"code":"ack_timeout","retryable":false,"no_side_effects":true,"detail":"d","request_id":"r"}`)
	problem := problemOf(504, lies, 0)
	if !problem.Retryable || !problem.MaybeDone || problem.WhatToDo == "" || problem.RequestID != "r" {
		t.Fatalf("%+v", problem)
	}
	unknown := problemOf(503, []byte(`{"code":"of_a_later_version","retryable":true,"no_side_effects":true,"new":{}}`), 0)
	if !unknown.Retryable || unknown.MaybeDone {
		t.Fatalf("%+v", unknown)
	}
	if proxy := problemOf(502, []byte("<html>"), 0); !proxy.Retryable || !proxy.MaybeDone {
		t.Fatalf("%+v", proxy)
	}
}
