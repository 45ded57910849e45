// Code generated from openapi/gateway.yaml by python -m tests.clients.generated. DO NOT EDIT.

export type AddRule = { "principals": (string)[]; "operations": ("describe" | "read" | "write" | "create" | "alter" | "delete" | "operate" | "metrics" | "access")[]; "resource": "topic" | "group" | "subscription" | "tenant" | "cluster"; "effect"?: "allow" | "deny"; "pattern"?: "literal" | "prefix" | "all"; "name"?: string; "sources"?: (string)[]; "note"?: string; "id"?: string; };

export type Rule = { "principals": (string)[]; "operations": ("describe" | "read" | "write" | "create" | "alter" | "delete" | "operate" | "metrics" | "access")[]; "resource": "topic" | "group" | "subscription" | "tenant" | "cluster"; "effect": "allow" | "deny"; "pattern": "literal" | "prefix" | "all"; "name": string; "sources": (string)[]; "note": string; "id": string; "author": string; "created_ms": number; "tenant"?: string; };

export type RuleList = { "total": PageTotal; "next": PageNext; "generation": number; "rules": (Rule)[]; };

export type RuleAdded = { "generation": number; "behind": (number)[]; "rule": Rule; };

export type SignUrl = { "url": string; "method"?: "GET" | "POST"; "life_ms"?: (number) | (null); "max_bytes"?: (number) | (null); };

export type SignedUrl = { "url": string; "method": "GET" | "POST"; "subject": string; "expires_ms": number; "max_bytes"?: number; };

export type UrlKey = { "id": string; "created_ms": number; "author": string; };

export type UrlKeys = { "total": PageTotal; "next": PageNext; "generation": number; "keys": (UrlKey)[]; };

export type UrlKeyAdded = { "generation": number; "behind": (number)[]; "id": string; "created_ms": number; "author": string; };

export type AccessChanged = { "generation": number; "behind": (number)[]; };

export type SetQuota = { "requests"?: (number) | (null); "bytes_in"?: (number) | (null); "bytes_out"?: (number) | (null); "loop_ms"?: (number) | (null); "connections"?: (number) | (null); "long_polls"?: (number) | (null); "burst_s"?: number; "per"?: "cluster" | "node"; "note"?: string; };

export type Quota = { "id": string; "owner": "tenant" | "principal" | "client" | "topic"; "name": string; "requests": (number) | (null); "bytes_in": (number) | (null); "bytes_out": (number) | (null); "loop_ms": (number) | (null); "connections": (number) | (null); "long_polls": (number) | (null); "burst_s": number; "per": "cluster" | "node"; "note": string; "author": string; "created_ms": number; };

export type QuotaList = { "total": PageTotal; "next": PageNext; "generation": number; "quotas": (Quota)[]; };

export type QuotaSet = { "generation": number; "behind": (number)[]; "quota": Quota; };

export type Token = { "id": string; "name": string; "created_ms": number; "expires_ms": number; "author": string; "note": string; };

export type TokenList = { "total": PageTotal; "next": PageNext; "generation": number; "tokens": (Token)[]; };

export type CreateToken = { "name": string; "life_ms"?: (number) | (null); "note"?: string; };

export type RotateToken = { "life_ms"?: (number) | (null); "keep_ms"?: number; "note"?: string; };

export type TokenCreated = { "generation": number; "behind": (number)[]; "token": string; "id": string; "name": string; "created_ms": number; "expires_ms": number; "others_end_ms"?: number; "author": string; "note": string; };

export type Tenant = { "tenant": string; "created_ms": number; "author": string; "note": string; "limits": TenantLimits; "topics": number; "partitions": number; "groups": number; "subscriptions": number; "members": number; "stored_bytes": number; };

export type Usage = { "produce_requests": number; "produce_bytes_in": number; "produce_bytes_out": number; "records": number; "read_requests": number; "read_bytes_in": number; "read_bytes_out": number; "other_requests": number; "other_bytes_in": number; "other_bytes_out": number; "refused_requests": number; "refused_bytes_in": number; "refused_bytes_out": number; "failed_requests": number; "stored_byte_seconds": number; };

export type TenantUsage = { "tenant": string; "from_ms": number; "to_ms": number; "final_until_ms": number; "complete": boolean; "missing_nodes"?: (number)[]; "unreadable_files"?: number; "total": Usage; "hours": ((Usage))[]; };

export type TenantLimits = { "topics"?: (number) | (null); "partitions"?: (number) | (null); "groups"?: (number) | (null); "subscriptions"?: (number) | (null); "members"?: (number) | (null); "stored_bytes"?: (number) | (null); };

export type AlterTenant = { "limits": GivenTenantLimits; };

