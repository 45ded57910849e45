package penstock

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"sort"
	"strings"
	"time"
	"unicode/utf8"
)

// A Header of a record. Names may repeat; a nil value is null.
type Header struct {
	Name  string
	Value []byte
}

// A Record as it is stored.
type Record struct {
	Topic     string
	Partition int
	Offset    int64
	Timestamp time.Time
	Key       []byte // nil without a key
	Value     []byte // nil for a tombstone
	Headers   []Header
	// DeliveryCount is how often a share group has delivered it; 0 elsewhere.
	DeliveryCount int
	// Undecodable: stored bytes up to NextOffset that are no records; there is no value.
	Undecodable bool
	NextOffset  int64
}

// NewRecord is a record to be stored: bytes as they are.
type NewRecord struct {
	Key     []byte
	Value   []byte // nil is a tombstone
	Headers []Header
	// Time is that of the arrival if it is zero.
	Time time.Time
	// Partition is chosen by the key, or freely, if it is nil.
	Partition *int
}

// JSON returns a record whose value is the JSON of v.
func JSON(v any) (NewRecord, error) {
	value, err := json.Marshal(v)
	return NewRecord{Value: value}, err
}

type headerJSON struct{ value []byte }

func (h *headerJSON) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		h.value = nil
		return nil
	}
	if len(data) > 0 && data[0] == '{' {
		var binary struct{ Base64 []byte }
		err := json.Unmarshal(data, &binary)
		h.value = binary.Base64
		return err
	}
	var text string
	err := json.Unmarshal(data, &text)
	h.value = []byte(text)
	return err
}

type recordJSON struct {
	Topic         string
	Partition     int
	Offset        *int64
	LastOffset    *int64 `json:"last_offset"`
	Timestamp     int64
	Key           *string
	KeyBase64     []byte          `json:"key_base64"`
	ValueBase64   []byte          `json:"value_base64"`
	Headers       json.RawMessage `json:"headers"`
	Error         string
	DeliveryCount int `json:"delivery_count"`
}

// UnmarshalJSON decodes a record of an answer with value=base64. Its topic and partition may come from around it.
func (r *Record) UnmarshalJSON(data []byte) error {
	var given recordJSON
	if err := json.Unmarshal(data, &given); err != nil {
		return err
	}
	if given.Offset == nil || *given.Offset < 0 || *given.Offset == 1<<63-1 {
		return fmt.Errorf("a record without an offset: %.80s", data)
	}
	last := *given.Offset
	if given.LastOffset != nil {
		last = *given.LastOffset
	}
	if last < *given.Offset || last == 1<<63-1 {
		return fmt.Errorf("the last offset %d is before the first %d", last, *given.Offset)
	}
	*r = Record{Topic: given.Topic, Partition: given.Partition, Offset: *given.Offset, NextOffset: last + 1,
		Timestamp: time.UnixMilli(given.Timestamp), Key: given.KeyBase64, Value: given.ValueBase64,
		DeliveryCount: given.DeliveryCount, Undecodable: given.Error != ""}
	if given.Key != nil {
		r.Key = []byte(*given.Key)
	}
	headers, err := decodeHeaders(given.Headers)
	r.Headers = headers
	return err
}

func decodeHeaders(data json.RawMessage) ([]Header, error) {
	if len(data) <= 2 || string(data) == "null" { // {}
		return nil, nil
	}
	var given map[string]json.RawMessage
	if err := json.Unmarshal(data, &given); err != nil {
		return nil, err
	}
	names := make([]string, 0, len(given))
	for name := range given {
		names = append(names, name)
	}
	sort.Strings(names)
	var headers []Header
	for _, name := range names {
		values := make([]headerJSON, 1)
		into := any(&values[0])
		if strings.HasPrefix(strings.TrimLeft(string(given[name]), " \t\r\n"), "[") {
			into = &values
		}
		if err := json.Unmarshal(given[name], into); err != nil {
			return nil, err
		}
		for _, value := range values {
			headers = append(headers, Header{name, value.value})
		}
	}
	return headers, nil
}

// appendLine appends a record as a line of ndjson=records.
func appendLine(line []byte, record NewRecord) []byte {
	if record.Value == nil {
		line = append(line, `{"value":null`...)
	} else {
		line = append(line, `{"value_base64":"`...)
		line = base64.StdEncoding.AppendEncode(line, record.Value)
		line = append(line, '"')
	}
	if record.Key != nil {
		if utf8.Valid(record.Key) {
			line = append(append(line, `,"key":`...), quoted(string(record.Key))...)
		} else {
			line = base64.StdEncoding.AppendEncode(append(line, `,"key_base64":"`...), record.Key)
			line = append(line, '"')
		}
	}
	if !record.Time.IsZero() {
		line = fmt.Appendf(line, `,"timestamp":%d`, record.Time.UnixMilli())
	}
	if record.Partition != nil {
		line = fmt.Appendf(line, `,"partition":%d`, *record.Partition)
	}
	if len(record.Headers) > 0 {
		line = append(append(line, `,"headers":`...), headersJSON(record.Headers)...)
	}
	return append(line, '}', '\n')
}

func headersJSON(headers []Header) []byte {
	byName := map[string][]any{}
	for _, header := range headers {
		var value any
		if header.Value != nil {
			value = map[string][]byte{"base64": header.Value}
		}
		byName[header.Name] = append(byName[header.Name], value)
	}
	text, err := json.Marshal(byName)
	if err != nil {
		panic(err) // maps of strings and bytes have a JSON
	}
	return text
}

func quoted(text string) []byte {
	line, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return line
}

// PartitionOf returns the partition that Kafka's clients and the node choose for a key: murmur2.
func PartitionOf(key []byte, partitions int) int {
	const m = 0x5bd1e995
	h := 0x9747b28c ^ uint32(len(key))
	for ; len(key) >= 4; key = key[4:] {
		k := uint32(key[0]) | uint32(key[1])<<8 | uint32(key[2])<<16 | uint32(key[3])<<24
		k *= m
		k ^= k >> 24
		h = h*m ^ k*m
	}
	switch len(key) {
	case 3:
		h ^= uint32(key[2]) << 16
		fallthrough
	case 2:
		h ^= uint32(key[1]) << 8
		fallthrough
	case 1:
		h = (h ^ uint32(key[0])) * m
	}
	h = (h ^ h>>13) * m
	return int((h^h>>15)&0x7fffffff) % partitions
}
