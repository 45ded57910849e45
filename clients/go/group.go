package penstock

import (
	"context"
	"errors"
	"iter"
	"strconv"
	"sync"
	"time"
)

// GroupOptions: zero values are the defaults.
type GroupOptions struct {
	MemberID   string // which no other client has; a restart with the same name keeps its partitions
	Filter     []string
	MaxRecords int
	MaxBytes   int
	Wait       time.Duration // of a poll, 20 s
	Work       time.Duration // heartbeats keep the partitions for so long while the loop works on a delivery, 5 minutes
	// OnLost is called when the membership was lost: what was not committed is delivered again.
	OnLost func()
}

// The membership has ended: the next poll joins.
var ended = map[string]bool{"stale_token": true, "invalid_token": true, "unknown_member": true, "member_fenced": true, "unknown_group": true}

// A topic was deleted: the coordinator takes its partitions away.
var deleted = map[string]bool{"unknown_topic": true, "topic_id_mismatch": true}

const firstHeartbeat = 400 * time.Millisecond

// A GroupConsumer is a member of a consumer group, for one goroutine. A poll commits the delivery before it.
type GroupConsumer struct {
	client    *Client
	group     string
	topics    []string
	options   GroupOptions
	token     string
	failed    []failedRecord
	finished  map[string]position
	ends      []position
	failures  int
	closed    bool
	mutex     sync.Mutex // of what the heartbeat changes
	epoch     int64
	heartbeat time.Duration
	stop      context.CancelFunc
	beating   sync.WaitGroup
}

type position struct {
	Topic     string `json:"topic"`
	Partition int    `json:"partition"`
	Offset    int64  `json:"offset"`
}

type failedRecord struct {
	position
	Error string `json:"error"`
}

// Group makes a member, which joins with its first poll. Close it.
func (c *Client) Group(group string, topics []string, options GroupOptions) *GroupConsumer {
	if options.MemberID == "" {
		options.MemberID = randomName("go-")
	}
	return &GroupConsumer{client: c, group: group, topics: topics, options: options, heartbeat: firstHeartbeat}
}

// Records yields records until the loop or ctx ends; it ends after the first error. A record is finished when the next
// one is asked for. Close commits the finished ones.
func (g *GroupConsumer) Records(ctx context.Context) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		for {
			records, err := g.Poll(ctx)
			if err != nil {
				yield(Record{}, err)
				return
			}
			epoch := g.memberEpoch()
			for _, record := range records {
				if g.memberEpoch() != epoch {
					break // lost while the loop worked
				}
				if g.failureOf(record.Topic, record.Partition) != nil {
					continue
				}
				if !yield(record, nil) {
					return
				}
				g.Finish(record)
			}
		}
	}
}

// Finish marks a record of the present delivery as done, for Close. Poll finishes the whole delivery.
func (g *GroupConsumer) Finish(record Record) {
	if g.finished == nil {
		g.finished = map[string]position{}
	}
	key := strconv.Itoa(record.Partition) + "/" + record.Topic
	g.finished[key] = position{record.Topic, record.Partition, record.NextOffset}
}

// Fail reports the first record of its partition that could not be processed: it is delivered again, with those behind it.
func (g *GroupConsumer) Fail(record Record, reason error) {
	if g.failureOf(record.Topic, record.Partition) == nil {
		text := []rune(reason.Error())
		g.failed = append(g.failed, failedRecord{position{record.Topic, record.Partition, record.Offset}, string(text[:min(len(text), 1000)])})
	}
}

func (g *GroupConsumer) failureOf(topic string, partition int) *failedRecord {
	for index := range g.failed {
		if g.failed[index].Topic == topic && g.failed[index].Partition == partition {
			return &g.failed[index]
		}
	}
	return nil
}

// Poll commits the last delivery, as far as no record of it failed, and returns the next; empty if nothing came in time.
func (g *GroupConsumer) Poll(ctx context.Context) ([]Record, error) {
	until := time.Now().Add(g.client.config.Deadline)
	for {
		g.stopHeartbeat()
		if g.memberEpoch() == 0 {
			g.forget()
		}
		body := struct {
			Topics     []string       `json:"topics"`
			Token      string         `json:"token"`
			WaitMS     int64          `json:"wait_ms"`
			Value      string         `json:"value"`
			Failed     []failedRecord `json:"failed,omitempty"`
			Filter     []string       `json:"filter,omitempty"`
			MaxRecords int            `json:"max_records,omitempty"`
			MaxBytes   int            `json:"max_bytes,omitempty"`
		}{g.topics, g.token, orDefault(g.options.Wait, 20*time.Second).Milliseconds(), "base64", g.failed,
			g.options.Filter, g.options.MaxRecords, g.options.MaxBytes}
		var answer struct {
			Token       string
			MemberEpoch int64 `json:"member_epoch"`
			Partitions  []fetchedPart
		}
		err := g.client.Call(ctx, OpGroupPoll, Path{"group": g.group, "member": g.options.MemberID}, nil, body, &answer)
		var problem *Problem
		if errors.As(err, &problem) && !g.closed {
			ofTopics := deleted[problem.Code] && g.memberEpoch() != 0 && time.Now().Before(until) // they may come back
			if ofTopics || ended[problem.Code] {
				g.failures++
				if err := sleep(ctx, retryDelay(problem, g.failures)); err != nil {
					return nil, err
				}
				if !ofTopics {
					g.lose()
				}
				continue
			}
		}
		if err != nil {
			return nil, err
		}
		g.forget()
		g.token = answer.Token
		g.mutex.Lock()
		g.epoch = answer.MemberEpoch
		g.mutex.Unlock()
		return g.take(ctx, answer.Partitions)
	}
}