export type GivenTenantLimits = { "topics"?: (number) | (null); "partitions"?: (number) | (null); "groups"?: (number) | (null); "subscriptions"?: (number) | (null); "members"?: (number) | (null); "stored_bytes"?: (number) | (null); };

export type TenantCreated = (Tenant);

export type TenantList = { "total": PageTotal; "next": PageNext; "tenants": ({ "tenant": string; "created_ms": number; "author": string; "note": string; })[]; };

export type CreateTenant = { "note"?: string; "limits"?: GivenTenantLimits; };

export type CheckAccess = { "principal": string; "operation": "describe" | "read" | "write" | "create" | "alter" | "delete" | "operate" | "metrics" | "access"; "resource": "topic" | "group" | "subscription" | "tenant" | "cluster"; "name"?: string; "groups"?: (string)[]; "address"?: string; };

export type AccessDecision = { "generation": number; "allowed": boolean; "rule": (string) | (null); };

export type TopicName = string;

export type TopicConfig = { "retention_ms"?: (number) | (null); "retention_bytes"?: (number) | (null); "local_retention_ms"?: (number) | (null); "local_retention_bytes"?: (number) | (null); "segment_bytes"?: number; "segment_ms"?: number; "record_bytes_max"?: number; "batch_bytes_max"?: number; "batch_decoded_bytes_max"?: number; "compression"?: "none" | "gzip" | "snappy" | "lz4" | "zstd"; "timestamp_type"?: "create" | "append"; "timestamp_ahead_ms_max"?: number; "trace_headers"?: "sampled" | "none"; "durability"?: "group" | "os"; "flush_ms"?: number; "idempotency_window_ms"?: number; "idempotency_keys_max"?: number; "producers_max"?: number; "producer_expiry_ms"?: number; "sources_max"?: number; "source_expiry_ms"?: number; "verify"?: "full" | "header"; "min_insync_replicas"?: number; "unclean_election"?: boolean; "deletion_protection"?: boolean; "retention_waits_for_jobs"?: boolean; "retention_wait_max_ms"?: number; "value_schema"?: string; "value_schema_type"?: "none" | "avro" | "json" | "protobuf"; "value_schema_subject"?: string; "value_schema_version"?: number; "cleanup_policy"?: "delete" | "compact" | "compact,delete"; "delete_retention_ms"?: number; "min_compaction_lag_ms"?: number; "max_compaction_lag_ms"?: (number) | (null); "min_cleanable_dirty_percent"?: number; };

export type CreateTopic = { "partitions"?: number; "replication_factor"?: number; "config"?: TopicConfig; };

export type AlterTopic = { "config"?: TopicConfig; "unset"?: (string)[]; "partitions"?: number; "replication_factor"?: number; };

export type LimitedTo = { "right": "read" | "group"; "prefixes": (string)[]; };

export type PageTotal = number;

export type PageNext = (string) | (null);

export type TopicList = { "total": PageTotal; "next": PageNext; "limited_to"?: LimitedTo; "topics": ({ "topic": string; "topic_id": string; "partitions": number; "replication_factor": number; "in_sync_partitions"?: number; "led_partitions"?: number; "records_in_per_s"?: number; "bytes_in_per_s"?: number; "bytes_out_per_s"?: number; "log_bytes"?: number; "oldest_ms"?: (number) | (null); "tier_lag_s"?: number; "lag_group"?: (string) | (null); "lag_records"?: number; "lag_s"?: number; })[]; "totals"?: { "records_in_per_s"?: number; "bytes_in_per_s"?: number; "bytes_out_per_s"?: number; "log_bytes"?: number; "lag_records"?: number; }; "nodes_missing"?: NodesMissing; };

export type NodesMissing = (number)[];

export type Overview = { "level": "ok" | "warn" | "fail"; "limited_to"?: LimitedTo; "findings": (StatusFinding)[]; "more_findings": number; "topics": number; "partitions": number; "version": string; "cluster_id"?: string; "node_id"?: number; "nodes"?: number; "nodes_missing"?: NodesMissing; "totals"?: Record<string, (number) | (null)>; "disks"?: ({ "node_id": number; "path": string; "free_bytes": (number) | (null); "size_bytes": (number) | (null); "offline": (string) | (null); })[]; };

export type StatusFinding = { "code": string; "level": "warn" | "fail"; "subject": string; "found": string; "remedy": string; "runbook": string; "topic": (string) | (null); "group": (string) | (null); "subscription": (string) | (null); "age_s": number; };

export type History = { "step_ms": number; "end_ms": number; "since_ms": number; "topic": (string) | (null); "group": (string) | (null); "nodes_missing": NodesMissing; "series": ({ "name": string; "unit": string; "text": string; "values": ((number) | (null))[]; })[]; };

