package penstock

import "time"

// Statistics of a producer since it was made.
type Statistics struct {
	RecordsAcknowledged int64
	RecordsFailed       int64
	Batches             int64
	Duplicates          int64 // repeats that the node had already stored
	Unanswered          int   // records without an outcome
	BufferedBytes       int
}

// AcceptedCount has the records of a topic that were acknowledged in ten minutes, by the clock of the node. As lines of
// JSON, `penstock ingest audit --clients` reads them.
type AcceptedCount struct {
	Topic   string `json:"topic"`
	FromMS  int64  `json:"from_ms"`
	Records int64  `json:"records"`
}

const (
	period    = 10 * time.Minute // as nodes and ingestion count
	countsMax = 10_000           // topics and periods that are counted until they are taken; further ones are not
)

type topicPeriod struct {
	topic  string
	fromMS int64
}

type tally struct {
	acknowledged, failed, batches, duplicates int64
	accepted                                  map[topicPeriod]int64
}

func (t *tally) onStored(topic string, records int, answer produced) {
	t.acknowledged += int64(records)
	t.batches++
	if answer.Duplicate {
		t.duplicates++
	}
	if answer.Timestamp == nil {
		return
	}
	if t.accepted == nil {
		t.accepted = map[topicPeriod]int64{}
	}
	key := topicPeriod{topic, *answer.Timestamp - *answer.Timestamp%period.Milliseconds()}
	if _, ok := t.accepted[key]; ok || len(t.accepted) < countsMax {
		t.accepted[key] += int64(records)
	}
}

// Statistics returns the counts since the producer was made.
func (p *Producer) Statistics() Statistics {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	t := &p.tally
	return Statistics{t.acknowledged, t.failed, t.batches, t.duplicates, p.unanswered, p.bytes}
}

// TakeAcceptedCounts returns what was acknowledged since the last call, by topic and ten minutes.
func (p *Producer) TakeAcceptedCounts() []AcceptedCount {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	taken := make([]AcceptedCount, 0, len(p.tally.accepted))
	for key, records := range p.tally.accepted {
		taken = append(taken, AcceptedCount{key.topic, key.fromMS, records})
	}
	p.tally.accepted = nil
	return taken
}
