// The story of the clients for segmentio/kafka-go, which has no idempotent producer.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go"
)

const (
	partitions = 6
	firstTime  = 1_700_000_000_000
)

var (
	servers    []string
	topic      string
	records    int
	codecs     = []kafka.Compression{kafka.Gzip, kafka.Snappy, kafka.Lz4, kafka.Zstd}
	background = context.Background()
)

func main() {
	servers, topic = strings.Split(os.Args[1], ","), os.Args[2]
	replicas, _ := strconv.Atoi(os.Args[3])
	records, _ = strconv.Atoi(os.Args[4])
	seconds, _ := strconv.ParseFloat(os.Args[5], 64)
	client := &kafka.Client{Addr: kafka.TCP(servers...)}
	made, err := client.CreateTopics(background, &kafka.CreateTopicsRequest{
		Topics: []kafka.TopicConfig{{Topic: topic, NumPartitions: partitions, ReplicationFactor: replicas}}})
	check(err)
	check(made.Errors[topic])
	var seen sync.Map
	var distinct atomic.Int64
	running, stop := context.WithCancel(background)
	counts := make([]int, 3)
	var members sync.WaitGroup
	join := func(member int) {
		members.Add(1)
		go func() {
			defer members.Done()
			read(running, &seen, &distinct, &counts[member])
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
	stop()
	members.Wait()
	numbers := []int{0, 1, 2, 3, 4, 5}
	offsets, err := client.OffsetFetch(background, &kafka.OffsetFetchRequest{GroupID: topic, Topics: map[string][]int{topic: numbers}})
	check(err)
	var committed int64
	for _, one := range offsets.Topics[topic] {
		committed += max(one.CommittedOffset, 0)
	}
	fmt.Printf("{\"seen\": %d, \"members\": [%d, %d, %d], \"committed\": %d, \"after_half\": %d}\n",
		distinct.Load(), counts[0], counts[1], counts[2], committed, afterHalf())
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func produce(codec kafka.Compression, from, to int, seconds float64) {
	writer := &kafka.Writer{
		Addr: kafka.TCP(servers...), Topic: topic, Balancer: &kafka.Murmur2Balancer{}, RequiredAcks: kafka.RequireAll,
		Compression: codec, BatchTimeout: 5 * time.Millisecond, MaxAttempts: 100}
	var batch []kafka.Message
	for number := from; number < to; number++ {
		batch = append(batch, kafka.Message{
			Key:   []byte("k" + strconv.Itoa(number%97)),
			Value: []byte(strconv.Itoa(number)),
			Time:  time.UnixMilli(firstTime + int64(number)),
		})
		if number%20 == 19 || number == to-1 {
			check(writer.WriteMessages(background, batch...))
			batch = nil
			time.Sleep(time.Duration(seconds * 20 / float64(to-from) * float64(time.Second)))
		}
	}
	check(writer.Close())
}

func read(running context.Context, seen *sync.Map, distinct *atomic.Int64, count *int) {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: servers, GroupID: topic, Topic: topic, StartOffset: kafka.FirstOffset, MaxWait: 200 * time.Millisecond,
		SessionTimeout: 6 * time.Second, HeartbeatInterval: time.Second, RebalanceTimeout: 10 * time.Second})
	defer reader.Close()
	for {
		message, err := reader.FetchMessage(running)
		if errors.Is(err, context.Canceled) {
			return
		}
		check(err)
		*count++
		if _, was := seen.LoadOrStore(string(message.Value), true); !was {
			distinct.Add(1)
		}
		if err := reader.CommitMessages(background, message); err != nil {
			fmt.Fprintln(os.Stderr, "commit:", err)
		}
	}
}

// dialLeader asks one server after the other: one of them may be down.
func dialLeader(number int) *kafka.Conn {
	var connection *kafka.Conn
	var err error
	for _, server := range servers {
		if connection, err = kafka.DialLeader(background, "tcp", server, topic, number); err == nil {
			break
		}
	}
	check(err)
	return connection
}

// afterHalf reads from the time of the record in the middle to the end.
func afterHalf() int {
	count := 0
	for number := 0; number < partitions; number++ {
		connection := dialLeader(number)
		from, err := connection.ReadOffset(time.UnixMilli(firstTime + int64(records/2)))
		check(err)
		end, err := connection.ReadLastOffset()
		check(err)
		if from >= 0 && from < end {
			_, err = connection.Seek(from, kafka.SeekAbsolute)
			check(err)
			for next := from; next < end; {
				check(connection.SetReadDeadline(time.Now().Add(10 * time.Second)))
				message, err := connection.ReadMessage(1 << 20)
				check(err)
				count, next = count+1, message.Offset+1
			}
		}
		check(connection.Close())
	}
	return count
}