export type Me = { "principal": string; "superuser": boolean; "anonymous": boolean; "expires_ms": (number) | (null); "tenant": (string) | (null); "rights": ({ "resource": "topic" | "group" | "subscription" | "tenant" | "cluster"; "operation": string; "prefixes": (string)[]; "names": (string)[]; })[]; };

export type NodeSettings = { "node_id": number; "version": string; "settings": ({ "name": string; "value": unknown; "source": "flag" | "environment" | "file" | "default" | "adjusted"; "default": unknown; "minimum": (number) | (null); "maximum": (number) | (null); "choices": (string)[]; "why": string; })[]; };

export type Disks = { "node_id": number; "disks": ({ "path": string; "online": boolean; "reason": (string) | (null); "free_bytes": (number) | (null); "capacity_bytes": (number) | (null); "partitions": number; "size_bytes": number; })[]; "moves": (DiskMove)[]; };

export type DiskMoves = { "moves"?: ({ "topic": string; "partition": number; "to": string; })[]; "balance"?: boolean; "dry_run"?: boolean; };

export type DiskMovePlan = { "node_id": number; "dry_run": boolean; "moves": (DiskMove)[]; };

export type DiskMove = { "topic": string; "partition": number; "from": string; "to": string; "state": "planned" | "waiting" | "copying" | "failed"; "size_bytes": number; "left_bytes": number; "error": (string) | (null); };

export type MayRestart = { "node_id": number; "may_restart": boolean; "reasons": ({ "code": "not_in_sync" | "needed" | "coordination_silent" | "unknown_node"; "detail": string; "topic": (string) | (null); "partitions": (number)[]; })[]; };

export type Topic = { "topic": string; "topic_id": string; "replication_factor": number; "config": Record<string, unknown>; "partitions": (PartitionState)[]; };

export type PartitionState = { "partition": number; "leader": (number) | (null); "replicas": (number)[]; "in_sync": (number)[]; "eligible": (number)[]; "under_replicated": boolean; "lag": Record<string, number>; "lag_bytes"?: Record<string, number>; "leader_epoch": number; "log_start": (number) | (null); "local_log_start": (number) | (null); "log_end": (number) | (null); "durable_end": (number) | (null); "high_watermark": (number) | (null); "size_bytes": (number) | (null); "segments": (number) | (null); "leader_url": (string) | (null); "offline"?: string; };

export type Rolled = { "topic": string; "partitions": ({ "partition": number; "sealed_end": number; })[]; };

export type RecordsDeleted = { "topic": string; "partition": number; "log_start": number; };

export type TierStatus = { "topic": string; "store": (string) | (null); "partitions": ({ "partition": number; "log_start": number; "local_log_start": number; "sealed_end": number; "tiered_end": number; "high_watermark": number; "objects": number; "tiered_bytes": number; "pending_segments": number; "pending_bytes": number; "last_error": (string) | (null); })[]; };

export type HeaderValue = (string) | (null) | ({ "base64": string; });

export type RecordHeaders = Record<string, (HeaderValue) | ((HeaderValue)[])>;

export type Time = (number) | (string);

export type ProduceRecord = { "key"?: unknown; "key_base64"?: string; "value"?: unknown; "value_base64"?: string; "headers"?: RecordHeaders; "timestamp"?: (Time) | (null); "partition"?: (number) | (null); };

export type ProduceRecords = { "records": (ProduceRecord)[]; };

export type Produced = { "topic": string; "acks": "0" | "1" | "all"; "durability": "none" | "page_cache" | "fsync"; "results": (ProduceResult)[]; };

export type ProduceResult = { "partition": number; "base_offset": (number) | (null); "count": number; "timestamp": (number) | (null); "duplicate"?: true; "status"?: number; "problem"?: PartProblem; };

export type FetchedRecord = { "offset": number; "timestamp"?: number; "key"?: (string) | (null); "key_base64"?: string; "value"?: unknown; "value_base64"?: string; "schema_id"?: number; "headers"?: RecordHeaders; "last_offset"?: number; "error"?: "undecodable"; };

export type Fetched = { "topic": string; "partition": number; "records": (FetchedRecord)[]; "next_offset": number; "high_watermark": number; "log_start": number; "leader_epoch"?: number; };

export type Positions = { "topic": string; "topic_id"?: string; "partition": number; "log_start": number; "log_end": number; "high_watermark": number; "offset": (number) | (null); "timestamp": (number) | (null); };

