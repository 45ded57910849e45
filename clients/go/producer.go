package penstock

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// ProducerOptions: zero values are the defaults.
type ProducerOptions struct {
	BatchBytes  int           // a batch is sent when it has this many, 256 KiB
	Linger      time.Duration // and after this time at the latest, 5 ms
	InFlight    int           // requests at once for a partition, 4, at most 16
	BufferBytes int           // records without an outcome, 32 MiB; Send waits for room
	Delivery    time.Duration // how long a batch is tried, 2 minutes
}

const (
	learnPartitions = time.Minute
	identityTime    = time.Minute
)

// A Producer gathers records of any topics into batches by partition, and stores each once and in order.
type Producer struct {
	client     *Client
	options    ProducerOptions
	context    context.Context
	stop       context.CancelFunc
	running    sync.WaitGroup
	learning   sync.Mutex
	mutex      sync.Mutex
	changed    *sync.Cond
	topics     map[string]*topicLanes
	identity   *identity
	asking     sync.Mutex
	bytes      int
	encoded    []byte // the record that is being placed
	unanswered int
	tally      tally
	failure    *Problem
	linger     *time.Timer
	closed     bool
}

type topicLanes struct {
	partitions int
	askedAt    time.Time
	lanes      map[int]*lane
	current    int
}

// Producer makes a producer. Close it.
func (c *Client) Producer(options ProducerOptions) (*Producer, error) {
	defaults := ProducerOptions{256 << 10, 5 * time.Millisecond, 4, 32 << 20, 2 * time.Minute}
	options = ProducerOptions{
		BatchBytes: orDefault(options.BatchBytes, defaults.BatchBytes), Linger: orDefault(options.Linger, defaults.Linger),
		InFlight: orDefault(options.InFlight, defaults.InFlight), BufferBytes: orDefault(options.BufferBytes, defaults.BufferBytes),
		Delivery: orDefault(options.Delivery, defaults.Delivery),
	}
	if options.InFlight < 1 || options.InFlight > 16 {
		return nil, fmt.Errorf("penstock: InFlight is 1 to 16, not %d", options.InFlight)
	}
	ctx, stop := context.WithCancel(context.Background())
	p := &Producer{client: c, options: options, context: ctx, stop: stop, topics: map[string]*topicLanes{}}
	p.changed = sync.NewCond(&p.mutex)
	return p, nil
}

// Send queues a record, and waits while there is no room or the topic's partitions are not known. A Delivery that is not
// waited for does no harm: Flush and Close return the first failure.
func (p *Producer) Send(ctx context.Context, topic string, record NewRecord) (*Delivery, error) {
	if err := p.learn(ctx, topic); err != nil {
		return nil, err
	}
	record = p.client.traced(ctx, record)
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if size := len(record.Key) + len(record.Value); p.bytes > 0 && p.bytes+size > p.options.BufferBytes {
		p.closeBatches()
		if err := p.wait(ctx, func() bool { return p.bytes == 0 || p.bytes+size <= p.options.BufferBytes || p.closed }); err != nil {
			return nil, err
		}
	}
	if p.closed {
		return nil, &Problem{Code: "client_closed", Detail: "the producer is closed"}
	}
	p.encoded = appendFromKey(p.encoded[:0], record)
	return p.place(topic, record), nil
}

func (p *Producer) place(topic string, record NewRecord) *Delivery {
	known := p.topics[topic]
	free := record.Partition == nil && record.Key == nil
	partition := known.current
	if record.Partition != nil {
		partition = *record.Partition
	} else if record.Key != nil {
		partition = PartitionOf(record.Key, known.partitions)
	}
	l := known.lanes[partition]
	if l == nil {
		l = &lane{producer: p, topic: topic, partition: partition, window: 1, changed: make(chan struct{})}
		known.lanes[partition] = l
	}
	isTimed := !record.Time.IsZero()
	if l.open != nil && (len(l.open.data)+len(p.encoded) > p.options.BatchBytes || l.open.isTimed != isTimed) {
		l.closeBatch()
	}
	if l.open == nil {
		l.open = newBatch(isTimed)
		l.open.decided, l.open.until = &group{done: make(chan struct{})}, time.Now().Add(p.options.Delivery)
	}
	delivery := &Delivery{decided: l.open.decided}
	before := len(l.open.data)
	l.open.add(record.Time, p.encoded, delivery)
	l.open.decided.left++
	l.open.counted += len(l.open.data) - before
	p.bytes += len(l.open.data) - before
	p.unanswered++
	if len(l.open.data) >= p.options.BatchBytes {
		l.closeBatch()
		if free {
			known.current = (known.current + 1) % known.partitions
		}
	} else if p.linger == nil {
		p.linger = time.AfterFunc(p.options.Linger, func() {
			p.mutex.Lock()
			defer p.mutex.Unlock()
			p.closeBatches()
		})
	}
	return delivery
}

