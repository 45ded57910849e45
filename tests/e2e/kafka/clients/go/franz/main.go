// The story of the clients for franz-go.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	partitions = 6
	firstTime  = 1_700_000_000_000
)

var (
	servers, topic string
	records        int
	codecs         = []kgo.CompressionCodec{kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()}
	background     = context.Background()
)

func main() {
	servers, topic = os.Args[1], os.Args[2]
	replicas, _ := strconv.Atoi(os.Args[3])
	records, _ = strconv.Atoi(os.Args[4])
	seconds, _ := strconv.ParseFloat(os.Args[5], 64)
	admin := kadm.NewClient(client())
	check(admin.CreateTopic(background, partitions, int16(replicas), nil, topic))
	var seen sync.Map
	var distinct atomic.Int64
	var isDone atomic.Bool
	counts := make([]int, 3)
	var members sync.WaitGroup
	join := func(member int) {
		members.Add(1)
		go func() {
			defer members.Done()
			read(&seen, &distinct, &isDone, &counts[member])
		}()
	}
	join(0)
	join(1)
	time.Sleep(time.Second)
	for part, codec := range codecs {
		produce(codec, part*records/4, (part+1)*records/4, seconds/4)
		if part == 1 {
			join(2)
		}
	}
	for deadline := time.Now().Add(90 * time.Second); distinct.Load() < int64(records) && time.Now().Before(deadline); {
		time.Sleep(100 * time.Millisecond)
	}
	isDone.Store(true)
	members.Wait()
	var committed int64
	offsets, err := admin.FetchOffsets(background, topic)
	for range 2 { // it looks for the coordinator at one broker, which may be the dead one, and does not ask another
		if err != nil {
			offsets, err = admin.FetchOffsets(background, topic)
		}
	}
	check(nil, err)
	offsets.Each(func(one kadm.OffsetResponse) { committed += max(one.At, 0) })
	fmt.Printf("{\"seen\": %d, \"members\": [%d, %d, %d], \"committed\": %d, \"after_half\": %d}\n",
		distinct.Load(), counts[0], counts[1], counts[2], committed, afterHalf(admin))
}

func client(options ...kgo.Opt) *kgo.Client {
	made, err := kgo.NewClient(append(options, kgo.SeedBrokers(strings.Split(servers, ",")...))...)
	check(nil, err)
	return made
}

func check(_ any, err error) {
	if err != nil {
		panic(err)
	}
}

func produce(codec kgo.CompressionCodec, from, to int, seconds float64) {
	producer := client(kgo.ProducerBatchCompression(codec), kgo.ProducerLinger(5*time.Millisecond))
	defer producer.Close()
	for number := from; number < to; number++ {
		record := &kgo.Record{
			Topic:     topic,
			Key:       []byte("k" + strconv.Itoa(number%97)),
			Value:     []byte(strconv.Itoa(number)),
			Timestamp: time.UnixMilli(firstTime + int64(number)),
		}
		producer.Produce(background, record, func(_ *kgo.Record, err error) { check(nil, err) })
		if number%20 == 0 {
			time.Sleep(time.Duration(seconds * 20 / float64(to-from) * float64(time.Second)))
		}
	}
	check(nil, producer.Flush(background))
}

func read(seen *sync.Map, distinct *atomic.Int64, isDone *atomic.Bool, count *int) {
	consumer := client(
		kgo.ConsumerGroup(topic), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		kgo.SessionTimeout(6*time.Second), kgo.HeartbeatInterval(time.Second),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	defer consumer.Close()
	for !isDone.Load() {
		limited, cancel := context.WithTimeout(background, 200*time.Millisecond)
		fetches := consumer.PollFetches(limited)
		cancel()
		fetches.EachRecord(func(one *kgo.Record) {
			*count++
			if _, was := seen.LoadOrStore(string(one.Value), true); !was {
				distinct.Add(1)
			}
		})
		if !fetches.Empty() {
			if err := consumer.CommitUncommittedOffsets(background); err != nil {
				fmt.Fprintln(os.Stderr, "commit:", err)
			}
		}
		consumer.AllowRebalance()
	}
}

// afterHalf reads from the time of the record in the middle to the end.
func afterHalf(admin *kadm.Client) int {
	from, err := admin.ListOffsetsAfterMilli(background, firstTime+int64(records/2), topic)
	check(nil, err)
	ends, err := admin.ListEndOffsets(background, topic)
	check(nil, err)
	var left int64
	ends.Each(func(end kadm.ListedOffset) {
		start, _ := from.Lookup(topic, end.Partition)
		left += end.Offset - start.Offset
	})
	consumer := client(kgo.ConsumePartitions(from.KOffsets()))
	defer consumer.Close()
	count := 0
	for deadline := time.Now().Add(30 * time.Second); int64(count) < left && time.Now().Before(deadline); {
		limited, cancel := context.WithTimeout(background, time.Second)
		count += consumer.PollFetches(limited).NumRecords()
		cancel()
	}
	return count
}