export type Cluster = { "cluster_id"?: string; "feature_level"?: number; "nodes": ({ "node_id"?: number; "url": (string) | (null); "rack"?: (string) | (null); "version"?: (string) | (null); "feature_level_max"?: (number) | (null); "alive"?: boolean; "stale"?: boolean; "leaving"?: boolean; "drained"?: boolean; "leading"?: number; "partitions"?: number; "under_replicated"?: number; })[]; "controller"?: (number) | (null); "coordination"?: { "age_ms": (number) | (null); "silent": boolean; }; "shards"?: number; "offline_partitions"?: (PartitionsByTopic); "under_min_in_sync"?: (PartitionsByTopic); "under_replicated"?: (PartitionsByTopic); };

export type Reassign = { "topic": string; "partitions": Record<string, (number)[]>; };

export type Reassignments = { "reassignments": ({ "topic": string; "partition": number; "replicas": (number)[]; "adding": (number)[]; "removing": (number)[]; "in_sync": (number)[]; "size_bytes": (number) | (null); "left_bytes": Record<string, number>; })[]; };

export type Drain = { "drained": boolean; };

export type Drained = { "node_id": number; "drained": boolean; };

export type Decommissioned = { "node_id": number; "moving": number; };

export type Balance = { "apply"?: boolean; };

export type BalancePlan = { "applied": boolean; "moves": ({ "topic": string; "partition": number; "from_node": number; "to_node": number; "size_bytes": number; "replicas": (number)[]; })[]; };

export type PartitionsByTopic = ({ "topic": string; "partitions": (number)[]; })[];

export type Links = { "console": string; "topics": string; "produce": string; "fetch": string; "cluster": string; "metrics": string; "health": string; "readiness": string; "contract": string; "documentation": string; };

export type Health = { "status": "ok" | "ready" | "degraded"; "detail"?: string; };

export type Problem = { "type": string; "title": string; "status": number; "code": string; "detail": string; "retryable": boolean; "no_side_effects": boolean; "request_id": string; "line"?: number; "column"?: number; "record"?: number; "pointer"?: string; "schema_version"?: number; "limit"?: number; "quota"?: "requests" | "bytes_in" | "bytes_out" | "loop_ms" | "connections" | "long_polls"; "owner"?: string; "used"?: number; "violated-policies"?: (string)[]; "right"?: "read" | "write" | "admin" | "group" | "metrics"; "operation"?: "describe" | "read" | "write" | "create" | "alter" | "delete" | "operate" | "metrics" | "access"; "resource"?: "topic" | "group" | "subscription" | "tenant" | "cluster"; "rule"?: string; "topic"?: string; "log_start"?: number; "high_watermark"?: number; "log_end"?: number; "producer_epoch"?: number; "expected_seq"?: number; "received_seq"?: number; "fencing_token"?: (string) | (null); "source_position"?: number; "damaged_from"?: number; "damaged_end"?: number; };

export type PartProblem = { "type": string; "title": string; "status": number; "code": string; "detail": string; "retryable": boolean; "no_side_effects": boolean; };

export type BoundsProblem = (Problem) & ({ "log_start": unknown; "high_watermark": unknown; });

export type ProduceManyRecord = { "topic": string; "key"?: unknown; "key_base64"?: string; "value"?: unknown; "value_base64"?: string; "headers"?: RecordHeaders; "timestamp"?: (Time) | (null); "partition"?: (number) | (null); };

export type ProduceMany = { "records": (ProduceManyRecord)[]; };

export type ProducedMany = { "acks": "0" | "1" | "all"; "durability": "none" | "page_cache" | "fsync"; "results": ({ "topic": string; "partition": (number) | (null); "base_offset": (number) | (null); "count": number; "timestamp": (number) | (null); "duplicate"?: true; "durability": "none" | "page_cache" | "fsync"; "status"?: number; "problem"?: PartProblem; })[]; };

export type CloudEvent = { "specversion": "1.0"; "id": string; "source": string; "type": string; "subject"?: (string) | (null); "time"?: (string) | (null); "datacontenttype"?: (string) | (null); "dataschema"?: (string) | (null); "partitionkey"?: (string) | (null); "data"?: unknown; "data_base64"?: (string) | (null); };

export type FetchMany = { "partitions": ({ "topic": string; "partition": number; "offset": number; "topic_id"?: string; "leader_epoch"?: number; })[]; "wait_ms"?: number; "min_bytes"?: number; "max_bytes"?: number; "max_records"?: number; "value"?: "json" | "text" | "base64" | "schema"; "filter"?: (string)[]; };

export type FetchedMany = { "partitions": ((Fetched) | ({ "problem": PartProblem; }))[]; };

export type Producer = { "producer_id": number; "producer_epoch": number; };

