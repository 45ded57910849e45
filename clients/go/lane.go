package penstock

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"
)

const (
	epochMax      = 32_767
	sequences     = 1 << 31
	forgotten     = time.Minute // after a pause the node may have forgotten the producer: one batch goes alone
	restartsMax   = 8           // in a row, because the node does not know the numbers before these
	unknownOffset = -1
)

type laneBreak struct {
	order     int
	maybeDone bool
	idLost    bool
}

type identity struct {
	ID    int64 `json:"producer_id"`
	Epoch int   `json:"producer_epoch"`
}

// A lane sends the batches of one partition with sequence numbers: several at once, each stored once and in order. The
// producer's mutex guards it.
//
// A batch that fails for good leaves a hole in the numbers, and those behind it can never be stored under theirs. The lane
// then waits for every answer, raises its epoch, and sends what was not stored under new numbers. If the failed batch may
// still arrive, a batch behind it with an unknown outcome may too: it fails as MaybeDone.
type lane struct {
	producer   *Producer
	topic      string
	partition  int
	open       *batch
	ready      []*batch
	inFlight   []*batch
	again      []*batch
	identity   *identity
	epoch      int
	sequence   int64
	order      int
	window     int
	answeredAt time.Time
	restarts   int
	broken     *laneBreak
	fenced     *Problem
	asking     bool
	changed    chan struct{}
}

// closeBatch makes a batch of the open records, and sends what may be sent.
func (l *lane) closeBatch() {
	if l.open != nil {
		l.ready = append(l.ready, l.open)
		l.open = nil
	}
	l.pump()
}

func (l *lane) pump() {
	if l.fenced != nil {
		for _, waiting := range l.ready {
			l.fail(waiting, l.fenced)
		}
		l.ready = nil
	}
	if l.broken != nil || len(l.ready) == 0 {
		return
	}
	if l.identity == nil {
		l.askIdentity(nil)
		return
	}
	if len(l.inFlight) == 0 && time.Since(l.answeredAt) > forgotten {
		l.window = 1
	}
	for len(l.inFlight) < l.window && len(l.ready) > 0 {
		next := l.ready[0]
		l.ready = l.ready[1:]
		next.order = l.order
		l.order++
		next.sent = l.requestOf(next)
		l.sequence = (l.sequence + int64(len(next.deliveries))) % sequences
		l.inFlight = append(l.inFlight, next)
		l.producer.running.Add(1)
		go l.send(next)
	}
}

func (l *lane) askIdentity(lost *identity) {
	if l.asking {
		return
	}
	l.asking = true
	l.producer.running.Add(1)
	go func() {
		defer l.producer.running.Done()
		given, err := l.producer.newIdentity(lost)
		l.producer.mutex.Lock()
		defer l.producer.mutex.Unlock()
		l.asking = false
		if err != nil {
			for _, waiting := range l.ready {
				l.fail(waiting, asProblem(err))
			}
			l.ready = nil
		} else {
			l.identity, l.epoch, l.sequence, l.window = given, given.Epoch, 0, 1
		}
		l.pump()
	}()
}

func (l *lane) requestOf(next *batch) request {
	target := fmt.Sprintf("/v1/topics/%s/partitions/%d/records", url.PathEscape(l.topic), l.partition)
	header := http.Header{"Content-Type": {"application/vnd.penstock.recordbatch"}}
	return request{method: "POST", target: target, body: next.encode(l.identity, l.epoch, l.sequence), repeatable: true, header: header}
}

func (l *lane) send(sent *batch) {
	p := l.producer
	defer p.running.Done()
	for attempt := 1; ; attempt++ {
		p.mutex.Lock()
		oldest := l.inFlight[0] == sent // before it is sent: later its answer may be older than the others
		p.mutex.Unlock()
		answer, err := p.client.attempt(p.context, sent.sent, sent.until)
		var stored produced
		if err == nil {
			stored, err = producedOf(answer)
		}
		p.mutex.Lock()
		l.answeredAt = time.Now()
		delay, again := l.onAnswer(sent, stored, err, attempt, oldest)
		changed := l.changed
		first := again && l.inFlight[0] == sent
		p.mutex.Unlock()
		if !again {
			return
		}
		if delay == 0 {
			attempt = 0
			if !first { // one before it is on its way
				<-changed
			}
		} else if sleep(p.context, delay) != nil {
			p.mutex.Lock()
			l.breakAt(sent, false)
			l.settle(sent, nil, &Problem{Code: "client_closed", Detail: "the producer was stopped", MaybeDone: sent.maybeDone})
			p.mutex.Unlock()
			return
		}
	}
}

