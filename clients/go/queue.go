package penstock

import (
	"context"
	"iter"
	"time"
)

// QueueOptions: zero values are the defaults.
type QueueOptions struct {
	MemberID   string
	MaxRecords int           // of an answer, 10
	Lock       time.Duration // the group's setting
	Wait       time.Duration // 20 s
}

// A Queue is a caller of a share group, which hands out single records.
type Queue struct {
	client  *Client
	group   string
	topics  []string
	options QueueOptions
}

// Queue makes a caller of a share group.
func (c *Client) Queue(group string, topics []string, options QueueOptions) *Queue {
	return &Queue{c, group, topics, options}
}

// A Job is a record under a lock. Without an outcome it is delivered again when the lock ends.
type Job struct {
	Record
	queue *Queue
	lock  string
}

// Jobs yields jobs as they come; it ends after the first error. Those that were not handed out are released at the end.
func (q *Queue) Jobs(ctx context.Context) iter.Seq2[*Job, error] {
	return func(yield func(*Job, error) bool) {
		for {
			jobs, err := q.Acquire(ctx)
			if err != nil {
				yield(nil, err)
				return
			}
			for index, job := range jobs {
				if !yield(job, nil) {
					for _, left := range jobs[index+1:] {
						if left.Release(ctx, 0, nil) != nil {
							return // its lock ends by itself
						}
					}
					return
				}
			}
		}
	}
}

// Acquire locks records; none if none came in time.
func (q *Queue) Acquire(ctx context.Context) ([]*Job, error) {
	body := struct {
		Topics     []string `json:"topics"`
		MaxRecords int      `json:"max_records"`
		WaitMS     int64    `json:"wait_ms"`
		Value      string   `json:"value"`
		MemberID   string   `json:"member_id,omitempty"`
		LockMS     int64    `json:"lock_ms,omitempty"`
	}{q.topics, orDefault(q.options.MaxRecords, 10), orDefault(q.options.Wait, 20*time.Second).Milliseconds(), "base64",
		q.options.MemberID, q.options.Lock.Milliseconds()}
	var acquired struct {
		Lock    string
		Records []Record
	}
	if err := q.client.Call(ctx, OpAcquireRecords, Path{"group": q.group}, nil, body, &acquired); err != nil {
		return nil, err
	}
	jobs := make([]*Job, 0, len(acquired.Records))
	for _, record := range acquired.Records {
		jobs = append(jobs, &Job{record, q, acquired.Lock})
	}
	return jobs, nil
}

// Accept: the record is done. A repeat of an outcome is harmless. The error is ErrLockExpired or ErrLockUnknown if the lock
// is over.
func (j *Job) Accept(ctx context.Context) error { return j.answer(ctx, "accept", nil, 0, nil) }

// Release: the record is delivered again after the delay; a negative one is the group's.
func (j *Job) Release(ctx context.Context, delay time.Duration, reason error) error {
	if delay < 0 {
		return j.answer(ctx, "release", nil, 0, reason)
	}
	ms := delay.Milliseconds()
	return j.answer(ctx, "release", &ms, 0, reason)
}

// Reject: the record is never delivered again; it is a dead letter.
func (j *Job) Reject(ctx context.Context, reason error) error {
	return j.answer(ctx, "reject", nil, 0, reason)
}

// Extend: the record stays locked for this long from now.
func (j *Job) Extend(ctx context.Context, lock time.Duration) error {
	return j.answer(ctx, "extend", nil, lock.Milliseconds(), nil)
}

func (j *Job) answer(ctx context.Context, outcome string, delayMS *int64, lockMS int64, reason error) error {
	type slot struct {
		position
		LastOffset int64 `json:"last_offset"`
	}
	body := struct {
		Lock    string `json:"lock"`
		Outcome string `json:"outcome"`
		DelayMS *int64 `json:"delay_ms,omitempty"`
		LockMS  int64  `json:"lock_ms,omitempty"`
		Error   string `json:"error,omitempty"`
		Records []slot `json:"records"`
	}{j.lock, outcome, delayMS, lockMS, "", []slot{{position{j.Topic, j.Partition, j.Offset}, j.NextOffset - 1}}}
	if reason != nil {
		text := []rune(reason.Error())
		body.Error = string(text[:min(len(text), 1000)])
	}
	return j.queue.client.Call(ctx, OpAcknowledgeRecords, Path{"group": j.queue.group}, nil, body, nil)
}