export type FencingTokenValue = (string) | (null);

export type SetFence = { "token": FencingTokenValue; "expected"?: FencingTokenValue; };

export type Source = { "topic": string; "partition": number; "source": string; "source_position": number; "base_offset": number; "count": number; "timestamp": number; };

export type Fence = { "topic": string; "partition": number; "token": (string) | (null); "offset": (number) | (null); };

export type TopicPartition = { "topic": string; "partition": number; };

export type GroupName = string;

export type MemberName = string;

export type GroupTopics = (TopicName)[];

export type SessionTimeout = (number) | (null);

export type GroupList = { "total": PageTotal; "next": PageNext; "limited_to"?: LimitedTo; "lag_trend_step_ms"?: number; "groups": ({ "group": string; "kind": "consumer" | "share" | "classic"; "state": "empty" | "reconciling" | "stable"; "members": number; "lag_records": (number) | (null); "lag_s": (number) | (null); "lag_trend_s"?: ((number) | (null))[]; })[]; };

export type AuditPage = { "node_id": number; "recorded": (boolean) | (null); "events": (Record<string, unknown>)[]; "next": (string) | (null); "odd_lines": number; "nodes_missing": (number)[]; };

export type JobList = { "total": PageTotal; "next": PageNext; "jobs": ({ "id": string; "renewed_ms": number; "readable": boolean; "job"?: string; "output"?: string; "topics"?: (string)[]; "lag_records"?: (number) | (null); "lag_s"?: (number) | (null); "lost_records"?: number; "misfits"?: number; "held"?: (string)[]; "commits"?: ({ "number": number; "committed_ms": number; "rows": number; "dead_letters": number; "files": number; "small_files": number; "size_bytes": number; })[]; })[]; };

export type GroupConfig = { "kind"?: "consumer" | "share" | null; "start"?: "earliest" | "latest" | "time" | "error" | null; "start_time_ms"?: (number) | (null); "topics_priority"?: (string) | (null); "partition_bytes_max"?: (number) | (null); "auto_commit"?: (boolean) | (null); "session_timeout_ms"?: (number) | (null); "heartbeat_ms"?: (number) | (null); "rebalance_timeout_ms"?: (number) | (null); "assignor"?: "sticky" | "range" | "round_robin" | "rack_aware" | null; "offsets_retention_ms"?: (number) | (null); "lock_ms"?: (number) | (null); "deliveries_max"?: (number) | (null); "redelivery_delay_ms"?: (number) | (null); "redelivery_delay_ms_max"?: (number) | (null); "in_flight_max"?: (number) | (null); "order"?: "none" | "key" | null; "dead_letter_topic"?: (string) | (null); };

export type ConfigureGroup = { "config"?: GroupConfig; };

export type Group = { "limited_to"?: LimitedTo; "group": string; "kind": "consumer" | "share"; "state": "empty" | "reconciling" | "stable"; "epoch": number; "config": Record<string, unknown>; "members": ({ "member_id": string; "member_epoch": number; "client_id": (string) | (null); "client_address": string; "rack": (string) | (null); "topics": (string)[]; "topics_pattern"?: (string) | (null); "topics_exclude"?: (string) | (null); "assignment": (TopicPartition)[]; "revoking": (TopicPartition)[]; "session_left_ms": number; })[]; "partitions": ({ "topic": string; "partition": number; "member_id": (string) | (null); "offset": (number) | (null); "metadata": (string) | (null); "high_watermark": (number) | (null); "lag": (number) | (null); "lag_bytes": (number) | (null); "lag_ms": (number) | (null); "in_flight"?: number; "available"?: number; "delayed"?: number; "dead_letters_pending"?: number; "dead_letters"?: number; "dropped"?: number; })[]; "callers"?: ({ "member_id": (string) | (null); "in_flight": number; "lock_left_ms": number; })[]; };

export type Acquire = { "topics"?: GroupTopics; "wait_ms"?: number; "max_records"?: number; "max_bytes"?: number; "lock_ms"?: (number) | (null); "member_id"?: MemberName; "value"?: "json" | "text" | "base64" | "schema"; };

export type Acquired = { "group": string; "lock": (string) | (null); "lock_ms": number; "lock_until": number; "missing_topics"?: (string)[]; "records": ({ "topic": string; "partition": number; "offset": number; "delivery_count": number; "last_offset"?: number; })[]; };

export type ShareOutcome = "accept" | "release" | "reject" | "extend";

export type Acknowledge = { "lock": string; "outcome"?: (ShareOutcome); "delay_ms"?: number; "lock_ms"?: number; "error"?: string; "records"?: ({ "topic": string; "partition": number; "offset": number; "last_offset"?: number; "outcome"?: ShareOutcome; "delay_ms"?: number; "lock_ms"?: number; "error"?: string; })[]; };

