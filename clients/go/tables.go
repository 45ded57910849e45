// Code generated from openapi/gateway.yaml by python -m tests.clients.generated. DO NOT EDIT.

package penstock

// The operations of the contract, for Client.Call.
var OpListTopics = Operation{"GET", "/v1/topics", true}
var OpCreateTopic = Operation{"PUT", "/v1/topics/{topic}", true}
var OpDescribeTopic = Operation{"GET", "/v1/topics/{topic}", true}
var OpAlterTopic = Operation{"PATCH", "/v1/topics/{topic}", false}
var OpDeleteTopic = Operation{"DELETE", "/v1/topics/{topic}", true}
var OpRollTopic = Operation{"POST", "/v1/topics/{topic}/roll", false}
var OpTierStatus = Operation{"GET", "/v1/topics/{topic}/tier", true}
var OpTailTopic = Operation{"GET", "/v1/topics/{topic}/records", true}
var OpProduce = Operation{"POST", "/v1/topics/{topic}/records", false}
var OpProduceToPartition = Operation{"POST", "/v1/topics/{topic}/partitions/{partition}/records", false}
var OpFetch = Operation{"GET", "/v1/topics/{topic}/partitions/{partition}/records", true}
var OpDeleteRecords = Operation{"DELETE", "/v1/topics/{topic}/partitions/{partition}/records", true}
var OpDescribeFence = Operation{"GET", "/v1/topics/{topic}/partitions/{partition}/fence", true}
var OpSetFence = Operation{"PUT", "/v1/topics/{topic}/partitions/{partition}/fence", true}
var OpDescribeSource = Operation{"GET", "/v1/topics/{topic}/partitions/{partition}/source", true}
var OpFindOffsets = Operation{"GET", "/v1/topics/{topic}/partitions/{partition}/offsets", true}
var OpProduceMany = Operation{"POST", "/v1/records", false}
var OpFetchMany = Operation{"POST", "/v1/fetch", true}
var OpCreateProducer = Operation{"POST", "/v1/producers", true}
var OpListGroups = Operation{"GET", "/v1/groups", true}
var OpDescribeGroup = Operation{"GET", "/v1/groups/{group}", true}
var OpConfigureGroup = Operation{"PUT", "/v1/groups/{group}", true}
var OpAlterGroup = Operation{"PATCH", "/v1/groups/{group}", false}
var OpDeleteGroup = Operation{"DELETE", "/v1/groups/{group}", true}
var OpExplainGroup = Operation{"GET", "/v1/groups/{group}/explanation", true}
var OpGroupHeartbeat = Operation{"POST", "/v1/groups/{group}/heartbeat", true}
var OpLeaveGroup = Operation{"DELETE", "/v1/groups/{group}/members/{member}", true}
var OpGroupPoll = Operation{"POST", "/v1/groups/{group}/members/{member}/poll", true}
var OpGroupEvents = Operation{"GET", "/v1/groups/{group}/members/{member}/events", true}
var OpAcquireRecords = Operation{"POST", "/v1/groups/{group}/acquire", true}
var OpAcknowledgeRecords = Operation{"POST", "/v1/groups/{group}/acknowledge", true}
var OpReadGroupOffsets = Operation{"GET", "/v1/groups/{group}/offsets", true}
var OpCommitGroupOffsets = Operation{"PUT", "/v1/groups/{group}/offsets", true}
var OpDeleteGroupOffsets = Operation{"DELETE", "/v1/groups/{group}/offsets", true}
var OpResetGroup = Operation{"POST", "/v1/groups/{group}/reset", false}
var OpListSubscriptions = Operation{"GET", "/v1/subscriptions", true}
var OpPutSubscription = Operation{"PUT", "/v1/subscriptions/{subscription}", true}
var OpAlterSubscription = Operation{"PATCH", "/v1/subscriptions/{subscription}", false}
var OpDescribeSubscription = Operation{"GET", "/v1/subscriptions/{subscription}", true}
var OpDeleteSubscription = Operation{"DELETE", "/v1/subscriptions/{subscription}", true}
var OpPauseSubscription = Operation{"POST", "/v1/subscriptions/{subscription}/pause", true}
var OpResumeSubscription = Operation{"POST", "/v1/subscriptions/{subscription}/resume", true}
var OpReplaySubscription = Operation{"POST", "/v1/subscriptions/{subscription}/replay", false}
var OpReadTable = Operation{"GET", "/v1/topics/{topic}/table", true}
var OpReadTableKey = Operation{"GET", "/v1/topics/{topic}/table/{key}", true}
var OpDescribeCluster = Operation{"GET", "/v1/cluster", true}
var OpListReassignments = Operation{"GET", "/v1/cluster/reassignments", true}
var OpReassign = Operation{"POST", "/v1/cluster/reassignments", false}
var OpCancelReassignment = Operation{"DELETE", "/v1/cluster/reassignments/{topic}/{partition}", true}
var OpDrainNode = Operation{"POST", "/v1/cluster/nodes/{node_id}/drain", false}
var OpDecommissionNode = Operation{"POST", "/v1/cluster/nodes/{node_id}/decommission", false}
var OpDescribeDisks = Operation{"GET", "/v1/cluster/nodes/{node_id}/disks", true}
var OpMovePartitions = Operation{"POST", "/v1/cluster/nodes/{node_id}/disks/moves", false}
var OpCancelMove = Operation{"DELETE", "/v1/cluster/nodes/{node_id}/disks/moves/{topic}/{partition}", true}
var OpBalance = Operation{"POST", "/v1/cluster/balance", false}
var OpListRules = Operation{"GET", "/v1/access/rules", true}
var OpAddRule = Operation{"POST", "/v1/access/rules", false}
var OpRemoveRule = Operation{"DELETE", "/v1/access/rules/{rule}", true}
var OpListTokens = Operation{"GET", "/v1/access/tokens", true}
var OpCreateToken = Operation{"POST", "/v1/access/tokens", false}
var OpRevokeToken = Operation{"DELETE", "/v1/access/tokens/{token}", true}
var OpRotateToken = Operation{"POST", "/v1/access/tokens/{token}/rotate", false}
var OpCheckAccess = Operation{"POST", "/v1/access/check", true}
var OpListQuotas = Operation{"GET", "/v1/access/quotas", true}
var OpSetQuota = Operation{"PUT", "/v1/access/quotas/{owner}/{name}", true}
var OpRemoveQuota = Operation{"DELETE", "/v1/access/quotas/{owner}/{name}", true}
var OpSignURL = Operation{"POST", "/v1/access/signed-urls", true}
var OpListURLKeys = Operation{"GET", "/v1/access/keys", true}
var OpAddURLKey = Operation{"POST", "/v1/access/keys", false}
var OpRemoveURLKey = Operation{"DELETE", "/v1/access/keys/{key}", true}
var OpDescribeOverview = Operation{"GET", "/v1/overview", true}
var OpReadHistory = Operation{"GET", "/v1/history", true}
var OpDescribeMe = Operation{"GET", "/v1/me", true}
var OpDescribeSettings = Operation{"GET", "/v1/settings", true}
var OpMayRestart = Operation{"GET", "/v1/cluster/nodes/{node_id}/may-restart", true}
var OpReadAudit = Operation{"GET", "/v1/cluster/nodes/{node_id}/audit", true}
var OpListJobs = Operation{"GET", "/v1/cluster/jobs", true}
var OpListTenants = Operation{"GET", "/v1/tenants", true}
var OpDescribeTenant = Operation{"GET", "/v1/tenants/{tenant}", true}
var OpCreateTenant = Operation{"PUT", "/v1/tenants/{tenant}", true}
var OpAlterTenant = Operation{"PATCH", "/v1/tenants/{tenant}", false}
var OpRemoveTenant = Operation{"DELETE", "/v1/tenants/{tenant}", true}
var OpDescribeUsage = Operation{"GET", "/v1/tenants/{tenant}/usage", true}