// closeBatches sends what lingers. With the mutex.
func (p *Producer) closeBatches() {
	if p.linger != nil {
		p.linger.Stop()
		p.linger = nil
	}
	for _, topic := range p.topics {
		for _, l := range topic.lanes {
			l.closeBatch()
		}
		topic.current = (topic.current + 1) % topic.partitions
	}
}

// Flush waits until no record is without an outcome, and returns the first failure since the last Flush.
func (p *Producer) Flush(ctx context.Context) error {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.closeBatches()
	if err := p.wait(ctx, func() bool { return p.unanswered == 0 }); err != nil {
		return err
	}
	if failure := p.failure; failure != nil {
		p.failure = nil
		return failure
	}
	return nil
}

// Close flushes and stops. When ctx ends first, requests under way are stopped, and their records may be stored.
func (p *Producer) Close(ctx context.Context) error {
	p.mutex.Lock()
	p.closed = true
	p.changed.Broadcast()
	p.mutex.Unlock()
	err := p.Flush(ctx)
	p.stop()
	p.running.Wait()
	return err
}

// wait waits for a condition, with the mutex.
func (p *Producer) wait(ctx context.Context, done func() bool) error {
	stop := context.AfterFunc(ctx, func() {
		p.mutex.Lock()
		defer p.mutex.Unlock()
		p.changed.Broadcast()
	})
	defer stop()
	for !done() {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		p.changed.Wait()
	}
	return nil
}

func (p *Producer) learn(ctx context.Context, name string) error {
	if p.partitionsKnown(name) {
		return nil
	}
	p.learning.Lock()
	defer p.learning.Unlock()
	if p.partitionsKnown(name) {
		return nil
	}
	count, err := p.client.partitions(ctx, name)
	p.mutex.Lock()
	defer p.mutex.Unlock()
	known := p.topics[name]
	if known == nil {
		if err != nil {
			return err
		}
		known = &topicLanes{lanes: map[int]*lane{}, current: rand.IntN(count)}
		p.topics[name] = known
	}
	known.askedAt = time.Now()
	if err == nil {
		known.partitions = count
	}
	return nil
}

func (p *Producer) partitionsKnown(name string) bool {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	known := p.topics[name]
	return known != nil && time.Since(known.askedAt) < learnPartitions
}

// newIdentity returns the producer's id, or another one in place of lost.
func (p *Producer) newIdentity(lost *identity) (*identity, error) {
	p.asking.Lock()
	defer p.asking.Unlock()
	if p.identity != nil && (lost == nil || *p.identity != *lost) {
		return p.identity, nil
	}
	ctx, cancel := context.WithTimeout(p.context, identityTime)
	defer cancel()
	var given identity
	if err := p.client.Call(ctx, OpCreateProducer, nil, nil, nil, &given); err != nil {
		return nil, err
	}
	p.identity = &given
	return p.identity, nil
}

func (c *Client) partitions(ctx context.Context, topic string) (int, error) {
	var described struct{ Partitions []struct{} }
	if err := c.Call(ctx, OpDescribeTopic, Path{"topic": topic}, nil, nil, &described); err != nil {
		return 0, err
	}
	if len(described.Partitions) == 0 {
		return 0, &Problem{Code: "not_a_node", Detail: "a topic without partitions"}
	}
	return len(described.Partitions), nil
}

func orDefault[T comparable](given, standard T) T {
	var zero T
	if given == zero {
		return standard
	}
	return given
}