export type Acknowledged = { "group": string; "lock": string; "acknowledged": number; "refused": ({ "topic": string; "partition": number; "offset": number; "last_offset": number; "code": "lock_expired" | "already_acknowledged"; })[]; };

export type Heartbeat = { "member_id"?: MemberName; "member_epoch"?: number; "topics"?: GroupTopics; "topics_pattern"?: TopicsPattern; "topics_exclude"?: TopicsExclude; "owned"?: ({ "topic": string; "partition": number; })[]; "session_timeout_ms"?: SessionTimeout; "rebalance_timeout_ms"?: SessionTimeout; };

export type Membership = { "limited_to"?: LimitedTo; "group": string; "member_id": string; "member_epoch": number; "assignment": ({ "topic": string; "partition": number; "offset": (number) | (null); "start"?: "earliest" | "latest" | "time" | "error"; "start_time_ms"?: number; })[]; "heartbeat_ms": number; "session_timeout_ms": number; };

export type TopicsPattern = string;

export type TopicsExclude = string;

export type GroupPoll = { "topics"?: GroupTopics; "topics_pattern"?: TopicsPattern; "topics_exclude"?: TopicsExclude; "token"?: (string) | (null); "wait_ms"?: number; "max_bytes"?: number; "min_bytes"?: number; "max_records"?: number; "value"?: "json" | "text" | "base64" | "schema"; "filter"?: (string)[]; "paused"?: ({ "topic": string; "partition": number; })[]; "failed"?: ({ "topic": string; "partition": number; "offset": number; "error"?: string; })[]; "session_timeout_ms"?: SessionTimeout; "rebalance_timeout_ms"?: SessionTimeout; };

export type GroupDelivery = { "group": string; "member_id": string; "member_epoch": number; "assigned": number; "token": string; "topic_ids"?: Record<string, string>; "partitions": ((Fetched) | ({ "problem": PartProblem; }))[]; };

export type GroupExplanation = { "limited_to"?: LimitedTo; "group": string; "state": "empty" | "reconciling" | "stable"; "lag": number; "findings": ({ "cause": "no_members" | "topic_missing" | "partition_unreachable" | "no_position" | "poison_record" | "slow_revocation" | "silent_member" | "stuck_member" | "no_commits" | "slow_member" | "hot_partition" | "too_slow" | "sessions_expire" | "rebalance_timeouts" | "member_restarts" | "shared_member_id" | "new_names" | "idle_members" | "coordinator_started" | "reset" | "topics_changed" | "no_callers" | "unacknowledged" | "locks_end" | "records_delayed" | "key_blocked" | "window_full" | "dead_letters_fail" | "record_failed" | "dead_letters"; "text": string; "member_id": (string) | (null); "topic": (string) | (null); "partition": (number) | (null); "until_ms"?: (number) | (null); })[]; "events": ({ "at_ms": number; "cause": "joined" | "joined_again" | "left" | "session_expired" | "rebalance_timed_out" | "subscription_changed" | "topics_changed" | "settings_changed" | "reset" | "coordinator_started" | "shared_member_id" | "lock_ended" | "dead_letters_failed" | "record_failed" | "dead_lettered"; "member_id": (string) | (null); "detail": (string) | (null); "count": number; })[]; };

export type GroupOffsets = { "limited_to"?: LimitedTo; "group": string; "offsets": ({ "topic": string; "partition": number; "topic_id"?: string; "offset": number; "metadata"?: string; "committed_ms": number; })[]; };

export type GroupPositions = ({ "topic": TopicName; "partition": number; "offset": number; "topic_id"?: string; "metadata"?: string; })[];

export type CommitOffsets = { "member_id"?: MemberName; "member_epoch"?: number; "force"?: boolean; "offsets": GroupPositions; };

export type ResetGroup = { "to"?: ("earliest" | "latest") | (Time); "ago_ms"?: number; "shift"?: number; "offsets"?: GroupPositions; "topics"?: GroupTopics; "dry_run"?: boolean; "force"?: boolean; };

export type GroupReset = { "group": string; "dry_run": boolean; "offsets": ({ "topic": string; "partition": number; "offset": number; "previous_offset": (number) | (null); })[]; };

export type SubscriptionStart = ("earliest" | "latest") | (Time);

export type PushDelivery = { "order"?: "key" | "partition" | "none"; "form"?: "structured" | "binary" | "batch"; "batch_records_max"?: number; "concurrency_max"?: number; "rate_per_second_max"?: (number) | (null); "timeout_ms"?: number; "backoff_ms_min"?: number; "backoff_ms_max"?: number; "deliveries_max"?: (number) | (null); "dead_letter_topic"?: (string) | (null); };

