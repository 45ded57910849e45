package penstock

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"time"
)

// A batch of one partition in the form in which the node stores it: Kafka's RecordBatch v2. Its records are decided one
// after the other if it is halved; decided waits for all.
type batch struct {
	data       []byte // room for the head, then the records
	isTimed    bool   // the records have times of their own; otherwise they get that of their arrival
	base       int64  // the time of the first, in milliseconds
	latest     int64
	counted    int // bytes in the producer's buffer
	deliveries []*Delivery
	decided    *group
	until      time.Time
	order      int
	maybeDone  bool
	sent       request
}

const (
	headBytes   = 61
	prefixBytes = 12 // which the length in the head does not count
	noTimestamp = -1
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func newBatch(isTimed bool) *batch {
	return &batch{data: make([]byte, headBytes, 4096), isTimed: isTimed, base: noTimestamp, latest: noTimestamp}
}

// add appends a record whose encoding from the key on is given.
func (b *batch) add(at time.Time, fromKey []byte, delivery *Delivery) {
	var delta int64
	if b.isTimed {
		if len(b.deliveries) == 0 {
			b.base = at.UnixMilli()
		}
		delta = at.UnixMilli() - b.base
		b.latest = max(b.latest, at.UnixMilli())
	}
	b.append(delta, fromKey, delivery)
}

func (b *batch) append(timeDelta int64, fromKey []byte, delivery *Delivery) {
	var buffer [1 + 2*binary.MaxVarintLen64]byte
	head := binary.AppendVarint(buffer[:1], timeDelta) // after the attributes, which are 0
	head = binary.AppendVarint(head, int64(len(b.deliveries)))
	b.data = binary.AppendVarint(b.data, int64(len(head)+len(fromKey)))
	b.data = append(append(b.data, head...), fromKey...)
	b.deliveries = append(b.deliveries, delivery)
}

// encode fills the head in and returns the whole.
func (b *batch) encode(producer *identity, epoch int, sequence int64) []byte {
	if b.sent.body != nil { // the transport may still read it for an attempt that was given up
		b.data = bytes.Clone(b.data)
	}
	put := binary.BigEndian
	put.PutUint32(b.data[8:], uint32(len(b.data)-prefixBytes))
	b.data[16] = 2                                          // the magic byte
	put.PutUint32(b.data[23:], uint32(len(b.deliveries)-1)) // the last offset
	put.PutUint64(b.data[27:], uint64(b.base))
	put.PutUint64(b.data[35:], uint64(b.latest))
	put.PutUint64(b.data[43:], uint64(producer.ID))
	put.PutUint16(b.data[51:], uint16(epoch))
	put.PutUint32(b.data[53:], uint32(sequence))
	put.PutUint32(b.data[57:], uint32(len(b.deliveries)))
	put.PutUint32(b.data[17:], crc32.Checksum(b.data[21:], castagnoli))
	return b.data
}

// halves returns two batches of the records, which have the outcome of this one.
func (b *batch) halves() []*batch {
	parts := []*batch{newBatch(b.isTimed), newBatch(b.isTimed)}
	for _, part := range parts {
		part.base, part.latest, part.decided, part.until, part.order = b.base, b.latest, b.decided, b.until, b.order
	}
	parts[0].counted, parts[1].counted = b.counted/2, b.counted-b.counted/2
	rest := b.data[headBytes:]
	for rank, delivery := range b.deliveries {
		length, size := binary.Varint(rest)
		record := rest[size : size+int(length)]
		rest = rest[size+int(length):]
		timeDelta, timeSize := binary.Varint(record[1:])
		_, offsetSize := binary.Varint(record[1+timeSize:])
		parts[min(1, 2*rank/len(b.deliveries))].append(timeDelta, record[1+timeSize+offsetSize:], delivery)
	}
	return parts
}

// appendFromKey appends a record's encoding from the key on.
func appendFromKey(to []byte, record NewRecord) []byte {
	to = appendBytes(appendBytes(to, record.Key), record.Value)
	to = binary.AppendVarint(to, int64(len(record.Headers)))
	for _, header := range record.Headers {
		to = append(binary.AppendVarint(to, int64(len(header.Name))), header.Name...)
		to = appendBytes(to, header.Value)
	}
	return to
}

func appendBytes(to, value []byte) []byte {
	if value == nil {
		return binary.AppendVarint(to, -1)
	}
	return append(binary.AppendVarint(to, int64(len(value))), value...)
}