var problemRows = []promise{
	{"malformed_request", 400, false, true, "Correct the client or the proxy. The connection is closed."},
	{"malformed_json", 400, false, true, "Correct the body; `line` and `column` say where it stops being JSON."},
	{"malformed_ndjson", 400, false, true, "Correct the line that `line` names. Each line holds exactly one JSON value. No record of the request was stored."},
	{"json_too_complex", 400, false, true, "Flatten the value, or send the long number as a string. `record` or `line` and `byte` say where; `limit` is the node's `json_depth_max` or `json_number_digits_max`. Many parsers could not read such a value. No record of the request was stored."},
	{"invalid_body", 400, false, true, "Compare the body with the request schema of the operation; `detail` names the field. A field given twice is refused too."},
	{"unknown_field", 400, false, true, "Remove or rename the field named in `detail`."},
	{"no_records", 400, false, true, "Send at least one record. A record with an empty value is sent as JSON with `\"value_base64\":\"\"`."},
	{"key_required", 400, false, true, "Give each record a `key`, or the request `key=` or `key_pointer=`. `partition` and the number in `detail` say which record. No record of the request was stored."},
	{"schema_mismatch", 400, false, true, "Correct the record that `record` names at the place in its value that `pointer` names; `detail` has what the schema says. `GET` of the topic has the schema as `value_schema`; with `value_schema_type`, `schema_id` is the one that the value names. No record of the request was stored."},
	{"unknown_query", 400, false, true, "Remove or correct the parameter named in `detail`."},
	{"invalid_query", 400, false, true, "Correct the parameter named in `detail`; parameters that exclude each other are reported this way too."},
	{"invalid_header", 400, false, true, "Correct the header named in `detail`."},
	{"invalid_utf8", 400, false, true, "Encode JSON bodies as UTF-8; send other bytes as `value_base64` or as a raw body."},
	{"invalid_batch", 400, false, true, "Send exactly one RecordBatch v2 (magic 2) whose header matches its records."},
	{"corrupt_batch", 400, false, true, "Compute CRC-32C over the bytes from `attributes` to the end, and send the batch again."},
	{"unknown_producer", 400, false, true, "Get an id from `POST /v1/producers`. Never reuse an id from another node's data or invent one: another producer may have it."},
	{"invalid_topic_name", 400, false, true, "Use 1 to 249 of the characters A-Z a-z 0-9 . _ - , not `.` or `..`, no leading `__penstock`, and not `__groups`, `__deleted`, `__jobs` or `__accepted`."},
	{"invalid_token", 400, false, true, "Send the token of the last answer unchanged to the same member, or poll without one."},
	{"invalid_group_name", 400, false, true, "Use 1 to 200 of A-Z a-z 0-9 . _ - ; a member's name may have colons too."},
	{"invalid_pattern", 400, false, true, "Correct the expression at `position`, counted from 0. The syntax is RE2's: no look-around, no back-references, repetition up to 1000."},
	{"invalid_rule", 400, false, true, "Correct the field that `detail` names."},
	{"invalid_config", 400, false, true, "Correct the setting named in `detail`, which also gives the bounds."},
	{"invalid_quota", 400, false, true, "Correct the field that `detail` names."},
	{"unauthorized", 401, false, true, "Send `Authorization` with scheme Bearer and a token that this node knows."},
	{"forbidden", 403, false, true, "Use a token with the right named in `detail`, or send the request from an allowed origin."},
	{"unknown_source", 404, false, true, "Begin at the first position. The partition has no outputs of this source, or has forgotten it (`source_expiry_ms`, `sources_max`)."},
	{"source_position_stored", 409, false, true, "Drop the outputs of positions up to `source_position`, and send the others, if any are left."},
	{"producer_fenced", 403, false, true, "Stop. `producer_epoch`, also in the header `Producer-Epoch`, is the one that may write; the new producer sends a higher one."},
	{"unknown_topic", 404, false, true, "Create the topic first, or check its spelling."},
	{"topic_id_mismatch", 409, false, true, "The topic was deleted and created again: drop what was made of the old one, and begin at the first records of the new one, whose id is `topic_id`."},
	{"unknown_key", 404, false, true, "The key was never written, or its last value is null. If you have just written it, read with `at_least`."},
	{"unknown_partition", 404, false, true, "Describe the topic to see its partitions; they are numbered from 0."},
	{"quota_exhausted", 403, false, true, "Delete what is not needed, or ask the operator for more; `quota`, `limit` and `used` say of what."},
	{"push_disabled", 403, false, true, "Set `push_targets` on all nodes."},
	{"target_not_allowed", 422, false, true, "Use an https URL whose host is on the list in the setting `push_targets`; `detail` says what is wrong."},
	{"target_not_confirmed", 422, false, true, "Let the receiver answer OPTIONS with 200 and `WebHook-Allowed-Origin`, then send the request again."},
	{"unknown_subscription", 404, false, true, "Check the spelling, or list the subscriptions."},
	{"unknown_access", 404, false, true, "Check the spelling, or list the rules or tokens."},
	{"unknown_tenant", 404, false, true, "Check the spelling, or list the tenants."},
	{"tenant_not_empty", 409, false, true, "Delete them, and then the tenant."},
	{"access_exists", 409, false, true, "Use another id or name, or remove that one first."},
	{"access_locks_out", 409, false, true, "Let another caller make the change, or send `force=true`."},
	{"too_many_rules", 409, false, true, "Remove rules, or name prefixes and groups instead of single names."},
	{"unknown_group", 404, false, true, "Check the spelling; the first member or commit creates a group."},
	{"unknown_member", 404, false, true, "Join again: poll with `topics` and without a token, or send a heartbeat with `member_epoch` 0."},
	{"not_found", 404, false, true, "Compare the path with this API."},
	{"method_not_allowed", 405, false, true, "Use one of the methods in the `Allow` header."},
	{"not_acceptable", 406, false, true, "Accept one of the media types of the operation."},
	{"body_timeout", 408, true, true, "Retry, or send less per request. The node waits for `body_read_timeout_ms`, and longer for bodies that arrive steadily."},
	{"sequence_gap", 409, true, true, "Send the records from `expected_seq` on, then retry this request. Retries must use the same batches."},
	{"duplicate_older_than_window", 409, false, true, "Treat the records as stored. They precede the last 16 batches of their producer, so their position is forgotten."},
	{"topic_exists", 409, false, true, "Describe the topic; alter it, or choose another name."},
	{"topic_protected", 409, false, true, "Set `deletion_protection` of the topic to false, then delete it."},
	{"too_many_topics", 409, false, true, "Delete unused topics, ask for fewer partitions, or raise `topics_max` or `partitions_max` of the node."},
	{"member_fenced", 409, false, true, "Stop what the member does and join again with `member_epoch` 0; `recover` has the field to send. Clients with the same `member_id` fence each other: give each its own."},
	{"stale_token", 409, false, true, "Poll again without a token. Records that were not committed are delivered again. If another client uses the same `member_id`, give each its own."},
	{"group_not_empty", 409, false, true, "Stop the members first, or repeat the request with `force` where it takes it."},
	{"too_many_members", 409, false, true, "Use fewer groups, members or positions, or raise the limit; `limit` has it."},
	{"wrong_group_kind", 409, false, true, "Use `group_poll` with a group of kind consumer and `acquire_records` with one of kind share. A group that has read something keeps its kind: delete it, or use another one."},
	{"lock_expired", 409, false, true, "Acquire records again: records that are not acknowledged are delivered again. Give the lock more time, or extend it."},
	{"lock_unknown", 409, true, false, "The lock was over a while ago, or another coordinator gave it out. Outcomes that were sent before, with or without an answer, may be stored: undo nothing. Records without a stored acknowledgement are delivered again; acquire records again."},
	{"no_committed_offset", 409, false, true, "Commit or reset positions, or set `start` of the group to earliest or latest."},
	{"commit_above_high_watermark", 409, false, true, "Commit the next offset after the last record that was read; `high_watermark` has the highest."},
	{"topic_not_compacted", 409, false, true, "Set `cleanup_policy` of the topic to `compact` or `compact,delete`."},
	{"no_other_node", 409, false, true, "Start another node of the cluster first (`penstock serve --coordination zookeeper://…`; a node alone and one with `embedded` have no others), or end the drain of another node."},
	{"offset_below_log_start", 410, false, true, "Go on at `log_start`, which is the first offset that can be read."},
	{"fencing_token_mismatch", 412, false, true, "Another writer has taken the partition over; `fencing_token` is what it set, or null. Stop writing, or take over with your own token."},
	{"log_end_mismatch", 412, false, true, "Read from the expected offset to `log_end`, decide again, and send the new `log_end`."},
	{"body_too_large", 413, false, true, "Send less in one request; `limit` is the bound that was exceeded, in bytes, records or partitions as `detail` says."},
	{"record_too_large", 413, false, true, "Send a smaller record, or raise the topic's `record_bytes_max`."},
	{"batch_too_large", 413, false, true, "Send fewer records in one request, or raise the topic's `batch_bytes_max`."},
	{"unsupported_media_type", 415, false, true, "Set `Content-Type` to a media type of the operation, with no charset but UTF-8."},
	{"unsupported_encoding", 415, false, true, "Send the body without `Content-Encoding`, or with one named in the `Accept-Encoding` header of the answer."},
	{"offset_above_high_watermark", 416, false, true, "Fetch at `high_watermark`, where a long poll waits for the next record."},
	{"misdirected", 421, false, true, "Send the request to `leader_url`, which `Penstock-Leader` has as well; or leave `Penstock-Forward` out."},
	{"host_not_allowed", 421, false, true, "Call the node by an IP address, by localhost or by the host of its advertised URL; or name the host in the setting `allowed_hosts`, or give the node tokens."},
	{"idempotency_key_reused", 422, false, true, "Use a new key for each request, and retry with exactly the same body, media type and query. No record was stored."},
	{"too_many_requests", 429, true, true, "Wait for the seconds given in `Retry-After`."},
	{"quota_exceeded", 429, true, true, "Wait for the seconds given in `Retry-After`. `quota` and `owner` say which limit it is, `limit` and `used` how much of it is used."},
	{"too_many_long_polls", 429, true, true, "Wait for the seconds given in `Retry-After`, or fetch without `wait_ms`."},
	{"headers_too_large", 431, false, true, "Send fewer or shorter headers; `header_bytes_max` is the limit."},
	{"internal", 500, true, false, "Report the `request_id`. Retry only if a second execution is harmless."},
	{"records_damaged", 500, false, true, "Continue at `damaged_end`, the offset after the damage, or wait until the operator has restored the records. The node repairs records itself if the object store has them."},
	{"patterns_unavailable", 501, false, true, "Install google-re2 on every node, with `pip install --find-links dist 'penstock-server[patterns]'`, or name the topics in `topics`."},
	{"unsupported_transfer_coding", 501, false, true, "Send the body with `Content-Length` or with `Transfer-Encoding` chunked alone; compress it by `Content-Encoding`."},
	{"unknown_method", 501, false, true, "Use a method that the path takes. Use `http://` if the node has no TLS."},
	{"audit_unavailable", 503, true, true, "Nothing was changed. Let the operator make room in the directory of the audit trail, and retry."},
	{"overloaded", 503, true, true, "Wait for the seconds given in `Retry-After`."},
	{"draining", 503, true, true, "Use another node, or wait for the seconds given in `Retry-After`."},
	{"too_many_open_files", 503, true, true, "Retry after the seconds in `Retry-After`; no record was stored. If it lasts, raise the node's limit of open files."},
	{"storage_failed", 503, true, false, "Operator: `detail` and the node's log name the cause. A record sent at that moment may have been stored."},
	{"not_leader", 503, true, true, "Retry. Leadership was moving until the request timed out."},
	{"no_leader", 503, true, true, "Retry; a leader is elected as soon as a replica with every committed record is back. If it lasts: start the nodes of its replicas."},
	{"coordinator_moved", 503, true, false, "Send the same request again; calls of a group may be repeated."},
	{"not_enough_replicas", 503, true, true, "Retry; no record was stored. Fewer replicas are in sync than the topic's `min_insync_replicas`; `acks=1` still works."},
	{"too_few_nodes", 503, true, true, "Retry when the nodes in `detail` are back, or ask for a smaller `replication_factor`. A factor above the number of all nodes is 400 `invalid_config`."},
	{"offset_not_available", 503, true, true, "Retry at the same position. The records are not lost."},
	{"table_loading", 503, true, true, "Retry after `Retry-After`. The first read of a table after a start reads its log."},
	{"store_unavailable", 503, true, true, "Wait for the seconds given in `Retry-After`; newer records, which are on local disk, stay readable."},
	{"registry_unavailable", 503, true, true, "Send the same request again after `Retry-After`. A value names a schema that the node does not know yet, and it cannot ask the registry for it; `detail` says why. Values of schemas that it knows are taken meanwhile."},
	{"spool_full", 503, true, true, "Wait for the seconds given in `Retry-After`; no record was stored. Operator: repair the store or the way to it. Appends resume by themselves."},
	{"ack_timeout", 504, true, false, "The records may be stored. Retry with the same `Idempotency-Key` or sequence number; without one, look at the end of the log first."},
	{"leadership_lost", 504, true, false, "As for `ack_timeout`. The node has retried requests with an `Idempotency-Key` or a sequence number until the timeout; clients can retry them too."},
	{"not_enough_replicas_after_append", 504, true, false, "As for `ack_timeout`. The leader has the records; they are committed once enough replicas are back."},
	{"unsupported_http_version", 505, false, true, "Use HTTP/1.1 or HTTP/2."},
	{"storage_full", 507, true, true, "Operator: free space or shorten retention. Reads and deletes work; appends resume by themselves."},
	{"table_too_large", 507, false, true, "Raise `table_memory_bytes` of the node, or give the topic more partitions."},
}