export type PutSubscription = { "url": string; "topics": (TopicName)[]; "delivery"?: PushDelivery; "filter"?: (string)[]; "start"?: SubscriptionStart; "secrets"?: (string)[]; };

export type AlterSubscription = { "url"?: string; "delivery"?: PushDelivery; "filter"?: (string)[]; "secrets"?: (string)[]; };

export type ReplaySubscription = { "to"?: SubscriptionStart; "offsets"?: ({ "topic": TopicName; "partition": number; "offset": number; })[]; };

export type SubscriptionList = { "total": PageTotal; "next": PageNext; "limited_to"?: LimitedTo; "subscriptions": ({ "subscription": string; "url": string; "topics": (string)[]; "state": "running" | "failing" | "paused" | "forbidden" | "stopped"; "last_error": string; })[]; };

export type Subscription = { "subscription": string; "url": string; "topics": (string)[]; "filter": (string)[]; "delivery": Record<string, unknown>; "secrets": number; "secret"?: string; "owner"?: string; "state": "running" | "failing" | "paused" | "forbidden" | "stopped"; "offsets": ({ "topic": string; "partition": number; "offset": number; })[]; "delivered": number; "failed": number; "dead_lettered": number; "in_flight": number; "waiting": number; "last_error": string; "attempts": ({ "at_ms": number; "message_id": string; "topic": string; "partition": number; "offset": number; "record_count": number; "attempt": number; "status": (number) | (null); "error": string; "latency_ms": number; })[]; };

export type TableRow = { "partition": number; "offset": number; "timestamp": number; "key"?: string; "key_base64"?: string; "value"?: unknown; "headers"?: Record<string, unknown>; "value_base64"?: string; };

export type Table = { "topic": string; "positions": string; "complete": boolean; "rows": (TableRow)[]; };

