CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL PRIMARY KEY)
;
INSERT INTO alembic_version VALUES ('r0001_pre')
;
CREATE TABLE audit (
	id BIGSERIAL NOT NULL, 
	at FLOAT NOT NULL, 
	"user" TEXT, 
	token_id TEXT, 
	action TEXT NOT NULL, 
	target TEXT NOT NULL, 
	outcome TEXT NOT NULL, 
	address TEXT, 
	CONSTRAINT pk_audit PRIMARY KEY (id)
)
;
CREATE INDEX ix_audit_at ON audit (at)
;
CREATE TABLE drained_clusters (
	cluster TEXT NOT NULL, 
	drained BOOLEAN NOT NULL, 
	reason TEXT NOT NULL, 
	at FLOAT NOT NULL, 
	CONSTRAINT pk_drained_clusters PRIMARY KEY (cluster)
)
;
CREATE TABLE jobs (
	seq BIGSERIAL NOT NULL, 
	submission_id TEXT COLLATE "C" NOT NULL, 
	spec JSON NOT NULL, 
	"user" TEXT NOT NULL, 
	priority BIGINT NOT NULL, 
	"group" TEXT, 
	idempotency_key TEXT, 
	state TEXT NOT NULL, 
	target TEXT NOT NULL, 
	stop_reason TEXT, 
	attempt BIGINT NOT NULL, 
	cluster TEXT, 
	remote_id TEXT, 
	session_name TEXT, 
	accepted_at FLOAT NOT NULL, 
	placed_at FLOAT, 
	seen_at FLOAT, 
	started_at FLOAT, 
	ended_at FLOAT, 
	changed_at FLOAT NOT NULL, 
	not_before FLOAT NOT NULL, 
	queue_deadline FLOAT, 
	reason TEXT NOT NULL, 
	error_type TEXT, 
	exit_code BIGINT, 
	infra_failures BIGINT NOT NULL, 
	user_failures BIGINT NOT NULL, 
	avoid JSON NOT NULL, 
	name TEXT, 
	parent TEXT, 
	head TEXT COLLATE "C", 
	head_group TEXT, 
	end_unreported BOOLEAN DEFAULT false NOT NULL, 
	CONSTRAINT pk_jobs PRIMARY KEY (seq), 
	CONSTRAINT ck_jobs_state CHECK (state IN ('QUEUED', 'PLACED', 'SUBMITTED', 'RUNNING', 'UNREACHABLE', 'LOST', 'SUCCEEDED', 'FAILED', 'STOPPED')), 
	CONSTRAINT ck_jobs_target CHECK (target IN ('FINISHED', 'STOPPED')), 
	CONSTRAINT uq_jobs_submission_id UNIQUE (submission_id)
)
;
CREATE INDEX ix_jobs_ended ON jobs (ended_at) WHERE ended_at IS NOT NULL
;
CREATE INDEX ix_jobs_group ON jobs ("group") WHERE "group" IS NOT NULL
;
CREATE INDEX ix_jobs_heads ON jobs (seq) WHERE head IS NULL
;
CREATE INDEX ix_jobs_heads_state ON jobs (state, seq) WHERE head IS NULL
;
CREATE INDEX ix_jobs_heads_user ON jobs ("user", seq) WHERE head IS NULL
;
CREATE INDEX ix_jobs_members ON jobs (head, state, seq) WHERE head IS NOT NULL
;
CREATE INDEX ix_jobs_name ON jobs (name) WHERE name IS NOT NULL
;
CREATE INDEX ix_jobs_open ON jobs ("user", state) WHERE ended_at IS NULL
;
CREATE INDEX ix_jobs_parent ON jobs (parent) WHERE parent IS NOT NULL
;
CREATE INDEX ix_jobs_queue_deadline ON jobs (queue_deadline) WHERE queue_deadline IS NOT NULL
;
CREATE INDEX ix_jobs_state ON jobs (state, seq)
;
CREATE INDEX ix_jobs_stopping ON jobs (state, target) WHERE target = 'STOPPED'
;
CREATE INDEX ix_jobs_user ON jobs ("user")
;
CREATE UNIQUE INDEX uq_jobs_head_group ON jobs (head_group, "user") WHERE head_group IS NOT NULL
;
CREATE UNIQUE INDEX uq_jobs_idempotency ON jobs ("user", idempotency_key) WHERE idempotency_key IS NOT NULL
;
CREATE TABLE lease (
	id BIGINT NOT NULL, 
	holder TEXT, 
	epoch BIGINT NOT NULL, 
	expires_at FLOAT NOT NULL, 
	CONSTRAINT pk_lease PRIMARY KEY (id), 
	CONSTRAINT ck_lease_one_row CHECK (id = 1)
)
;
CREATE TABLE meta (
	id BIGINT NOT NULL, 
	store_id TEXT NOT NULL, 
	created_at FLOAT NOT NULL, 
	changes BIGINT NOT NULL, 
	job_key TEXT, 
	CONSTRAINT pk_meta PRIMARY KEY (id), 
	CONSTRAINT ck_meta_one_row CHECK (id = 1)
)
;
CREATE TABLE packages (
	id BIGSERIAL NOT NULL, 
	name TEXT, 
	size BIGINT NOT NULL, 
	chunks BIGINT NOT NULL, 
	used_at FLOAT NOT NULL, 
	CONSTRAINT pk_packages PRIMARY KEY (id), 
	CONSTRAINT uq_packages_name UNIQUE (name)
)
;
CREATE TABLE snapshots (
	cluster TEXT NOT NULL, 
	snapshot JSON NOT NULL, 
	CONSTRAINT pk_snapshots PRIMARY KEY (cluster)
)
;
CREATE TABLE tokens (
	id TEXT NOT NULL, 
	"user" TEXT NOT NULL, 
	role TEXT NOT NULL, 
	digest TEXT NOT NULL, 
	created_at FLOAT NOT NULL, 
	expires_at FLOAT, 
	revoked_at FLOAT, 
	used_at FLOAT, 
	CONSTRAINT pk_tokens PRIMARY KEY (id)
)
;
CREATE TABLE upkeep (
	id BIGINT NOT NULL, 
	clock_boot TEXT, 
	clock_offset FLOAT, 
	secrets_until FLOAT NOT NULL, 
	logs_until FLOAT, 
	CONSTRAINT pk_upkeep PRIMARY KEY (id), 
	CONSTRAINT ck_upkeep_one_row CHECK (id = 1)
)
;
CREATE TABLE uploads (
	"user" TEXT NOT NULL, 
	name TEXT NOT NULL, 
	content TEXT NOT NULL, 
	size BIGINT NOT NULL, 
	used_at FLOAT NOT NULL, 
	CONSTRAINT pk_uploads PRIMARY KEY ("user", name)
)
;
CREATE INDEX ix_uploads_content ON uploads (content)
;
CREATE TABLE waits (
	id BIGINT NOT NULL, 
	epoch BIGINT NOT NULL, 
	waits JSON NOT NULL, 
	CONSTRAINT pk_waits PRIMARY KEY (id)
)
;
CREATE TABLE attempts (
	submission_id TEXT COLLATE "C" NOT NULL, 
	number BIGINT NOT NULL, 
	cluster TEXT NOT NULL, 
	remote_id TEXT NOT NULL, 
	session_name TEXT, 
	entrypoint TEXT NOT NULL, 
	runtime_env JSON NOT NULL, 
	decision JSON NOT NULL, 
	placed_at FLOAT NOT NULL, 
	started_at FLOAT, 
	ended_at FLOAT, 
	outcome TEXT, 
	reason TEXT NOT NULL, 
	executor TEXT DEFAULT 'ray-jobs' NOT NULL, 
	end_unreported BOOLEAN DEFAULT false NOT NULL, 
	CONSTRAINT pk_attempts PRIMARY KEY (submission_id, number), 
	CONSTRAINT fk_attempts_submission_id FOREIGN KEY(submission_id) REFERENCES jobs (submission_id)
)
;
CREATE INDEX ix_attempts_ended ON attempts (ended_at, placed_at) WHERE ended_at IS NOT NULL
;
CREATE INDEX ix_attempts_live ON attempts (cluster) WHERE outcome IS NULL
;
CREATE INDEX ix_attempts_placed ON attempts (placed_at)
;
CREATE UNIQUE INDEX uq_attempts_remote ON attempts (cluster, remote_id)
;
CREATE TABLE dependencies (
	submission_id TEXT COLLATE "C" NOT NULL, 
	needs TEXT COLLATE "C" NOT NULL, 
	failed BOOLEAN NOT NULL, 
	CONSTRAINT pk_dependencies PRIMARY KEY (submission_id, needs), 
	CONSTRAINT fk_dependencies_submission_id FOREIGN KEY(submission_id) REFERENCES jobs (submission_id), 
	CONSTRAINT fk_dependencies_needs FOREIGN KEY(needs) REFERENCES jobs (submission_id)
)
;
CREATE INDEX ix_dependencies_failed ON dependencies (submission_id) WHERE failed
;
CREATE INDEX ix_dependencies_needs ON dependencies (needs)
;
CREATE TABLE events (
	id BIGSERIAL NOT NULL, 
	submission_id TEXT COLLATE "C" NOT NULL, 
	at FLOAT NOT NULL, 
	"old" TEXT, 
	"new" TEXT NOT NULL, 
	attempt BIGINT NOT NULL, 
	cluster TEXT, 
	reason TEXT NOT NULL, 
	CONSTRAINT pk_events PRIMARY KEY (id), 
	CONSTRAINT fk_events_submission_id FOREIGN KEY(submission_id) REFERENCES jobs (submission_id)
)
;
CREATE INDEX ix_events_job ON events (submission_id, id)
;
CREATE TABLE logs (
	submission_id TEXT COLLATE "C" NOT NULL, 
	attempt BIGINT NOT NULL, 
	text TEXT NOT NULL, 
	CONSTRAINT pk_logs PRIMARY KEY (submission_id, attempt), 
	CONSTRAINT fk_logs_submission_id FOREIGN KEY(submission_id) REFERENCES jobs (submission_id)
)
;
CREATE TABLE package_chunks (
	package_id BIGINT NOT NULL, 
	number BIGINT NOT NULL, 
	content BYTEA NOT NULL, 
	CONSTRAINT pk_package_chunks PRIMARY KEY (package_id, number), 
	CONSTRAINT fk_package_chunks_package_id FOREIGN KEY(package_id) REFERENCES packages (id)
)
;
CREATE TABLE results (
	submission_id TEXT COLLATE "C" NOT NULL, 
	attempt BIGINT NOT NULL, 
	content BYTEA NOT NULL, 
	problem TEXT, 
	CONSTRAINT pk_results PRIMARY KEY (submission_id), 
	CONSTRAINT fk_results_submission_id FOREIGN KEY(submission_id) REFERENCES jobs (submission_id)
)
;
CREATE TABLE sessions (
	submission_id TEXT COLLATE "C" NOT NULL, 
	alive_at FLOAT NOT NULL, 
	ray_job_id TEXT, 
	helper_pid BIGINT, 
	helper_address TEXT, 
	failure TEXT, 
	disconnected BOOLEAN NOT NULL, 
	stop_requested BOOLEAN NOT NULL, 
	refused_attempt BIGINT, 
	CONSTRAINT pk_sessions PRIMARY KEY (submission_id), 
	CONSTRAINT fk_sessions_submission_id FOREIGN KEY(submission_id) REFERENCES jobs (submission_id)
)
;
CREATE TABLE tags (
	submission_id TEXT COLLATE "C" NOT NULL, 
	tag TEXT NOT NULL, 
	CONSTRAINT pk_tags PRIMARY KEY (submission_id, tag), 
	CONSTRAINT fk_tags_submission_id FOREIGN KEY(submission_id) REFERENCES jobs (submission_id)
)
;
CREATE INDEX ix_tags_tag ON tags (tag)
;
INSERT INTO "audit" ("id", "at", "user", "token_id", "action", "target", "outcome", "address") VALUES ('1', '1700000000', 'ann', NULL, 'token create', 't1', 'ok', NULL)
;
SELECT setval('audit_id_seq', 1)
;
INSERT INTO "drained_clusters" ("cluster", "drained", "reason", "at") VALUES ('a', 'true', 'disks', '1700000000')
;
INSERT INTO "jobs" ("seq", "submission_id", "spec", "user", "priority", "group", "idempotency_key", "state", "target", "stop_reason", "attempt", "cluster", "remote_id", "session_name", "accepted_at", "placed_at", "seen_at", "started_at", "ended_at", "changed_at", "not_before", "queue_deadline", "reason", "error_type", "exit_code", "infra_failures", "user_failures", "avoid", "name", "parent", "head", "head_group", "end_unreported") VALUES ('1', 'is-QUEUED', '{"tags":["ü","b"],"preferred_cluster":null,"only_cluster":null,"only_tags":[],"priority":0,"depends_on":[],"executor":"ray-jobs","max_retries":0,"timeout_s":null,"queue_timeout_s":null,"on_unreachable":"wait","idempotency_key":null,"entrypoint_num_cpus":null,"entrypoint_num_gpus":null,"entrypoint_memory":null,"group":null,"parent":null,"stop_children":false,"entrypoint":"python -c ''print(1)''","user":"ann","name":null,"runtime_env":{"env_vars":{"A":"é\u0000"}},"metadata":{},"requirements":{},"entrypoint_resources":{},"entrypoint_label_selector":{},"client_address":null,"client_ray":null,"client_python":null}', 'ann', '0', NULL, NULL, 'QUEUED', 'FINISHED', NULL, '0', NULL, NULL, NULL, '1700000000', NULL, NULL, NULL, NULL, '1700000000', '0', NULL, 'accepted', NULL, NULL, '0', '0', '[]', NULL, NULL, NULL, NULL, 'false')
;
INSERT INTO "jobs" ("seq", "submission_id", "spec", "user", "priority", "group", "idempotency_key", "state", "target", "stop_reason", "attempt", "cluster", "remote_id", "session_name", "accepted_at", "placed_at", "seen_at", "started_at", "ended_at", "changed_at", "not_before", "queue_deadline", "reason", "error_type", "exit_code", "infra_failures", "user_failures", "avoid", "name", "parent", "head", "head_group", "end_unreported") VALUES ('10', 'waits', '{"tags":[],"preferred_cluster":null,"only_cluster":null,"only_tags":[],"priority":0,"depends_on":["is-RUNNING"],"executor":"ray-jobs","max_retries":0,"timeout_s":null,"queue_timeout_s":null,"on_unreachable":"wait","idempotency_key":"once","entrypoint_num_cpus":null,"entrypoint_num_gpus":null,"entrypoint_memory":null,"group":"g","parent":null,"stop_children":false,"entrypoint":"python -c ''print(1)''","user":"ann","name":"nightly","runtime_env":{},"metadata":{},"requirements":{},"entrypoint_resources":{},"entrypoint_label_selector":{},"client_address":null,"client_ray":null,"client_python":null}', 'ann', '0', 'g', 'once', 'QUEUED', 'FINISHED', NULL, '0', NULL, NULL, NULL, '1700000000', NULL, NULL, NULL, NULL, '1700000000', '0', NULL, 'accepted', NULL, NULL, '0', '0', '[]', 'nightly', NULL, NULL, 'g', 'false')
;
INSERT INTO "jobs" ("seq", "submission_id", "spec", "user", "priority", "group", "idempotency_key", "state", "target", "stop_reason", "attempt", "cluster", "remote_id", "session_name", "accepted_at", "placed_at", "seen_at", "started_at", "ended_at", "changed_at", "not_before", "queue_deadline", "reason", "error_type", "exit_code", "infra_failures", "user_failures", "avoid", "name", "parent", "head", "head_group", "end_unreported") VALUES ('11', 'waits-too', '{"tags":[],"preferred_cluster":null,"only_cluster":null,"only_tags":[],"priority":0,"depends_on":[],"executor":"ray-jobs","max_retries":0,"timeout_s":null,"queue_timeout_s":null,"on_unreachable":"wait","idempotency_key":null,"entrypoint_num_cpus":null,"entrypoint_num_gpus":null,"entrypoint_memory":null,"group":"g","parent":null,"stop_children":false,"entrypoint":"python -c ''print(1)''","user":"ann","name":null,"runtime_env":{},"metadata":{},"requirements":{},"entrypoint_resources":{},"entrypoint_label_selector":{},"client_address":null,"client_ray":null,"client_python":null}', 'ann', '0', 'g', NULL, 'QUEUED', 'FINISHED', NULL, '0', NULL, NULL, NULL, '1700000000', NULL, NULL, NULL, NULL, '1700000000', '0', NULL, 'accepted', NULL, NULL, '0', '0', '[]', NULL, NULL, 'waits', NULL, 'false')
;
INSERT INTO "jobs" ("seq", "submission_id", "spec", "user", "priority", "group", "idempotency_key", "state", "target", "stop_reason", "attempt", "cluster", "remote_id", "session_name", "accepted_at", "placed_at", "seen_at", "started_at", "ended_at", "changed_at", "not_before", "queue_deadline", "reason", "error_type", "exit_code", "infra_failures", "user_failures", "avoid", "name", "parent", "head", "head_group", "end_unreported") VALUES ('12', 'session', '{"tags":[],"preferred_cluster":null,"only_cluster":null,"only_tags":[],"priority":0,"depends_on":[],"executor":"ray-client","max_retries":0,"timeout_s":null,"queue_timeout_s":null,"on_unreachable":"wait","idempotency_key":null,"entrypoint_num_cpus":null,"entrypoint_num_gpus":null,"entrypoint_memory":null,"group":null,"parent":null,"stop_children":false,"entrypoint":"python -c ''print(1)''","user":"ann","name":null,"runtime_env":{},"metadata":{},"requirements":{},"entrypoint_resources":{},"entrypoint_label_selector":{},"client_address":"10.0.0.5","client_ray":null,"client_python":null}', 'ann', '0', NULL, NULL, 'QUEUED', 'FINISHED', NULL, '0', NULL, NULL, NULL, '1700000000', NULL, NULL, NULL, NULL, '1700000000', '0', NULL, 'accepted', NULL, NULL, '0', '0', '[]', NULL, NULL, NULL, NULL, 'false')
;
INSERT INTO "jobs" ("seq", "submission_id", "spec", "user", "priority", "group", "idempotency_key", "state", "target", "stop_reason", "attempt", "cluster", "remote_id", "session_name", "accepted_at", "placed_at", "seen_at", "started_at", "ended_at", "changed_at", "not_before", "queue_deadline", "reason", "error_type", "exit_code", "infra_failures", "user_failures", "avoid", "name", "parent", "head", "head_group", "end_unreported") VALUES ('2', 'is-PLACED', '{"tags":["ü","b"],"preferred_cluster":null,"only_cluster":null,"only_tags":[],"priority":0,"depends_on":[],"executor":"ray-jobs","max_retries":0,"timeout_s":null,"queue_timeout_s":null,"on_unreachable":"wait","idempotency_key":null,"entrypoint_num_cpus":null,"entrypoint_num_gpus":null,"entrypoint_memory":null,"group":null,"parent":null,"stop_children":false,"entrypoint":"python -c ''print(1)''","user":"ann","name":null,"runtime_env":{"env_vars":{"A":"é\u0000"}},"metadata":{},"requirements":{},"entrypoint_resources":{},"entrypoint_label_selector":{},"client_address":null,"client_ray":null,"client_python":null}', 'ann', '0', NULL, NULL, 'PLACED', 'FINISHED', NULL, '1', 'a', 'is-PLACED', NULL, '1700000000', '1700000000', NULL, NULL, NULL, '1700000000', '0', NULL, 'to PLACED', NULL, NULL, '0', '0', '[]', NULL, NULL, NULL, NULL, 'false')
;
INSERT INTO "jobs" ("seq", "submission_id", "spec", "user", "priority", "group", "idempotency_key", "state", "target", "stop_reason", "attempt", "cluster", "remote_id", "session_name", "accepted_at", "placed_at", "seen_at", "started_at", "ended_at", "changed_at", "not_before", "queue_deadline", "reason", "error_type", "exit_code", "infra_failures", "user_failures", "avoid", "name", "parent", "head", "head_group", "end_unreported") VALUES ('3', 'is-SUBMITTED', '{"tags":["ü","b"],"preferred_cluster":null,"only_cluster":null,"only_tags":[],"priority":0,"depends_on":[],"executor":"ray-jobs","max_retries":0,"timeout_s":null,"queue_timeout_s":null,"on_unreachable":"wait","idempotency_key":null,"entrypoint_num_cpus":null,"entrypoint_num_gpus":null,"entrypoint_memory":null,"group":null,"parent":null,"stop_children":false,"entrypoint":"python -c ''print(1)''","user":"ann","name":null,"runtime_env":{"env_vars":{"A":"é\u0000"}},"metadata":{},"requirements":{},"entrypoint_resources":{},"entrypoint_label_selector":{},"client_address":null,"client_ray":null,"client_python":null}', 'ann', '0', NULL, NULL, 'SUCCEEDED', 'FINISHED', NULL, '1', 'a', 'is-SUBMITTED', NULL, '1700000000', '1700000000', NULL, NULL, '1700000000', '1700000000', '0', NULL, 'to SUCCEEDED', NULL, NULL, '0', '0', '[]', NULL, NULL, NULL, NULL, 'true')
;
INSERT INTO "jobs" ("seq", "submission_id", "spec", "user", "priority", "group", "idempotency_key", "state", "target", "stop_reason", "attempt", "cluster", "remote_id", "session_name", "accepted_at", "placed_at", "seen_at", "started_at", "ended_at", "changed_at", "not_before", "queue_deadline", "reason", "error_type", "exit_code", "infra_failures", "user_failures", "avoid", "name", "parent", "head", "head_group", "end_unreported") VALUES ('4', 'is-RUNNING', '{"tags":["ü","b"],"preferred_cluster":null,"only_cluster":null,"only_tags":[],"priority":0,"depends_on":[],"executor":"ray-jobs","max_retries":0,"timeout_s":null,"queue_timeout_s":null,"on_unreachable":"wait","idempotency_key":null,"entrypoint_num_cpus":null,"entrypoint_num_gpus":null,"entrypoint_memory":null,"group":null,"parent":null,"stop_children":false,"entrypoint":"python -c ''print(1)''","user":"ann","name":null,"runtime_env":{"env_vars":{"A":"é\u0000"}},"metadata":{},"requirements":{},"entrypoint_resources":{},"entrypoint_label_selector":{},"client_address":null,"client_ray":null,"client_python":null}', 'ann', '0', NULL, NULL, 'RUNNING', 'FINISHED', NULL, '1', 'a', 'is-RUNNING', NULL, '1700000000', '1700000000', NULL, '1700000000', NULL, '1700000000', '0', NULL, 'to RUNNING', NULL, NULL, '0', '0', '[]', NULL, NULL, NULL, NULL, 'false')
;
INSERT INTO "jobs" ("seq", "submission_id", "spec", "user", "priority", "group", "idempotency_key", "state", "target", "stop_reason", "attempt", "cluster", "remote_id", "session_name", "accepted_at", "placed_at", "seen_at", "started_at", "ended_at", "changed_at", "not_before", "queue_deadline", "reason", "error_type", "exit_code", "infra_failures", "user_failures", "avoid", "name", "parent", "head", "head_group", "end_unreported") VALUES ('5', 'is-UNREACHABLE', '{"tags":["ü","b"],"preferred_cluster":null,"only_cluster":null,"only_tags":[],"priority":0,"depends_on":[],"executor":"ray-jobs","max_retries":0,"timeout_s":null,"queue_timeout_s":null,"on_unreachable":"wait","idempotency_key":null,"entrypoint_num_cpus":null,"entrypoint_num_gpus":null,"entrypoint_memory":null,"group":null,"parent":null,"stop_children":false,"entrypoint":"python -c ''print(1)''","user":"ann","name":null,"runtime_env":{"env_vars":{"A":"é\u0000"}},"metadata":{},"requirements":{},"entrypoint_resources":{},"entrypoint_label_selector":{},"client_address":null,"client_ray":null,"client_python":null}', 'ann', '0', NULL, NULL, 'UNREACHABLE', 'FINISHED', NULL, '1', 'a', 'is-UNREACHABLE', NULL, '1700000000', '1700000000', NULL, NULL, NULL, '1700000000', '0', NULL, 'to UNREACHABLE', NULL, NULL, '0', '0', '[]', NULL, NULL, NULL, NULL, 'false')
;
INSERT INTO "jobs" ("seq", "submission_id", "spec", "user", "priority", "group", "idempotency_key", "state", "target", "stop_reason", "attempt", "cluster", "remote_id", "session_name", "accepted_at", "placed_at", "seen_at", "started_at", "ended_at", "changed_at", "not_before", "queue_deadline", "reason", "error_type", "exit_code", "infra_failures", "user_failures", "avoid", "name", "parent", "head", "head_group", "end_unreported") VALUES ('6', 'is-LOST', '{"tags":["ü","b"],"preferred_cluster":null,"only_cluster":null,"only_tags":[],"priority":0,"depends_on":[],"executor":"ray-jobs","max_retries":0,"timeout_s":null,"queue_timeout_s":null,"on_unreachable":"wait","idempotency_key":null,"entrypoint_num_cpus":null,"entrypoint_num_gpus":null,"entrypoint_memory":null,"group":null,"parent":null,"stop_children":false,"entrypoint":"python -c ''print(1)''","user":"ann","name":null,"runtime_env":{"env_vars":{"A":"é\u0000"}},"metadata":{},"requirements":{},"entrypoint_resources":{},"entrypoint_label_selector":{},"client_address":null,"client_ray":null,"client_python":null}', 'ann', '0', NULL, NULL, 'LOST', 'FINISHED', NULL, '1', 'a', 'is-LOST', NULL, '1700000000', '1700000000', NULL, NULL, NULL, '1700000000', '0', NULL, 'to LOST', NULL, NULL, '0', '0', '[]', NULL, NULL, NULL, NULL, 'false')
;
INSERT INTO "jobs" ("seq", "submission_id", "spec", "user", "priority", "group", "idempotency_key", "state", "target", "stop_reason", "attempt", "cluster", "remote_id", "session_name", "accepted_at", "placed_at", "seen_at", "started_at", "ended_at", "changed_at", "not_before", "queue_deadline", "reason", "error_type", "exit_code", "infra_failures", "user_failures", "avoid", "name", "parent", "head", "head_group", "end_unreported") VALUES ('7', 'is-SUCCEEDED', '{"tags":["ü","b"],"preferred_cluster":null,"only_cluster":null,"only_tags":[],"priority":0,"depends_on":[],"executor":"ray-jobs","max_retries":0,"timeout_s":null,"queue_timeout_s":null,"on_unreachable":"wait","idempotency_key":null,"entrypoint_num_cpus":null,"entrypoint_num_gpus":null,"entrypoint_memory":null,"group":null,"parent":null,"stop_children":false,"entrypoint":"python -c ''print(1)''","user":"ann","name":null,"runtime_env":{"env_vars":{"A":"é\u0000"}},"metadata":{},"requirements":{},"entrypoint_resources":{},"entrypoint_label_selector":{},"client_address":null,"client_ray":null,"client_python":null}', 'ann', '0', NULL, NULL, 'SUCCEEDED', 'FINISHED', NULL, '1', 'a', 'is-SUCCEEDED', NULL, '1700000000', '1700000000', NULL, NULL, '1700000000', '1700000000', '0', NULL, 'to SUCCEEDED', NULL, NULL, '0', '0', '[]', NULL, NULL, NULL, NULL, 'true')
;
INSERT INTO "jobs" ("seq", "submission_id", "spec", "user", "priority", "group", "idempotency_key", "state", "target", "stop_reason", "attempt", "cluster", "remote_id", "session_name", "accepted_at", "placed_at", "seen_at", "started_at", "ended_at", "changed_at", "not_before", "queue_deadline", "reason", "error_type", "exit_code", "infra_failures", "user_failures", "avoid", "name", "parent", "head", "head_group", "end_unreported") VALUES ('8', 'is-FAILED', '{"tags":["ü","b"],"preferred_cluster":null,"only_cluster":null,"only_tags":[],"priority":0,"depends_on":[],"executor":"ray-jobs","max_retries":0,"timeout_s":null,"queue_timeout_s":null,"on_unreachable":"wait","idempotency_key":null,"entrypoint_num_cpus":null,"entrypoint_num_gpus":null,"entrypoint_memory":null,"group":null,"parent":null,"stop_children":false,"entrypoint":"python -c ''print(1)''","user":"ann","name":null,"runtime_env":{"env_vars":{"A":"é\u0000"}},"metadata":{},"requirements":{},"entrypoint_resources":{},"entrypoint_label_selector":{},"client_address":null,"client_ray":null,"client_python":null}', 'ann', '0', NULL, NULL, 'FAILED', 'FINISHED', NULL, '1', 'a', 'is-FAILED', NULL, '1700000000', '1700000000', NULL, NULL, '1700000000', '1700000000', '0', NULL, 'to FAILED', NULL, NULL, '0', '0', '[]', NULL, NULL, NULL, NULL, 'false')
;
INSERT INTO "jobs" ("seq", "submission_id", "spec", "user", "priority", "group", "idempotency_key", "state", "target", "stop_reason", "attempt", "cluster", "remote_id", "session_name", "accepted_at", "placed_at", "seen_at", "started_at", "ended_at", "changed_at", "not_before", "queue_deadline", "reason", "error_type", "exit_code", "infra_failures", "user_failures", "avoid", "name", "parent", "head", "head_group", "end_unreported") VALUES ('9', 'is-STOPPED', '{"tags":["ü","b"],"preferred_cluster":null,"only_cluster":null,"only_tags":[],"priority":0,"depends_on":[],"executor":"ray-jobs","max_retries":0,"timeout_s":null,"queue_timeout_s":null,"on_unreachable":"wait","idempotency_key":null,"entrypoint_num_cpus":null,"entrypoint_num_gpus":null,"entrypoint_memory":null,"group":null,"parent":null,"stop_children":false,"entrypoint":"python -c ''print(1)''","user":"ann","name":null,"runtime_env":{"env_vars":{"A":"é\u0000"}},"metadata":{},"requirements":{},"entrypoint_resources":{},"entrypoint_label_selector":{},"client_address":null,"client_ray":null,"client_python":null}', 'ann', '0', NULL, NULL, 'STOPPED', 'FINISHED', NULL, '1', 'a', 'is-STOPPED', NULL, '1700000000', '1700000000', NULL, NULL, '1700000000', '1700000000', '0', NULL, 'to STOPPED', NULL, NULL, '0', '0', '[]', NULL, NULL, NULL, NULL, 'false')
;
SELECT setval('jobs_seq_seq', 13)
;
INSERT INTO "lease" ("id", "holder", "epoch", "expires_at") VALUES ('1', 'leader', '1', '1795136026.253763')
;
INSERT INTO "meta" ("id", "store_id", "created_at", "changes", "job_key") VALUES ('1', '760e094b03144b2996aa8f6a838a5d72', '1795132426.2329764', '35', 'c8a5a10ece083d3e80b5d5d1fe6ca551a35562b06d92e43c1fcbdbf61364481a')
;
INSERT INTO "packages" ("id", "name", "size", "chunks", "used_at") VALUES ('1', '_ray_pkg_1.zip', '1800', '6', '1700000000')
;
SELECT setval('packages_id_seq', 1)
;
INSERT INTO "snapshots" ("cluster", "snapshot") VALUES ('a', '{"name":"a","health":"HEALTHY","score":1.0,"total":{"CPU":4.0},"used":{},"pending":[],"nodes":[],"ray_version":"2.60.0","python_version":"3.12.3","claimed_by_others":{},"session_name":"session_1","latency_s":0.01,"observed_at":1700000000.0,"problem":null,"throttle":null,"throttle_reason":"","awaited":false,"start_limit":null,"start_s":null,"warm":[],"failed_setups":{},"witness":null}')
;
INSERT INTO "tokens" ("id", "user", "role", "digest", "created_at", "expires_at", "revoked_at", "used_at") VALUES ('t1', 'ann', 'admin', 'd', '1700000000', NULL, NULL, NULL)
;
INSERT INTO "upkeep" ("id", "clock_boot", "clock_offset", "secrets_until", "logs_until") VALUES ('1', NULL, NULL, '0', NULL)
;
INSERT INTO "uploads" ("user", "name", "content", "size", "used_at") VALUES ('ann', 'n', '_ray_pkg_1.zip', '3', '1700000000')
;
INSERT INTO "attempts" ("submission_id", "number", "cluster", "remote_id", "session_name", "entrypoint", "runtime_env", "decision", "placed_at", "started_at", "ended_at", "outcome", "reason", "executor", "end_unreported") VALUES ('is-FAILED', '1', 'a', 'is-FAILED', NULL, '', '{}', '{}', '1700000000', NULL, '1700000000', 'FAILED', 'to FAILED', 'ray-jobs', 'false')
;
INSERT INTO "attempts" ("submission_id", "number", "cluster", "remote_id", "session_name", "entrypoint", "runtime_env", "decision", "placed_at", "started_at", "ended_at", "outcome", "reason", "executor", "end_unreported") VALUES ('is-LOST', '1', 'a', 'is-LOST', NULL, '', '{}', '{}', '1700000000', NULL, NULL, NULL, 'to PLACED', 'ray-jobs', 'false')
;
INSERT INTO "attempts" ("submission_id", "number", "cluster", "remote_id", "session_name", "entrypoint", "runtime_env", "decision", "placed_at", "started_at", "ended_at", "outcome", "reason", "executor", "end_unreported") VALUES ('is-PLACED', '1', 'a', 'is-PLACED', NULL, '', '{}', '{}', '1700000000', NULL, NULL, NULL, 'to PLACED', 'ray-jobs', 'false')
;
INSERT INTO "attempts" ("submission_id", "number", "cluster", "remote_id", "session_name", "entrypoint", "runtime_env", "decision", "placed_at", "started_at", "ended_at", "outcome", "reason", "executor", "end_unreported") VALUES ('is-RUNNING', '1', 'a', 'is-RUNNING', NULL, '', '{}', '{}', '1700000000', '1700000000', NULL, NULL, 'to PLACED', 'ray-jobs', 'false')
;
INSERT INTO "attempts" ("submission_id", "number", "cluster", "remote_id", "session_name", "entrypoint", "runtime_env", "decision", "placed_at", "started_at", "ended_at", "outcome", "reason", "executor", "end_unreported") VALUES ('is-STOPPED', '1', 'a', 'is-STOPPED', NULL, '', '{}', '{}', '1700000000', NULL, '1700000000', 'STOPPED', 'to STOPPED', 'ray-jobs', 'false')
;
INSERT INTO "attempts" ("submission_id", "number", "cluster", "remote_id", "session_name", "entrypoint", "runtime_env", "decision", "placed_at", "started_at", "ended_at", "outcome", "reason", "executor", "end_unreported") VALUES ('is-SUBMITTED', '1', 'a', 'is-SUBMITTED', NULL, '', '{}', '{}', '1700000000', NULL, '1700000000', 'SUCCEEDED', 'to SUCCEEDED', 'ray-jobs', 'true')
;
INSERT INTO "attempts" ("submission_id", "number", "cluster", "remote_id", "session_name", "entrypoint", "runtime_env", "decision", "placed_at", "started_at", "ended_at", "outcome", "reason", "executor", "end_unreported") VALUES ('is-SUCCEEDED', '1', 'a', 'is-SUCCEEDED', NULL, '', '{}', '{}', '1700000000', NULL, '1700000000', 'SUCCEEDED', 'to SUCCEEDED', 'ray-jobs', 'true')
;
INSERT INTO "attempts" ("submission_id", "number", "cluster", "remote_id", "session_name", "entrypoint", "runtime_env", "decision", "placed_at", "started_at", "ended_at", "outcome", "reason", "executor", "end_unreported") VALUES ('is-UNREACHABLE', '1', 'a', 'is-UNREACHABLE', NULL, '', '{}', '{}', '1700000000', NULL, NULL, NULL, 'to PLACED', 'ray-jobs', 'false')
;
INSERT INTO "dependencies" ("submission_id", "needs", "failed") VALUES ('waits', 'is-RUNNING', 'false')
;
INSERT INTO "events" ("id", "submission_id", "at", "old", "new", "attempt", "cluster", "reason") VALUES ('1', 'is-QUEUED', '1700000000', NULL, 'QUEUED', '0', NULL, 'accepted')
;
INSERT INTO "events" ("id", "submission_id", "at", "old", "new", "attempt", "cluster", "reason") VALUES ('10', 'is-RUNNING', '1700000000', 'SUBMITTED', 'RUNNING', '1', 'a', 'to RUNNING')
;
INSERT INTO "events" ("id", "submission_id", "at", "old", "new", "attempt", "cluster", "reason") VALUES ('11', 'is-UNREACHABLE', '1700000000', NULL, 'QUEUED', '0', NULL, 'accepted')
;
INSERT INTO "events" ("id", "submission_id", "at", "old", "new", "attempt", "cluster", "reason") VALUES ('12', 'is-UNREACHABLE', '1700000000', 'QUEUED', 'PLACED', '1', 'a', 'to PLACED')
;
INSERT INTO "events" ("id", "submission_id", "at", "old", "new", "attempt", "cluster", "reason") VALUES ('13', 'is-UNREACHABLE', '1700000000', 'PLACED', 'UNREACHABLE', '1', 'a', 'to UNREACHABLE')
;
INSERT INTO "events" ("id", "submission_id", "at", "old", "new", "attempt", "cluster", "reason") VALUES ('14', 'is-LOST', '1700000000', NULL, 'QUEUED', '0', NULL, 'accepted')
;
INSERT INTO "events" ("id", "submission_id", "at", "old", "new", "attempt", "cluster", "reason") VALUES ('15', 'is-LOST', '1700000000', 'QUEUED', 'PLACED', '1', 'a', 'to PLACED')
;
INSERT INTO "events" ("id", "submission_id", "at", "old", "new", "attempt", "cluster", "reason") VALUES ('16', 'is-LOST', '1700000000', 'PLACED', 'LOST', '1', 'a', 'to LOST')
;
INSERT INTO "events" ("id", "submission_id", "at", "old", "new", "attempt", "cluster", "reason") VALUES ('17', 'is-SUCCEEDED', '1700000000', NULL, 'QUEUED', '0', NULL, 'accepted')
;
INSERT INTO "events" ("id", "submission_id", "at", "old", "new", "attempt", "cluster", "reason") VALUES ('18', 'is-SUCCEEDED', '1700000000', 'QUEUED', 'PLACED', '1', 'a', 'to PLACED')
;
INSERT INTO "events" ("id", "submission_id", "at", "old", "new", "attempt", "cluster", "reason") VALUES ('19', 'is-SUCCEEDED', '1700000000', 'PLACED', 'SUBMITTED', '1', 'a', 'to SUBMITTED')
;
INSERT INTO "events" ("id", "submission_id", "at", "old", "new", "attempt", "cluster", "reason") VALUES ('2', 'is-PLACED', '1700000000', NULL, 'QUEUED', '0', NULL, 'accepted')
;
INSERT INTO "events" ("id", "submission_id", "at", "old", "new", "attempt", "cluster", "reason") VALUES ('20', 'is-SUCCEEDED', '1700000000', 'SUBMITTED', 'SUCCEEDED', '1', 'a', 'to SUCCEEDED')
;
INSERT INTO "events" ("id", "submission_id", "at", "old", "new", "attempt", "cluster", "reason") VALUES ('21', 'is-FAILED', '1700000000', NULL, 'QUEUED', '0', NULL, 'accepted')
;
INSERT INTO "events" ("id", "submission_id", "at", "old", "new", "attempt", "cluster", "reason") VALUES ('22', 'is-FAILED', '1700000000', 'QUEUED', 'PLACED', '1', 'a', 'to PLACED')
;
INSERT INTO "events" ("id", "submission_id", "at", "old", "new", "attempt", "cluster", "reason") VALUES ('23', 'is-FAILED', '1700000000', 'PLACED', 'FAILED', '1', 'a', 'to FAILED')
;
INSERT INTO "events" ("id", "submission_id", "at", "old", "new", "attempt", "cluster", "reason") VALUES ('24', 'is-STOPPED', '1700000000', NULL, 'QUEUED', '0', NULL, 'accepted')
;
INSERT INTO "events" ("id", "submission_id", "at", "old", "new", "attempt", "cluster", "reason") VALUES ('25', 'is-STOPPED', '1700000000', 'QUEUED', 'PLACED', '1', 'a', 'to PLACED')
;
INSERT INTO "events" ("id", "submission_id", "at", "old", "new", "attempt", "cluster", "reason") VALUES ('26', 'is-STOPPED', '1700000000', 'PLACED', 'STOPPED', '1', 'a', 'to STOPPED')
;
INSERT INTO "events" ("id", "submission_id", "at", "old", "new", "attempt", "cluster", "reason") VALUES ('27', 'waits', '1700000000', NULL, 'QUEUED', '0', NULL, 'accepted')
;
INSERT INTO "events" ("id", "submission_id", "at", "old", "new", "attempt", "cluster", "reason") VALUES ('28', 'waits-too', '1700000000', NULL, 'QUEUED', '0', NULL, 'accepted')
;
INSERT INTO "events" ("id", "submission_id", "at", "old", "new", "attempt", "cluster", "reason") VALUES ('29', 'session', '1700000000', NULL, 'QUEUED', '0', NULL, 'accepted')
;
INSERT INTO "events" ("id", "submission_id", "at", "old", "new", "attempt", "cluster", "reason") VALUES ('3', 'is-PLACED', '1700000000', 'QUEUED', 'PLACED', '1', 'a', 'to PLACED')
;
INSERT INTO "events" ("id", "submission_id", "at", "old", "new", "attempt", "cluster", "reason") VALUES ('30', 'is-SUBMITTED', '1700000000', 'SUBMITTED', 'SUCCEEDED', '1', 'a', 'to SUCCEEDED')
;
INSERT INTO "events" ("id", "submission_id", "at", "old", "new", "attempt", "cluster", "reason") VALUES ('4', 'is-SUBMITTED', '1700000000', NULL, 'QUEUED', '0', NULL, 'accepted')
;
INSERT INTO "events" ("id", "submission_id", "at", "old", "new", "attempt", "cluster", "reason") VALUES ('5', 'is-SUBMITTED', '1700000000', 'QUEUED', 'PLACED', '1', 'a', 'to PLACED')
;
INSERT INTO "events" ("id", "submission_id", "at", "old", "new", "attempt", "cluster", "reason") VALUES ('6', 'is-SUBMITTED', '1700000000', 'PLACED', 'SUBMITTED', '1', 'a', 'to SUBMITTED')
;
INSERT INTO "events" ("id", "submission_id", "at", "old", "new", "attempt", "cluster", "reason") VALUES ('7', 'is-RUNNING', '1700000000', NULL, 'QUEUED', '0', NULL, 'accepted')
;
INSERT INTO "events" ("id", "submission_id", "at", "old", "new", "attempt", "cluster", "reason") VALUES ('8', 'is-RUNNING', '1700000000', 'QUEUED', 'PLACED', '1', 'a', 'to PLACED')
;
INSERT INTO "events" ("id", "submission_id", "at", "old", "new", "attempt", "cluster", "reason") VALUES ('9', 'is-RUNNING', '1700000000', 'PLACED', 'SUBMITTED', '1', 'a', 'to SUBMITTED')
;
SELECT setval('events_id_seq', 33)
;
INSERT INTO "logs" ("submission_id", "attempt", "text") VALUES ('is-SUBMITTED', '1', 'line
line
line
line
line
line
line
line
line
line
')
;
INSERT INTO "package_chunks" ("package_id", "number", "content") VALUES ('1', '0', '\x0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff0000ff')
;
INSERT INTO "package_chunks" ("package_id", "number", "content") VALUES ('1', '1', '\x0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff0100ff')
;
INSERT INTO "package_chunks" ("package_id", "number", "content") VALUES ('1', '2', '\x0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff0200ff')
;
INSERT INTO "package_chunks" ("package_id", "number", "content") VALUES ('1', '3', '\x0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff0300ff')
;
INSERT INTO "package_chunks" ("package_id", "number", "content") VALUES ('1', '4', '\x0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff0400ff')
;
INSERT INTO "package_chunks" ("package_id", "number", "content") VALUES ('1', '5', '\x0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff0500ff')
;
INSERT INTO "results" ("submission_id", "attempt", "content", "problem") VALUES ('is-SUBMITTED', '1', '\x00ff', 'half of it')
;
INSERT INTO "sessions" ("submission_id", "alive_at", "ray_job_id", "helper_pid", "helper_address", "failure", "disconnected", "stop_requested", "refused_attempt") VALUES ('session', '1700000000', NULL, NULL, NULL, NULL, 'false', 'false', NULL)
;
INSERT INTO "tags" ("submission_id", "tag") VALUES ('is-FAILED', 'b')
;
INSERT INTO "tags" ("submission_id", "tag") VALUES ('is-FAILED', 'ü')
;
INSERT INTO "tags" ("submission_id", "tag") VALUES ('is-LOST', 'b')
;
INSERT INTO "tags" ("submission_id", "tag") VALUES ('is-LOST', 'ü')
;
INSERT INTO "tags" ("submission_id", "tag") VALUES ('is-PLACED', 'b')
;
INSERT INTO "tags" ("submission_id", "tag") VALUES ('is-PLACED', 'ü')
;
INSERT INTO "tags" ("submission_id", "tag") VALUES ('is-QUEUED', 'b')
;
INSERT INTO "tags" ("submission_id", "tag") VALUES ('is-QUEUED', 'ü')
;
INSERT INTO "tags" ("submission_id", "tag") VALUES ('is-RUNNING', 'b')
;
INSERT INTO "tags" ("submission_id", "tag") VALUES ('is-RUNNING', 'ü')
;
INSERT INTO "tags" ("submission_id", "tag") VALUES ('is-STOPPED', 'b')
;
INSERT INTO "tags" ("submission_id", "tag") VALUES ('is-STOPPED', 'ü')
;
INSERT INTO "tags" ("submission_id", "tag") VALUES ('is-SUBMITTED', 'b')
;
INSERT INTO "tags" ("submission_id", "tag") VALUES ('is-SUBMITTED', 'ü')
;
INSERT INTO "tags" ("submission_id", "tag") VALUES ('is-SUCCEEDED', 'b')
;
INSERT INTO "tags" ("submission_id", "tag") VALUES ('is-SUCCEEDED', 'ü')
;
INSERT INTO "tags" ("submission_id", "tag") VALUES ('is-UNREACHABLE', 'b')
;
INSERT INTO "tags" ("submission_id", "tag") VALUES ('is-UNREACHABLE', 'ü')
;
