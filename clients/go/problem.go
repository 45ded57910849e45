package penstock

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// A Problem is the error of a request: a problem document of the node, or no answer. Use errors.As for its fields, and
// errors.Is with an error of this package for the codes that programs branch on.
type Problem struct {
	Code   string // stable; "connection_failed" without an answer
	Status int    // of HTTP; 0 without an answer
	Title  string
	Detail string
	// WhatToDo is the contract's advice for this code.
	WhatToDo string
	// Retryable: the same request may succeed later.
	Retryable bool
	// MaybeDone: the request may have been carried out, by this attempt or an earlier one.
	MaybeDone  bool
	RequestID  string
	RetryAfter time.Duration
	// Members is the whole document, for members such as log_start.
	Members json.RawMessage
	cause   error
}

// The codes that programs branch on.
var (
	ErrUnauthorized    = errors.New("unauthorized")
	ErrForbidden       = errors.New("forbidden")
	ErrUnknownTopic    = errors.New("unknown_topic")
	ErrFenced          = errors.New("producer_fenced")
	ErrFencingToken    = errors.New("fencing_token_mismatch")
	ErrLogEnd          = errors.New("log_end_mismatch")
	ErrBelowLogStart   = errors.New("offset_below_log_start")
	ErrAboveWatermark  = errors.New("offset_above_high_watermark")
	ErrTopicRecreated  = errors.New("topic_id_mismatch")
	ErrKeyReused       = errors.New("idempotency_key_reused")
	ErrLockExpired     = errors.New("lock_expired")
	ErrLockUnknown     = errors.New("lock_unknown")
	ErrWebhookInvalid  = errors.New("webhook_invalid")
	ErrClosed          = errors.New("client_closed")
	errNotAProblemCode = "not_a_problem"
)

func (p *Problem) Error() string { return fmt.Sprintf("penstock: %s: %s", p.Code, p.Detail) }

// Is compares by code.
func (p *Problem) Is(target error) bool { return target.Error() == p.Code }

// Unwrap returns the error of the connection, if there is one.
func (p *Problem) Unwrap() error { return p.cause }

// Operation is a call of the contract: method, path and whether a repeat without a key is harmless.
type Operation struct {
	Method     string
	Path       string
	Repeatable bool
}

type promise struct {
	code          string
	status        int
	retryable     bool
	noSideEffects bool
	whatToDo      string
}

var promises = func() map[string]promise {
	byCode := make(map[string]promise, len(problemRows))
	for _, row := range problemRows {
		byCode[row.code] = row
	}
	return byCode
}()

// problemOf makes the error of a problem document. What the contract promises for a code counts before the answer.
func problemOf(status int, document []byte, retryAfter time.Duration) *Problem {
	var given struct {
		Code          string
		Title         string
		Detail        string
		Status        int
		Retryable     bool
		NoSideEffects bool   `json:"no_side_effects"`
		RequestID     string `json:"request_id"`
	}
	if json.Unmarshal(document, &given) != nil || given.Code == "" {
		// a proxy in between, which may have passed the request on
		detail := fmt.Sprintf("the answer has status %d and is no problem document", status)
		retryable := status >= 500 || status == 429 || status == 408
		return &Problem{Code: errNotAProblemCode, Status: status, Detail: detail, Retryable: retryable, MaybeDone: status >= 500, RetryAfter: retryAfter}
	}
	problem := &Problem{Code: given.Code, Status: status, Title: given.Title, Detail: given.Detail, RequestID: given.RequestID,
		Retryable: given.Retryable, MaybeDone: !given.NoSideEffects, RetryAfter: retryAfter, Members: document}
	if promised, ok := promises[given.Code]; ok {
		problem.Retryable, problem.MaybeDone, problem.WhatToDo = promised.retryable, !promised.noSideEffects, promised.whatToDo
	}
	if problem.Status == 0 {
		problem.Status = given.Status
	}
	return problem
}

func (p *Problem) asMaybeDone() *Problem {
	copied := *p
	copied.MaybeDone = true
	return &copied
}

func asProblem(err error) *Problem {
	var problem *Problem
	if errors.As(err, &problem) {
		return problem
	}
	return &Problem{Code: "client_error", Detail: err.Error(), MaybeDone: true, cause: err}
}