/** The path parameters, the JSON body and the JSON answer of each operation. */
export interface Operations {
  list_topics: { path: {}; body: undefined; answer: TopicList };
  create_topic: { path: { topic: string | number }; body: CreateTopic; answer: Topic };
  describe_topic: { path: { topic: string | number }; body: undefined; answer: Topic };
  alter_topic: { path: { topic: string | number }; body: AlterTopic; answer: Topic };
  delete_topic: { path: { topic: string | number }; body: undefined; answer: unknown };
  roll_topic: { path: { topic: string | number }; body: undefined; answer: Rolled };
  tier_status: { path: { topic: string | number }; body: undefined; answer: TierStatus };
  tail_topic: { path: { topic: string | number }; body: undefined; answer: unknown };
  produce: { path: { topic: string | number }; body: undefined; answer: Produced };
  produce_to_partition: { path: { topic: string | number; partition: string | number }; body: undefined; answer: Produced };
  fetch: { path: { topic: string | number; partition: string | number }; body: undefined; answer: Fetched };
  delete_records: { path: { topic: string | number; partition: string | number }; body: undefined; answer: RecordsDeleted };
  describe_fence: { path: { topic: string | number; partition: string | number }; body: undefined; answer: Fence };
  set_fence: { path: { topic: string | number; partition: string | number }; body: SetFence; answer: Fence };
  describe_source: { path: { topic: string | number; partition: string | number }; body: undefined; answer: Source };
  find_offsets: { path: { topic: string | number; partition: string | number }; body: undefined; answer: Positions };
  produce_many: { path: {}; body: ProduceMany; answer: ProducedMany };
  fetch_many: { path: {}; body: FetchMany; answer: FetchedMany };
  create_producer: { path: {}; body: Record<string, unknown>; answer: Producer };
  list_groups: { path: {}; body: undefined; answer: GroupList };
  describe_group: { path: { group: string | number }; body: undefined; answer: Group };
  configure_group: { path: { group: string | number }; body: ConfigureGroup; answer: Group };
  alter_group: { path: { group: string | number }; body: ConfigureGroup; answer: Group };
  delete_group: { path: { group: string | number }; body: undefined; answer: unknown };
  explain_group: { path: { group: string | number }; body: undefined; answer: GroupExplanation };
  group_heartbeat: { path: { group: string | number }; body: Heartbeat; answer: Membership };
  leave_group: { path: { group: string | number; member: string | number }; body: undefined; answer: unknown };
  group_poll: { path: { group: string | number; member: string | number }; body: GroupPoll; answer: GroupDelivery };
  group_events: { path: { group: string | number; member: string | number }; body: undefined; answer: unknown };
  acquire_records: { path: { group: string | number }; body: Acquire; answer: Acquired };
  acknowledge_records: { path: { group: string | number }; body: Acknowledge; answer: Acknowledged };
  read_group_offsets: { path: { group: string | number }; body: undefined; answer: GroupOffsets };
  commit_group_offsets: { path: { group: string | number }; body: CommitOffsets; answer: GroupOffsets };
  delete_group_offsets: { path: { group: string | number }; body: undefined; answer: GroupOffsets };
  reset_group: { path: { group: string | number }; body: ResetGroup; answer: GroupReset };
  list_subscriptions: { path: {}; body: undefined; answer: SubscriptionList };
  put_subscription: { path: { subscription: string | number }; body: PutSubscription; answer: Subscription };
  alter_subscription: { path: { subscription: string | number }; body: AlterSubscription; answer: Subscription };
  describe_subscription: { path: { subscription: string | number }; body: undefined; answer: Subscription };
  delete_subscription: { path: { subscription: string | number }; body: undefined; answer: unknown };
  pause_subscription: { path: { subscription: string | number }; body: undefined; answer: Subscription };
  resume_subscription: { path: { subscription: string | number }; body: undefined; answer: Subscription };
  replay_subscription: { path: { subscription: string | number }; body: ReplaySubscription; answer: Subscription };
  read_table: { path: { topic: string | number }; body: undefined; answer: Table };
  read_table_key: { path: { topic: string | number; key: string | number }; body: undefined; answer: TableRow };
  describe_cluster: { path: {}; body: undefined; answer: Cluster };
  list_reassignments: { path: {}; body: undefined; answer: Reassignments };
  reassign: { path: {}; body: Reassign; answer: Reassignments };
  cancel_reassignment: { path: { topic: string | number; partition: string | number }; body: undefined; answer: unknown };
  drain_node: { path: { node_id: string | number }; body: Drain; answer: Drained };
  decommission_node: { path: { node_id: string | number }; body: undefined; answer: Decommissioned };
  describe_disks: { path: { node_id: string | number }; body: undefined; answer: Disks };
  move_partitions: { path: { node_id: string | number }; body: DiskMoves; answer: DiskMovePlan };
  cancel_move: { path: { node_id: string | number; topic: string | number; partition: string | number }; body: undefined; answer: unknown };
  balance: { path: {}; body: Balance; answer: BalancePlan };
  list_rules: { path: {}; body: undefined; answer: RuleList };
  add_rule: { path: {}; body: AddRule; answer: RuleAdded };
  remove_rule: { path: { rule: string | number }; body: undefined; answer: AccessChanged };
  list_tokens: { path: {}; body: undefined; answer: TokenList };
  create_token: { path: {}; body: CreateToken; answer: TokenCreated };
  revoke_token: { path: { token: string | number }; body: undefined; answer: AccessChanged };
  rotate_token: { path: { token: string | number }; body: RotateToken; answer: TokenCreated };
  check_access: { path: {}; body: CheckAccess; answer: AccessDecision };
  list_quotas: { path: {}; body: undefined; answer: QuotaList };
  set_quota: { path: { owner: string | number; name: string | number }; body: SetQuota; answer: QuotaSet };
  remove_quota: { path: { owner: string | number; name: string | number }; body: undefined; answer: AccessChanged };
  sign_url: { path: {}; body: SignUrl; answer: SignedUrl };
  list_url_keys: { path: {}; body: undefined; answer: UrlKeys };
  add_url_key: { path: {}; body: undefined; answer: UrlKeyAdded };
  remove_url_key: { path: { key: string | number }; body: undefined; answer: AccessChanged };
  describe_overview: { path: {}; body: undefined; answer: Overview };
  read_history: { path: {}; body: undefined; answer: History };
  describe_me: { path: {}; body: undefined; answer: Me };
  describe_settings: { path: {}; body: undefined; answer: NodeSettings };
  may_restart: { path: { node_id: string | number }; body: undefined; answer: MayRestart };
  read_audit: { path: { node_id: string | number }; body: undefined; answer: AuditPage };
  list_jobs: { path: {}; body: undefined; answer: JobList };
  list_tenants: { path: {}; body: undefined; answer: TenantList };
  describe_tenant: { path: { tenant: string | number }; body: undefined; answer: Tenant };
  create_tenant: { path: { tenant: string | number }; body: CreateTenant; answer: TenantCreated };
  alter_tenant: { path: { tenant: string | number }; body: AlterTenant; answer: TenantCreated };
  remove_tenant: { path: { tenant: string | number }; body: undefined; answer: AccessChanged };
  describe_usage: { path: { tenant: string | number }; body: undefined; answer: TenantUsage };
}