func (g *GroupConsumer) take(ctx context.Context, parts []fetchedPart) ([]Record, error) {
	var records []Record
	var failure *Problem
	for _, part := range parts {
		if part.Problem != nil {
			if failure = problemOf(0, part.Problem, 0); !failure.Retryable && !deleted[failure.Code] {
				return nil, failure
			}
			continue
		}
		for _, record := range part.Records {
			record.Topic, record.Partition = part.Topic, part.Partition
			records = append(records, record)
		}
		g.ends = append(g.ends, position{part.Topic, part.Partition, part.NextOffset})
	}
	if len(records) > 0 {
		g.failures = 0
		g.startHeartbeat()
	} else if failure != nil {
		g.failures++
		return nil, sleep(ctx, retryDelay(failure, g.failures))
	}
	return records, nil
}

// Commit commits all records of the present delivery. It is false if another member has some of the partitions by now.
func (g *GroupConsumer) Commit(ctx context.Context) (bool, error) { return g.commit(ctx, g.ends) }

func (g *GroupConsumer) commit(ctx context.Context, positions []position) (bool, error) {
	epoch := g.memberEpoch()
	if len(positions) == 0 || epoch == 0 {
		return len(positions) == 0, nil
	}
	body := struct {
		MemberID    string     `json:"member_id"`
		MemberEpoch int64      `json:"member_epoch"`
		Offsets     []position `json:"offsets"`
	}{MemberID: g.options.MemberID, MemberEpoch: epoch}
	for _, committed := range positions {
		if failed := g.failureOf(committed.Topic, committed.Partition); failed != nil {
			committed.Offset = min(committed.Offset, failed.Offset)
		}
		body.Offsets = append(body.Offsets, committed)
	}
	err := g.client.Call(ctx, OpCommitGroupOffsets, Path{"group": g.group}, nil, body, nil)
	var problem *Problem
	if err == nil || !errors.As(err, &problem) || !ended[problem.Code] && problem.Code != "unknown_topic" {
		return err == nil, err
	}
	if len(positions) > 1 { // a commit stores all of its positions or none
		for index := range positions {
			if _, err := g.commit(ctx, positions[index:index+1]); err != nil {
				return false, err
			}
		}
	}
	return false, nil
}

// Close commits the finished records and leaves the group: the others get its partitions at once.
func (g *GroupConsumer) Close(ctx context.Context) error {
	g.stopHeartbeat()
	if g.closed || g.memberEpoch() == 0 {
		return nil
	}
	g.closed = true
	finished := make([]position, 0, len(g.finished))
	for _, done := range g.finished {
		finished = append(finished, done)
	}
	_, err := g.commit(ctx, finished)
	path := Path{"group": g.group, "member": g.options.MemberID}
	return errors.Join(err, g.client.Call(ctx, OpLeaveGroup, path, nil, nil, nil))
}

func (g *GroupConsumer) memberEpoch() int64 {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	return g.epoch
}

func (g *GroupConsumer) forget() {
	g.token, g.failed, g.finished, g.ends = "", nil, nil, nil
}

func (g *GroupConsumer) lose() {
	g.mutex.Lock()
	was := g.epoch
	g.epoch = 0
	g.mutex.Unlock()
	if was != 0 && g.options.OnLost != nil {
		g.options.OnLost()
	}
}

func (g *GroupConsumer) startHeartbeat() {
	ctx, stop := context.WithTimeout(context.Background(), orDefault(g.options.Work, 5*time.Minute))
	g.stop = stop
	g.beating.Add(1)
	go func() {
		defer g.beating.Done()
		for sleep(ctx, g.heartbeat) == nil {
			var answer struct {
				HeartbeatMS int64 `json:"heartbeat_ms"`
			}
			body := map[string]any{"member_id": g.options.MemberID, "member_epoch": g.memberEpoch()}
			err := g.client.Call(ctx, OpGroupHeartbeat, Path{"group": g.group}, nil, body, &answer)
			var problem *Problem
			if errors.As(err, &problem) && ended[problem.Code] {
				g.lose()
				return
			}
			if err == nil && answer.HeartbeatMS > 0 {
				g.heartbeat = time.Duration(answer.HeartbeatMS) * time.Millisecond
			}
		}
	}()
}

func (g *GroupConsumer) stopHeartbeat() {
	if g.stop != nil {
		g.stop()
		g.beating.Wait()
		g.stop = nil
	}
}