// onAnswer returns again if the batch is to be sent once more: after the delay, or without one after a change of the lane.
func (l *lane) onAnswer(sent *batch, stored produced, err error, attempt int, oldest bool) (delay time.Duration, again bool) {
	if err == nil {
		l.store(sent, stored)
		return 0, false
	}
	problem := asProblem(err)
	wasMaybeDone := sent.maybeDone
	sent.maybeDone = sent.maybeDone || problem.MaybeDone
	switch {
	case problem.Code == "duplicate_older_than_window":
		l.store(sent, produced{Duplicate: true})
	case problem.Code == "producer_fenced":
		l.fenced = problem
		l.settle(sent, nil, problem)
	case l.broken != nil && sent.order > l.broken.order:
		if l.broken.maybeDone && sent.maybeDone {
			l.settle(sent, nil, problem)
		} else {
			l.settle(sent, []*batch{sent}, nil)
		}
	case problem.Code == "unknown_producer", problem.Code == "sequence_gap" && oldest:
		l.breakAt(sent, problem.Code == "unknown_producer") // the node does not know what was before these numbers
		l.restarts++
		if sent.maybeDone || l.restarts > restartsMax {
			l.settle(sent, nil, problem)
		} else {
			l.settle(sent, []*batch{sent}, nil)
		}
	case problem.Code == "sequence_gap":
		return 0, true
	default:
		delay = retryDelay(problem, attempt) + 1
		if mayRetry(problem, true) && time.Now().Add(delay).Before(sent.until) {
			return delay, true
		}
		ofOne := problem.Status == 400 || problem.Status == 413 || problem.Status == 422 // one record may be to blame
		l.breakAt(sent, false)
		if ofOne && len(sent.deliveries) > 1 && !wasMaybeDone && !problem.MaybeDone {
			l.settle(sent, sent.halves(), nil)
		} else {
			l.settle(sent, nil, problem)
		}
	}
	return 0, false
}

func (l *lane) breakAt(failed *batch, idLost bool) {
	if l.broken == nil {
		l.broken = &laneBreak{order: failed.order}
	}
	l.broken.order = min(l.broken.order, failed.order)
	l.broken.maybeDone = l.broken.maybeDone || failed.maybeDone
	l.broken.idLost = l.broken.idLost || idLost
}

func (l *lane) store(stored *batch, answer produced) {
	l.restarts, l.window = 0, l.producer.options.InFlight
	for rank, delivery := range stored.deliveries {
		delivery.position = Position{l.topic, l.partition, unknownOffset}
		if answer.BaseOffset != nil {
			delivery.position.Offset = *answer.BaseOffset + int64(rank)
		}
	}
	l.producer.tally.onStored(l.topic, len(stored.deliveries), answer)
	l.done(stored)
	l.settle(stored, nil, nil)
}

// settle ends a batch's time in flight: with an error, or with batches to send in its place.
func (l *lane) settle(settled *batch, again []*batch, problem *Problem) {
	l.inFlight = slices.DeleteFunc(l.inFlight, func(other *batch) bool { return other == settled })
	if problem != nil {
		if settled.maybeDone {
			problem = problem.asMaybeDone()
		}
		l.fail(settled, problem)
	}
	for _, part := range again {
		part.maybeDone = false
	}
	l.again = append(l.again, again...)
	if l.broken != nil && len(l.inFlight) == 0 {
		slices.SortStableFunc(l.again, func(a, b *batch) int { return a.order - b.order })
		l.ready = append(l.again, l.ready...)
		l.again = nil
		l.epoch, l.sequence, l.window = l.epoch+1, 0, 1
		if l.broken.idLost || l.epoch > epochMax {
			lost := l.identity
			l.identity = nil
			l.askIdentity(lost)
		}
		l.broken = nil
	}
	close(l.changed)
	l.changed = make(chan struct{})
	l.pump()
}

func (l *lane) fail(failed *batch, problem *Problem) {
	for _, delivery := range failed.deliveries {
		delivery.problem = problem
	}
	l.producer.tally.failed += int64(len(failed.deliveries))
	if l.producer.failure == nil {
		l.producer.failure = problem
	}
	l.done(failed)
}

func (l *lane) done(decided *batch) {
	p := l.producer
	p.bytes -= decided.counted
	p.unanswered -= len(decided.deliveries)
	if decided.decided.left -= len(decided.deliveries); decided.decided.left == 0 {
		close(decided.decided.done)
	}
	p.changed.Broadcast()
}

// produced is a result of the answer to a produce.
type produced struct {
	BaseOffset *int64 `json:"base_offset"`
	Timestamp  *int64
	Duplicate  bool
}

func producedOf(answer []byte) (produced, error) {
	var given struct{ Results []produced }
	if json.Unmarshal(answer, &given) != nil || len(given.Results) == 0 {
		detail := "the answer to a produce has no position"
		return produced{}, &Problem{Code: "not_a_node", Detail: detail, Retryable: true, MaybeDone: true}
	}
	return given.Results[0], nil
}

// Delivery is the outcome of one record.
type Delivery struct {
	position Position
	problem  *Problem
	decided  *group
}

// Position of a stored record. Offset is -1 if a repeat was recognised whose position the node has forgotten.
type Position struct {
	Topic     string
	Partition int
	Offset    int64
}

// group is the records of a batch as it was filled: halves of the batch share it.
type group struct {
	left int
	done chan struct{}
}

// Wait waits until the record's batch is decided. The error is a *Problem whose MaybeDone says whether it may be stored.
func (d *Delivery) Wait(ctx context.Context) (Position, error) {
	select {
	case <-d.decided.done:
	case <-ctx.Done():
		return Position{}, ctx.Err()
	}
	if d.problem != nil {
		return Position{}, d.problem
	}
	return d.position, nil
}
