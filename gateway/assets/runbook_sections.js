// Generated from docs/operate/runbook.md by `python -m tests.console.runbook`: by the code of a finding.
export default {
 "nodedown": [
  "PenstockNodeDown",
  "`page`. A node does not answer `/metrics`. **Look**: `systemctl status penstock`; the last lines of its log say why it ended. **Do**: start it again. If it ends with one line and code 1, do what the line says. **Afterwards**: `penstock_last_shutdown_killed` and the kernel's log say whether memory ran out."
 ],
 "nodesmissing": [
  "PenstockNodesMissing",
  "`ticket`. Fewer nodes are registered than in the last day. **Look**: `penstock cluster status` names the nodes. **Do**: start the missing one, or [remove it](../cluster.md) if it does not come back. **Afterwards**: the alert ends by itself one day after a node was removed on purpose."
 ],
 "nocontroller": [
  "PenstockNoController",
  "`page`. No node, or more than one, says that it is the controller. Nothing elects leaders then. **Look**: does the coordination store answer? **Do**: start it. **Afterwards**: [the coordination store](coordination.md) says what went on and what waited."
 ],
 "coordinationsilent": [
  "PenstockCoordinationSilent",
  "`page`. A node has not had an answer of the coordination store for a minute. Reads and appends go on; leaders and settings do not change. **Look**: the network to ZooKeeper, its log, its disk. **Do**: restore it; never empty it. **Afterwards**: [when it was emptied](coordination.md#when-it-was-emptied)."
 ],
 "accessstale": [
  "PenstockAccessStale",
  "`ticket`. A node decides by rules and tokens that were confirmed a minute ago and more: a revoked token may still work there. **Look**: the section above. **Do**: restore the coordination store. If a token must end at once, stop the node. **Afterwards**: `penstock_access_generation` is the same on all nodes."
 ],
 "restarted": [
  "PenstockRestarted",
  "`ticket`. A process has started three times in half an hour. **Look**: `journalctl -u penstock`, and the kernel's log for the out-of-memory killer. **Do**: give it memory, or lower [the bounds](../reference/limits.md). **Afterwards**: without a cause in either log it is a bug; report it."
 ],
 "backgroundfails": [
  "PenstockBackgroundFails",
  "`ticket`. A background task failed. Permanent tasks start again by themselves. **Look**: the log line `background task failed` has the task and the reason. **Do**: what the reason says (disk, store, permissions). **Afterwards**: without one it is a bug; report the line."
 ],
 "auditfails": [
  "PenstockAuditFails",
  "`page`. The audit trail cannot be written, so changes are refused with `audit_unavailable`. Produce and fetch go on. **Look**: free bytes and rights of its directory. **Do**: make room; [audit](../audit.md) says which files may go. **Afterwards**: `penstock audit` shows the changes whose end it lacks."
 ],
 "plaincodec": [
  "PenstockPlainCodec",
  "`info`. The compiled codec is not there, and the node uses several times the CPU. **Look**: `penstock doctor` says why. **Do**: [install](../install.md) the wheel for this platform. **Afterwards**: `penstock_codec_compiled` is 1."
 ],
 "certificateexpires": [
  "PenstockCertificateExpires",
  "`ticket`. A certificate of a listener, or of its chain, ends within 14 days. Clients refuse the node after that. **Look**: `penstock doctor --url` names the node. **Do**: put the new certificate and key into the files of the listener; the node reads them within `reload_check_ms`. **Afterwards**: `penstock_tls_certificate_expiry_seconds` is larger."
 ],
 "versionsdiffer": [
  "PenstockVersionsDiffer",
  "`ticket`. Nodes of one cluster have had different versions for a day. **Look**: `penstock cluster status` has the version of each node. **Do**: go on with the [upgrade](upgrade.md), or take it back. **Afterwards**: all nodes have one version."
 ],
 "leaderlesspartitions": [
  "PenstockLeaderlessPartitions",
  "`page`. Partitions can be neither read nor written. **Look**: `penstock cluster status` names them and their replicas. **Do**: start a node that has an in-sync replica. **Afterwards**: if none comes back, [choose which records stay](backup.md#a-leader-that-lacks-committed-records)."
 ],
 "underminisr": [
  "PenstockUnderMinIsr",
  "`page`. Producers with `acks=all` get 503 `not_enough_replicas`. **Look**: `penstock cluster status` names who lags. **Do**: start the missing node, or repair its disk or network. **Afterwards**: producers that retry lose nothing."
 ],
 "underreplicated": [
  "PenstockUnderReplicated",
  "`ticket`. One more failure can make the partition refuse writes or lose its leader. **Look**: a node that is down or drained; `penstock_replica_lag_records`; the disk of the follower. **Do**: start it, or end the drain. **Afterwards**: the count is 0 when the follower has caught up."
 ],
 "uncleanelection": [
  "PenstockUncleanElection",
  "`page`. The topic allows it, and a replica without all committed records leads. **Look**: the log of the controller names the partition and both ends. **Do**: say to producers of that time that records may be gone, and let them send again. **Afterwards**: set `unclean_election` to false if that was not meant."
 ],
 "electionstorm": [
  "PenstockElectionStorm",
  "`ticket`. Leaders move back and forth. **Look**: sessions that end (`session_timeout_ms`), long pauses of a machine, a network that flaps. **Do**: drain the node that comes and goes. **Afterwards**: raise `session_timeout_ms` only if pauses cannot be mended."
 ],
 "divergedreplicas": [
  "PenstockDivergedReplicas",
  "`page`. A follower has committed records that its leader lacks. It does not follow, so nothing is lost yet. **Look**: the log of the follower names the partition and both ends. **Do**: [choose which records stay](backup.md#a-leader-that-lacks-committed-records). **Afterwards**: find out which disk went back in time."
 ],
 "replicaoffline": [
  "PenstockReplicaOffline",
  "`page`. A disk failed or is not mounted; its partitions are led elsewhere, or answer 503 `storage_failed`. **Look**: the log line `a data directory is offline`. **Do**: mount or replace the disk and start the node. **Afterwards**: [when one fails](data-directories.md#when-one-fails)."
 ],
 "recordsdamaged": [
  "PenstockRecordsDamaged",
  "`page`. A segment has bytes that fail their checksum; fetches do not return them. **Look**: the log has file and offset. **Do**: `penstock tier repair`, or repair from a replica. **Afterwards**: watch the disk; `smartctl` and the kernel's log."
 ],
 "topicssetaside": [
  "PenstockTopicsSetAside",
  "`page`. A `topic.json` is missing or cannot be read. The records are still there, and the topic is not served. **Look**: the log has the path. **Do**: restore the file from a [backup](backup.md) and start the node. **Afterwards**: nothing was deleted, and nothing will be."
 ],
 "readsfail": [
  "PenstockReadsFail",
  "`ticket`. The disk answers reads with errors. **Look**: the kernel's log; `penstock cluster explain` names the topics. **Do**: replace the disk; replicas and the store have the records. **Afterwards**: `penstock_quarantined_segments` counts what was damaged."
 ],
 "midlogtruncation": [
  "PenstockMidLogTruncation",
  "`page`. The last start found complete batches after a damaged place: the disk lost bytes that it had confirmed. **Look**: the log of the start has partition and offsets. **Do**: compare with replicas or the store; say to producers which time is concerned. **Afterwards**: use a disk that keeps what it confirms."
 ],
 "diskfullsoon": [
  "PenstockDiskFullSoon",
  "`ticket`. At the speed of the last hour the disk is full in four hours. **Look**: `penstock tier status`; the topics with the most `penstock_topic_log_bytes`. **Do**: shorten [retention](../retention.md), add a disk, or [move partitions](data-directories.md#move-partitions-between-disks) to another one of the node. **Afterwards**: [capacity](capacity.md)."
 ],
 "diskfull": [
  "PenstockDiskFull",
  "`page`. Appends get 507, or will soon. Reads go on. **Look**: what else is on that disk; does the store take segments? **Do**: make room, or shorten retention. **Afterwards**: appends go on by themselves, without a start."
 ],
 "filesnearlimit": [
  "PenstockFilesNearLimit",
  "`ticket`. Connections and segments use file handles. **Look**: `penstock_segments`, and the connections of the node. **Do**: raise `LimitNOFILE`, or use larger segments. **Afterwards**: the gauge falls when segments are deleted."
 ],
 "produceerrors": [
  "PenstockProduceErrors",
  "`page`. More than one produce in a hundred fails by the node's fault. **Look**: `penstock_requests_total` by status: 503 has a code in the log; a full disk (507) has an alert of its own. **Do**: the section of that cause. **Afterwards**: producers with `Idempotency-Key` or sequences can retry all of it."
 ],
 "fetcherrors": [
  "PenstockFetchErrors",
  "`page`. More than one fetch or poll in a hundred fails. **Look**: the log; does the store answer, does the partition have a leader? **Do**: the section of that cause. **Afterwards**: consumers go on at their positions."
 ],
 "refusals": [
  "PenstockRefusals",
  "`ticket`. Clients get more than one 429 or 503 a second. **Look**: `limit` in the problem says which bound; `penstock_quota_refused_total` if it is a quota. **Do**: raise it, or slow the client. **Afterwards**: [limits](../reference/limits.md)."
 ],
 "slowacks": [
  "PenstockSlowAcks",
  "`ticket`. **Look**: `penstock_stage_duration_seconds` by stage: `queue` and `flush` are the disk, `ack` alone is a follower. **Do**: the section of that cause. **Afterwards**: compare with what the producers' timeouts allow."
 ],
 "slowflush": [
  "PenstockSlowFlush",
  "`ticket`. The disk takes long to confirm. **Look**: `penstock doctor` measures a flush; who else writes to that disk? **Do**: a disk of its own. **Afterwards**: [what an acknowledgement means](../produce.md#what-an-acknowledgement-means) has cheaper kinds."
 ],
 "loopbusy": [
  "PenstockLoopBusy",
  "`ticket`. A process is at the limit of its core. **Look**: `penstock_requests_total` by operation. **Do**: more `--shards` if there are cores, larger batches, more nodes. **Afterwards**: [capacity](capacity.md)."
 ],
 "loopblocked": [
  "PenstockLoopBlocked",
  "`ticket`. Something holds the loop for a quarter of a second and more. **Look**: is the machine paused or swapping? **Do**: nothing in Penstock is meant to take that long; report it with `penstock doctor` and a profile. **Afterwards**: leaders may have moved meanwhile."
 ],
 "keysevicted": [
  "PenstockKeysEvicted",
  "`ticket`. A retry that comes late can be stored twice. **Look**: `penstock_idempotency_keys`. **Do**: raise the limit of keys, or let producers use [sequences](../produce.md). **Afterwards**: the counter does not move."
 ],
 "sequencegaps": [
  "PenstockSequenceGaps",
  "`ticket`. A producer goes on after a failed request, or two producers share an id. **Look**: the log of the producer; 409 `sequence_gap` names the expected number. **Do**: mend the producer. **Afterwards**: no record was stored out of order."
 ],
 "tierbehind": [
  "PenstockTierBehind",
  "`ticket`. A closed segment waits for the store for an hour. **Look**: `penstock tier status TOPIC` has the last failure. **Do**: credentials, bucket, network. **Afterwards**: the backlog is uploaded by itself; until then it stays on the disk."
 ],
 "spoolrefuses": [
  "PenstockSpoolRefuses",
  "`page`. `tier_spool_bytes_max` is reached, and appends are refused. **Look**: as above. **Do**: restore the store, or raise the setting if the disk has room. **Afterwards**: appends go on by themselves."
 ],
 "groupfallsbehind": [
  "PenstockGroupFallsBehind",
  "`ticket`. The lag has grown for half an hour. **Look**: `penstock group explain GROUP`. **Do**: more members up to the number of partitions, or faster ones. **Afterwards**: records that retention deletes first are lost for the group."
 ],
 "groupstuck": [
  "PenstockGroupStuck",
  "`ticket`. There are records, and no member reads them. **Look**: are the workers running? `penstock group describe GROUP` shows who left. **Do**: start them, or delete the group if it has no use any more. **Afterwards**: positions are deleted `offsets_retention_ms` after the last commit."
 ],
 "pushfails": [
  "PenstockPushFails",
  "`ticket`. More than half of the deliveries fail. **Look**: `penstock subscription describe NAME` has the last answer of the receiver. **Do**: mend the receiver; push retries by itself. **Afterwards**: records that it gave up are in the dead-letter topic."
 ],
 "pushforbidden": [
  "PenstockPushForbidden",
  "`ticket`. The owner of a subscription lacks a right, or its token ended. **Look**: `penstock subscription describe NAME` has the reason. **Do**: `penstock acl add`, or PUT the subscription as another owner. **Afterwards**: it goes on where it stopped."
 ],
 "deadletters": [
  "PenstockDeadLetters",
  "`ticket`. Records could not be processed or delivered. **Look**: read the dead-letter topic; headers have the reason. **Do**: mend the consumer, then use `penstock group replay-dead-letters` or `penstock subscription replay-dead-letters`. **Afterwards**: the gauge of pending dead letters is 0."
 ]
};
