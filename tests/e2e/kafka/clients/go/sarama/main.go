// The story of the clients for sarama.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"
)

const (
	partitions = 6
	firstTime  = 1_700_000_000_000
)

var (
	servers    []string
	topic      string
	records    int
	codecs     = []sarama.CompressionCodec{sarama.CompressionGZIP, sarama.CompressionSnappy, sarama.CompressionLZ4, sarama.CompressionZSTD}
	background = context.Background()
)

func main() {
	servers, topic = splitServers(os.Args[1]), os.Args[2]
	replicas, _ := strconv.Atoi(os.Args[3])
	records, _ = strconv.Atoi(os.Args[4])
	seconds, _ := strconv.ParseFloat(os.Args[5], 64)
	admin, err := sarama.NewClusterAdmin(servers, config())
	check(err)
	check(admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: int16(replicas)}, false))
	group := &members{}
	leave := make([]func(), 0, 3)
	leave = append(leave, group.join(0), group.join(1))
	time.Sleep(time.Second)
	for part, codec := range codecs {
		produce(codec, part*records/4, (part+1)*records/4, seconds/4)
		if part == 1 {
			leave = append(leave, group.join(2))
		}
	}
	for deadline := time.Now().Add(90 * time.Second); group.distinct.Load() < int64(records) && time.Now().Before(deadline); {
		time.Sleep(100 * time.Millisecond)
	}
	for _, one := range leave {
		one()
	}
	var committed int64
	offsets, err := admin.ListConsumerGroupOffsets(topic, nil)
	check(err)
	for _, block := range offsets.Blocks[topic] {
		committed += max(block.Offset, 0)
	}
	fmt.Printf("{\"seen\": %d, \"members\": [%d, %d, %d], \"committed\": %d, \"after_half\": %d}\n",
		group.distinct.Load(), group.counts[0].Load(), group.counts[1].Load(), group.counts[2].Load(), committed, afterHalf())
}

func splitServers(text string) []string {
	var found []string
	for begin, at := 0, 0; at <= len(text); at++ {
		if at == len(text) || text[at] == ',' {
			found, begin = append(found, text[begin:at]), at+1
		}
	}
	return found
}

func config() *sarama.Config {
	made := sarama.NewConfig()
	made.Version = sarama.MaxVersion
	return made
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func produce(codec sarama.CompressionCodec, from, to int, seconds float64) {
	made := config()
	made.Producer.Idempotent = true
	made.Producer.RequiredAcks = sarama.WaitForAll
	made.Producer.Return.Successes = true
	made.Producer.Retry.Max = 100
	made.Producer.Flush.Frequency = 5 * time.Millisecond
	made.Producer.Compression = codec
	made.Net.MaxOpenRequests = 1
	producer, err := sarama.NewAsyncProducer(servers, made)
	check(err)
	var done sync.WaitGroup
	done.Add(to - from)
	go func() {
		for range producer.Successes() {
			done.Done()
		}
	}()
	go func() {
		for failed := range producer.Errors() {
			panic(failed)
		}
	}()
	for number := from; number < to; number++ {
		producer.Input() <- &sarama.ProducerMessage{
			Topic:     topic,
			Key:       sarama.StringEncoder("k" + strconv.Itoa(number%97)),
			Value:     sarama.StringEncoder(strconv.Itoa(number)),
			Timestamp: time.UnixMilli(firstTime + int64(number)),
		}
		if number%20 == 0 {
			time.Sleep(time.Duration(seconds * 20 / float64(to-from) * float64(time.Second)))
		}
	}
	done.Wait()
	check(producer.Close())
}

// members are those of one group, and what they have read.
type members struct {
	seen     sync.Map
	distinct atomic.Int64
	counts   [3]atomic.Int64
}

func (all *members) join(number int) (leave func()) {
	made := config()
	made.Consumer.Offsets.Initial = sarama.OffsetOldest
	made.Consumer.Offsets.AutoCommit.Enable = false
	made.Consumer.Group.Session.Timeout = 6 * time.Second
	made.Consumer.Group.Heartbeat.Interval = time.Second
	group, err := sarama.NewConsumerGroup(servers, topic, made)
	check(err)
	running, cancel := context.WithCancel(background)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for running.Err() == nil {
			if err := group.Consume(running, []string{topic}, &member{all, number}); err != nil {
				fmt.Fprintln(os.Stderr, "consume:", err)
				time.Sleep(100 * time.Millisecond)
			}
		}
	}()
	return func() {
		cancel()
		<-ended
		check(group.Close())
	}
}

// member is one of them.
type member struct {
	all    *members
	number int
}

func (*member) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (*member) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (one *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		one.all.counts[one.number].Add(1)
		if _, was := one.all.seen.LoadOrStore(string(message.Value), true); !was {
			one.all.distinct.Add(1)
		}
		session.MarkMessage(message, "")
		if message.Offset+1 == claim.HighWaterMarkOffset() {
			session.Commit()
		}
	}
	session.Commit()
	return nil
}

// afterHalf reads from the time of the record in the middle to the end.
func afterHalf() int {
	client, err := sarama.NewClient(servers, config())
	check(err)
	consumer, err := sarama.NewConsumerFromClient(client)
	check(err)
	count := 0
	for number := int32(0); number < partitions; number++ {
		from, err := client.GetOffset(topic, number, firstTime+int64(records/2))
		check(err)
		end, err := client.GetOffset(topic, number, sarama.OffsetNewest)
		check(err)
		if from < 0 || from >= end {
			continue
		}
		reader, err := consumer.ConsumePartition(topic, number, from)
		check(err)
		for message := range reader.Messages() {
			count++
			if message.Offset+1 >= end {
				break
			}
		}
		check(reader.Close())
	}
	return count
}
