BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('r0001_pre');
CREATE TABLE attempts (
	submission_id TEXT NOT NULL, 
	number INTEGER NOT NULL, 
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
	end_unreported BOOLEAN DEFAULT 0 NOT NULL, 
	CONSTRAINT pk_attempts PRIMARY KEY (submission_id, number), 
	CONSTRAINT fk_attempts_submission_id FOREIGN KEY(submission_id) REFERENCES jobs (submission_id)
);
INSERT INTO "attempts" VALUES('is-PLACED',1,'a','is-PLACED',NULL,'','{}','{}',1700000000.0,NULL,NULL,NULL,'to PLACED','ray-jobs',0);
INSERT INTO "attempts" VALUES('is-SUBMITTED',1,'a','is-SUBMITTED',NULL,'','{}','{}',1700000000.0,NULL,1700000000.0,'SUCCEEDED','to SUCCEEDED','ray-jobs',1);
INSERT INTO "attempts" VALUES('is-RUNNING',1,'a','is-RUNNING',NULL,'','{}','{}',1700000000.0,1700000000.0,NULL,NULL,'to PLACED','ray-jobs',0);
INSERT INTO "attempts" VALUES('is-UNREACHABLE',1,'a','is-UNREACHABLE',NULL,'','{}','{}',1700000000.0,NULL,NULL,NULL,'to PLACED','ray-jobs',0);
INSERT INTO "attempts" VALUES('is-LOST',1,'a','is-LOST',NULL,'','{}','{}',1700000000.0,NULL,NULL,NULL,'to PLACED','ray-jobs',0);
INSERT INTO "attempts" VALUES('is-SUCCEEDED',1,'a','is-SUCCEEDED',NULL,'','{}','{}',1700000000.0,NULL,1700000000.0,'SUCCEEDED','to SUCCEEDED','ray-jobs',1);
INSERT INTO "attempts" VALUES('is-FAILED',1,'a','is-FAILED',NULL,'','{}','{}',1700000000.0,NULL,1700000000.0,'FAILED','to FAILED','ray-jobs',0);
INSERT INTO "attempts" VALUES('is-STOPPED',1,'a','is-STOPPED',NULL,'','{}','{}',1700000000.0,NULL,1700000000.0,'STOPPED','to STOPPED','ray-jobs',0);
CREATE TABLE audit (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	at FLOAT NOT NULL, 
	user TEXT, 
	token_id TEXT, 
	action TEXT NOT NULL, 
	target TEXT NOT NULL, 
	outcome TEXT NOT NULL, 
	address TEXT
);
INSERT INTO "audit" VALUES(1,1700000000.0,'ann',NULL,'token create','t1','ok',NULL);
CREATE TABLE dependencies (
	submission_id TEXT NOT NULL, 
	needs TEXT NOT NULL, 
	failed BOOLEAN NOT NULL, 
	CONSTRAINT pk_dependencies PRIMARY KEY (submission_id, needs), 
	CONSTRAINT fk_dependencies_submission_id FOREIGN KEY(submission_id) REFERENCES jobs (submission_id), 
	CONSTRAINT fk_dependencies_needs FOREIGN KEY(needs) REFERENCES jobs (submission_id)
);
INSERT INTO "dependencies" VALUES('waits','is-RUNNING',0);
CREATE TABLE drained_clusters (
	cluster TEXT NOT NULL, 
	drained BOOLEAN NOT NULL, 
	reason TEXT NOT NULL, 
	at FLOAT NOT NULL, 
	CONSTRAINT pk_drained_clusters PRIMARY KEY (cluster)
);
INSERT INTO "drained_clusters" VALUES('a',1,'disks',1700000000.0);
CREATE TABLE events (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	submission_id TEXT NOT NULL, 
	at FLOAT NOT NULL, 
	old TEXT, 
	new TEXT NOT NULL, 
	attempt INTEGER NOT NULL, 
	cluster TEXT, 
	reason TEXT NOT NULL, 
	CONSTRAINT fk_events_submission_id FOREIGN KEY(submission_id) REFERENCES jobs (submission_id)
);
INSERT INTO "events" VALUES(1,'is-QUEUED',1700000000.0,NULL,'QUEUED',0,NULL,'accepted');
INSERT INTO "events" VALUES(2,'is-PLACED',1700000000.0,NULL,'QUEUED',0,NULL,'accepted');
INSERT INTO "events" VALUES(3,'is-PLACED',1700000000.0,'QUEUED','PLACED',1,'a','to PLACED');
INSERT INTO "events" VALUES(4,'is-SUBMITTED',1700000000.0,NULL,'QUEUED',0,NULL,'accepted');
INSERT INTO "events" VALUES(5,'is-SUBMITTED',1700000000.0,'QUEUED','PLACED',1,'a','to PLACED');
INSERT INTO "events" VALUES(6,'is-SUBMITTED',1700000000.0,'PLACED','SUBMITTED',1,'a','to SUBMITTED');
INSERT INTO "events" VALUES(7,'is-RUNNING',1700000000.0,NULL,'QUEUED',0,NULL,'accepted');
INSERT INTO "events" VALUES(8,'is-RUNNING',1700000000.0,'QUEUED','PLACED',1,'a','to PLACED');
INSERT INTO "events" VALUES(9,'is-RUNNING',1700000000.0,'PLACED','SUBMITTED',1,'a','to SUBMITTED');
INSERT INTO "events" VALUES(10,'is-RUNNING',1700000000.0,'SUBMITTED','RUNNING',1,'a','to RUNNING');
INSERT INTO "events" VALUES(11,'is-UNREACHABLE',1700000000.0,NULL,'QUEUED',0,NULL,'accepted');
INSERT INTO "events" VALUES(12,'is-UNREACHABLE',1700000000.0,'QUEUED','PLACED',1,'a','to PLACED');
INSERT INTO "events" VALUES(13,'is-UNREACHABLE',1700000000.0,'PLACED','UNREACHABLE',1,'a','to UNREACHABLE');
INSERT INTO "events" VALUES(14,'is-LOST',1700000000.0,NULL,'QUEUED',0,NULL,'accepted');
INSERT INTO "events" VALUES(15,'is-LOST',1700000000.0,'QUEUED','PLACED',1,'a','to PLACED');
INSERT INTO "events" VALUES(16,'is-LOST',1700000000.0,'PLACED','LOST',1,'a','to LOST');
INSERT INTO "events" VALUES(17,'is-SUCCEEDED',1700000000.0,NULL,'QUEUED',0,NULL,'accepted');
INSERT INTO "events" VALUES(18,'is-SUCCEEDED',1700000000.0,'QUEUED','PLACED',1,'a','to PLACED');
INSERT INTO "events" VALUES(19,'is-SUCCEEDED',1700000000.0,'PLACED','SUBMITTED',1,'a','to SUBMITTED');
INSERT INTO "events" VALUES(20,'is-SUCCEEDED',1700000000.0,'SUBMITTED','SUCCEEDED',1,'a','to SUCCEEDED');
INSERT INTO "events" VALUES(21,'is-FAILED',1700000000.0,NULL,'QUEUED',0,NULL,'accepted');
INSERT INTO "events" VALUES(22,'is-FAILED',1700000000.0,'QUEUED','PLACED',1,'a','to PLACED');
INSERT INTO "events" VALUES(23,'is-FAILED',1700000000.0,'PLACED','FAILED',1,'a','to FAILED');
INSERT INTO "events" VALUES(24,'is-STOPPED',1700000000.0,NULL,'QUEUED',0,NULL,'accepted');
INSERT INTO "events" VALUES(25,'is-STOPPED',1700000000.0,'QUEUED','PLACED',1,'a','to PLACED');
INSERT INTO "events" VALUES(26,'is-STOPPED',1700000000.0,'PLACED','STOPPED',1,'a','to STOPPED');
INSERT INTO "events" VALUES(27,'waits',1700000000.0,NULL,'QUEUED',0,NULL,'accepted');
INSERT INTO "events" VALUES(28,'waits-too',1700000000.0,NULL,'QUEUED',0,NULL,'accepted');
INSERT INTO "events" VALUES(29,'session',1700000000.0,NULL,'QUEUED',0,NULL,'accepted');
INSERT INTO "events" VALUES(30,'is-SUBMITTED',1700000000.0,'SUBMITTED','SUCCEEDED',1,'a','to SUCCEEDED');
CREATE TABLE jobs (
	seq INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	submission_id TEXT NOT NULL, 
	spec JSON NOT NULL, 
	user TEXT NOT NULL, 
	priority INTEGER NOT NULL, 
	"group" TEXT, 
	idempotency_key TEXT, 
	state TEXT NOT NULL, 
	target TEXT NOT NULL, 
	stop_reason TEXT, 
	attempt INTEGER NOT NULL, 
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
	exit_code INTEGER, 
	infra_failures INTEGER NOT NULL, 
	user_failures INTEGER NOT NULL, 
	avoid JSON NOT NULL, 
	name TEXT, 
	parent TEXT, 
	head TEXT, 
	head_group TEXT, 
	end_unreported BOOLEAN DEFAULT 0 NOT NULL, 
	CONSTRAINT ck_jobs_state CHECK (state IN ('QUEUED', 'PLACED', 'SUBMITTED', 'RUNNING', 'UNREACHABLE', 'LOST', 'SUCCEEDED', 'FAILED', 'STOPPED')), 
	CONSTRAINT ck_jobs_target CHECK (target IN ('FINISHED', 'STOPPED')), 
	CONSTRAINT uq_jobs_submission_id UNIQUE (submission_id)
);
INSERT INTO "jobs" VALUES(1,'is-QUEUED','{"tags":["ü","b"],"preferred_cluster":null,"only_cluster":null,"only_tags":[],"priority":0,"depends_on":[],"executor":"ray-jobs","max_retries":0,"timeout_s":null,"queue_timeout_s":null,"on_unreachable":"wait","idempotency_key":null,"entrypoint_num_cpus":null,"entrypoint_num_gpus":null,"entrypoint_memory":null,"group":null,"parent":null,"stop_children":false,"entrypoint":"python -c ''print(1)''","user":"ann","name":null,"runtime_env":{"env_vars":{"A":"é\u0000"}},"metadata":{},"requirements":{},"entrypoint_resources":{},"entrypoint_label_selector":{},"client_address":null,"client_ray":null,"client_python":null}','ann',0,NULL,NULL,'QUEUED','FINISHED',NULL,0,NULL,NULL,NULL,1700000000.0,NULL,NULL,NULL,NULL,1700000000.0,0.0,NULL,'accepted',NULL,NULL,0,0,'[]',NULL,NULL,NULL,NULL,0);
INSERT INTO "jobs" VALUES(2,'is-PLACED','{"tags":["ü","b"],"preferred_cluster":null,"only_cluster":null,"only_tags":[],"priority":0,"depends_on":[],"executor":"ray-jobs","max_retries":0,"timeout_s":null,"queue_timeout_s":null,"on_unreachable":"wait","idempotency_key":null,"entrypoint_num_cpus":null,"entrypoint_num_gpus":null,"entrypoint_memory":null,"group":null,"parent":null,"stop_children":false,"entrypoint":"python -c ''print(1)''","user":"ann","name":null,"runtime_env":{"env_vars":{"A":"é\u0000"}},"metadata":{},"requirements":{},"entrypoint_resources":{},"entrypoint_label_selector":{},"client_address":null,"client_ray":null,"client_python":null}','ann',0,NULL,NULL,'PLACED','FINISHED',NULL,1,'a','is-PLACED',NULL,1700000000.0,1700000000.0,NULL,NULL,NULL,1700000000.0,0.0,NULL,'to PLACED',NULL,NULL,0,0,'[]',NULL,NULL,NULL,NULL,0);
INSERT INTO "jobs" VALUES(3,'is-SUBMITTED','{"tags":["ü","b"],"preferred_cluster":null,"only_cluster":null,"only_tags":[],"priority":0,"depends_on":[],"executor":"ray-jobs","max_retries":0,"timeout_s":null,"queue_timeout_s":null,"on_unreachable":"wait","idempotency_key":null,"entrypoint_num_cpus":null,"entrypoint_num_gpus":null,"entrypoint_memory":null,"group":null,"parent":null,"stop_children":false,"entrypoint":"python -c ''print(1)''","user":"ann","name":null,"runtime_env":{"env_vars":{"A":"é\u0000"}},"metadata":{},"requirements":{},"entrypoint_resources":{},"entrypoint_label_selector":{},"client_address":null,"client_ray":null,"client_python":null}','ann',0,NULL,NULL,'SUCCEEDED','FINISHED',NULL,1,'a','is-SUBMITTED',NULL,1700000000.0,1700000000.0,NULL,NULL,1700000000.0,1700000000.0,0.0,NULL,'to SUCCEEDED',NULL,NULL,0,0,'[]',NULL,NULL,NULL,NULL,1);
INSERT INTO "jobs" VALUES(4,'is-RUNNING','{"tags":["ü","b"],"preferred_cluster":null,"only_cluster":null,"only_tags":[],"priority":0,"depends_on":[],"executor":"ray-jobs","max_retries":0,"timeout_s":null,"queue_timeout_s":null,"on_unreachable":"wait","idempotency_key":null,"entrypoint_num_cpus":null,"entrypoint_num_gpus":null,"entrypoint_memory":null,"group":null,"parent":null,"stop_children":false,"entrypoint":"python -c ''print(1)''","user":"ann","name":null,"runtime_env":{"env_vars":{"A":"é\u0000"}},"metadata":{},"requirements":{},"entrypoint_resources":{},"entrypoint_label_selector":{},"client_address":null,"client_ray":null,"client_python":null}','ann',0,NULL,NULL,'RUNNING','FINISHED',NULL,1,'a','is-RUNNING',NULL,1700000000.0,1700000000.0,NULL,1700000000.0,NULL,1700000000.0,0.0,NULL,'to RUNNING',NULL,NULL,0,0,'[]',NULL,NULL,NULL,NULL,0);
INSERT INTO "jobs" VALUES(5,'is-UNREACHABLE','{"tags":["ü","b"],"preferred_cluster":null,"only_cluster":null,"only_tags":[],"priority":0,"depends_on":[],"executor":"ray-jobs","max_retries":0,"timeout_s":null,"queue_timeout_s":null,"on_unreachable":"wait","idempotency_key":null,"entrypoint_num_cpus":null,"entrypoint_num_gpus":null,"entrypoint_memory":null,"group":null,"parent":null,"stop_children":false,"entrypoint":"python -c ''print(1)''","user":"ann","name":null,"runtime_env":{"env_vars":{"A":"é\u0000"}},"metadata":{},"requirements":{},"entrypoint_resources":{},"entrypoint_label_selector":{},"client_address":null,"client_ray":null,"client_python":null}','ann',0,NULL,NULL,'UNREACHABLE','FINISHED',NULL,1,'a','is-UNREACHABLE',NULL,1700000000.0,1700000000.0,NULL,NULL,NULL,1700000000.0,0.0,NULL,'to UNREACHABLE',NULL,NULL,0,0,'[]',NULL,NULL,NULL,NULL,0);
INSERT INTO "jobs" VALUES(6,'is-LOST','{"tags":["ü","b"],"preferred_cluster":null,"only_cluster":null,"only_tags":[],"priority":0,"depends_on":[],"executor":"ray-jobs","max_retries":0,"timeout_s":null,"queue_timeout_s":null,"on_unreachable":"wait","idempotency_key":null,"entrypoint_num_cpus":null,"entrypoint_num_gpus":null,"entrypoint_memory":null,"group":null,"parent":null,"stop_children":false,"entrypoint":"python -c ''print(1)''","user":"ann","name":null,"runtime_env":{"env_vars":{"A":"é\u0000"}},"metadata":{},"requirements":{},"entrypoint_resources":{},"entrypoint_label_selector":{},"client_address":null,"client_ray":null,"client_python":null}','ann',0,NULL,NULL,'LOST','FINISHED',NULL,1,'a','is-LOST',NULL,1700000000.0,1700000000.0,NULL,NULL,NULL,1700000000.0,0.0,NULL,'to LOST',NULL,NULL,0,0,'[]',NULL,NULL,NULL,NULL,0);
INSERT INTO "jobs" VALUES(7,'is-SUCCEEDED','{"tags":["ü","b"],"preferred_cluster":null,"only_cluster":null,"only_tags":[],"priority":0,"depends_on":[],"executor":"ray-jobs","max_retries":0,"timeout_s":null,"queue_timeout_s":null,"on_unreachable":"wait","idempotency_key":null,"entrypoint_num_cpus":null,"entrypoint_num_gpus":null,"entrypoint_memory":null,"group":null,"parent":null,"stop_children":false,"entrypoint":"python -c ''print(1)''","user":"ann","name":null,"runtime_env":{"env_vars":{"A":"é\u0000"}},"metadata":{},"requirements":{},"entrypoint_resources":{},"entrypoint_label_selector":{},"client_address":null,"client_ray":null,"client_python":null}','ann',0,NULL,NULL,'SUCCEEDED','FINISHED',NULL,1,'a','is-SUCCEEDED',NULL,1700000000.0,1700000000.0,NULL,NULL,1700000000.0,1700000000.0,0.0,NULL,'to SUCCEEDED',NULL,NULL,0,0,'[]',NULL,NULL,NULL,NULL,1);
INSERT INTO "jobs" VALUES(8,'is-FAILED','{"tags":["ü","b"],"preferred_cluster":null,"only_cluster":null,"only_tags":[],"priority":0,"depends_on":[],"executor":"ray-jobs","max_retries":0,"timeout_s":null,"queue_timeout_s":null,"on_unreachable":"wait","idempotency_key":null,"entrypoint_num_cpus":null,"entrypoint_num_gpus":null,"entrypoint_memory":null,"group":null,"parent":null,"stop_children":false,"entrypoint":"python -c ''print(1)''","user":"ann","name":null,"runtime_env":{"env_vars":{"A":"é\u0000"}},"metadata":{},"requirements":{},"entrypoint_resources":{},"entrypoint_label_selector":{},"client_address":null,"client_ray":null,"client_python":null}','ann',0,NULL,NULL,'FAILED','FINISHED',NULL,1,'a','is-FAILED',NULL,1700000000.0,1700000000.0,NULL,NULL,1700000000.0,1700000000.0,0.0,NULL,'to FAILED',NULL,NULL,0,0,'[]',NULL,NULL,NULL,NULL,0);
INSERT INTO "jobs" VALUES(9,'is-STOPPED','{"tags":["ü","b"],"preferred_cluster":null,"only_cluster":null,"only_tags":[],"priority":0,"depends_on":[],"executor":"ray-jobs","max_retries":0,"timeout_s":null,"queue_timeout_s":null,"on_unreachable":"wait","idempotency_key":null,"entrypoint_num_cpus":null,"entrypoint_num_gpus":null,"entrypoint_memory":null,"group":null,"parent":null,"stop_children":false,"entrypoint":"python -c ''print(1)''","user":"ann","name":null,"runtime_env":{"env_vars":{"A":"é\u0000"}},"metadata":{},"requirements":{},"entrypoint_resources":{},"entrypoint_label_selector":{},"client_address":null,"client_ray":null,"client_python":null}','ann',0,NULL,NULL,'STOPPED','FINISHED',NULL,1,'a','is-STOPPED',NULL,1700000000.0,1700000000.0,NULL,NULL,1700000000.0,1700000000.0,0.0,NULL,'to STOPPED',NULL,NULL,0,0,'[]',NULL,NULL,NULL,NULL,0);
INSERT INTO "jobs" VALUES(10,'waits','{"tags":[],"preferred_cluster":null,"only_cluster":null,"only_tags":[],"priority":0,"depends_on":["is-RUNNING"],"executor":"ray-jobs","max_retries":0,"timeout_s":null,"queue_timeout_s":null,"on_unreachable":"wait","idempotency_key":"once","entrypoint_num_cpus":null,"entrypoint_num_gpus":null,"entrypoint_memory":null,"group":"g","parent":null,"stop_children":false,"entrypoint":"python -c ''print(1)''","user":"ann","name":"nightly","runtime_env":{},"metadata":{},"requirements":{},"entrypoint_resources":{},"entrypoint_label_selector":{},"client_address":null,"client_ray":null,"client_python":null}','ann',0,'g','once','QUEUED','FINISHED',NULL,0,NULL,NULL,NULL,1700000000.0,NULL,NULL,NULL,NULL,1700000000.0,0.0,NULL,'accepted',NULL,NULL,0,0,'[]','nightly',NULL,NULL,'g',0);
INSERT INTO "jobs" VALUES(11,'waits-too','{"tags":[],"preferred_cluster":null,"only_cluster":null,"only_tags":[],"priority":0,"depends_on":[],"executor":"ray-jobs","max_retries":0,"timeout_s":null,"queue_timeout_s":null,"on_unreachable":"wait","idempotency_key":null,"entrypoint_num_cpus":null,"entrypoint_num_gpus":null,"entrypoint_memory":null,"group":"g","parent":null,"stop_children":false,"entrypoint":"python -c ''print(1)''","user":"ann","name":null,"runtime_env":{},"metadata":{},"requirements":{},"entrypoint_resources":{},"entrypoint_label_selector":{},"client_address":null,"client_ray":null,"client_python":null}','ann',0,'g',NULL,'QUEUED','FINISHED',NULL,0,NULL,NULL,NULL,1700000000.0,NULL,NULL,NULL,NULL,1700000000.0,0.0,NULL,'accepted',NULL,NULL,0,0,'[]',NULL,NULL,'waits',NULL,0);
INSERT INTO "jobs" VALUES(12,'session','{"tags":[],"preferred_cluster":null,"only_cluster":null,"only_tags":[],"priority":0,"depends_on":[],"executor":"ray-client","max_retries":0,"timeout_s":null,"queue_timeout_s":null,"on_unreachable":"wait","idempotency_key":null,"entrypoint_num_cpus":null,"entrypoint_num_gpus":null,"entrypoint_memory":null,"group":null,"parent":null,"stop_children":false,"entrypoint":"python -c ''print(1)''","user":"ann","name":null,"runtime_env":{},"metadata":{},"requirements":{},"entrypoint_resources":{},"entrypoint_label_selector":{},"client_address":"10.0.0.5","client_ray":null,"client_python":null}','ann',0,NULL,NULL,'QUEUED','FINISHED',NULL,0,NULL,NULL,NULL,1700000000.0,NULL,NULL,NULL,NULL,1700000000.0,0.0,NULL,'accepted',NULL,NULL,0,0,'[]',NULL,NULL,NULL,NULL,0);
CREATE TABLE lease (
	id INTEGER NOT NULL, 
	holder TEXT, 
	epoch INTEGER NOT NULL, 
	expires_at FLOAT NOT NULL, 
	CONSTRAINT pk_lease PRIMARY KEY (id), 
	CONSTRAINT ck_lease_one_row CHECK (id = 1)
);
INSERT INTO "lease" VALUES(1,'leader',1,1700003600.0);
CREATE TABLE logs (
	submission_id TEXT NOT NULL, 
	attempt INTEGER NOT NULL, 
	text TEXT NOT NULL, 
	CONSTRAINT pk_logs PRIMARY KEY (submission_id, attempt), 
	CONSTRAINT fk_logs_submission_id FOREIGN KEY(submission_id) REFERENCES jobs (submission_id)
);
INSERT INTO "logs" VALUES('is-SUBMITTED',1,'line
line
line
line
line
line
line
line
line
line
');
CREATE TABLE meta (
	id INTEGER NOT NULL, 
	store_id TEXT NOT NULL, 
	created_at FLOAT NOT NULL, 
	changes INTEGER NOT NULL, 
	job_key TEXT, 
	CONSTRAINT pk_meta PRIMARY KEY (id), 
	CONSTRAINT ck_meta_one_row CHECK (id = 1)
);
INSERT INTO "meta" VALUES(1,'77606c7fa364400e92c242e986840c1b',1.79513242149021124837e+09,35,'a641fc6414c38aecab1236d1f95fc0f106f507a3aec4ac04c40a72eb3febc968');
CREATE TABLE package_chunks (
	package_id INTEGER NOT NULL, 
	number INTEGER NOT NULL, 
	content BLOB NOT NULL, 
	CONSTRAINT pk_package_chunks PRIMARY KEY (package_id, number), 
	CONSTRAINT fk_package_chunks_package_id FOREIGN KEY(package_id) REFERENCES packages (id)
);
INSERT INTO "package_chunks" VALUES(1,0,X'0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF0000FF');
INSERT INTO "package_chunks" VALUES(1,1,X'0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF0100FF');
INSERT INTO "package_chunks" VALUES(1,2,X'0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF0200FF');
INSERT INTO "package_chunks" VALUES(1,3,X'0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF0300FF');
INSERT INTO "package_chunks" VALUES(1,4,X'0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF0400FF');
INSERT INTO "package_chunks" VALUES(1,5,X'0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF0500FF');
CREATE TABLE packages (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	name TEXT, 
	size INTEGER NOT NULL, 
	chunks INTEGER NOT NULL, 
	used_at FLOAT NOT NULL, 
	CONSTRAINT uq_packages_name UNIQUE (name)
);
INSERT INTO "packages" VALUES(1,'_ray_pkg_1.zip',1800,6,1700000000.0);
CREATE TABLE results (
	submission_id TEXT NOT NULL, 
	attempt INTEGER NOT NULL, 
	content BLOB NOT NULL, 
	problem TEXT, 
	CONSTRAINT pk_results PRIMARY KEY (submission_id), 
	CONSTRAINT fk_results_submission_id FOREIGN KEY(submission_id) REFERENCES jobs (submission_id)
);
INSERT INTO "results" VALUES('is-SUBMITTED',1,X'00FF','half of it');
CREATE TABLE sessions (
	submission_id TEXT NOT NULL, 
	alive_at FLOAT NOT NULL, 
	ray_job_id TEXT, 
	helper_pid INTEGER, 
	helper_address TEXT, 
	failure TEXT, 
	disconnected BOOLEAN NOT NULL, 
	stop_requested BOOLEAN NOT NULL, 
	refused_attempt INTEGER, 
	CONSTRAINT pk_sessions PRIMARY KEY (submission_id), 
	CONSTRAINT fk_sessions_submission_id FOREIGN KEY(submission_id) REFERENCES jobs (submission_id)
);
INSERT INTO "sessions" VALUES('session',1700000000.0,NULL,NULL,NULL,NULL,0,0,NULL);
CREATE TABLE snapshots (
	cluster TEXT NOT NULL, 
	snapshot JSON NOT NULL, 
	CONSTRAINT pk_snapshots PRIMARY KEY (cluster)
);
INSERT INTO "snapshots" VALUES('a','{"name":"a","health":"HEALTHY","score":1.0,"total":{"CPU":4.0},"used":{},"pending":[],"nodes":[],"ray_version":"2.60.0","python_version":"3.12.3","claimed_by_others":{},"session_name":"session_1","latency_s":0.01,"observed_at":1700000000.0,"problem":null,"throttle":null,"throttle_reason":"","awaited":false,"start_limit":null,"start_s":null,"warm":[],"failed_setups":{},"witness":null}');
CREATE TABLE tags (
	submission_id TEXT NOT NULL, 
	tag TEXT NOT NULL, 
	CONSTRAINT pk_tags PRIMARY KEY (submission_id, tag), 
	CONSTRAINT fk_tags_submission_id FOREIGN KEY(submission_id) REFERENCES jobs (submission_id)
);
INSERT INTO "tags" VALUES('is-QUEUED','ü');
INSERT INTO "tags" VALUES('is-QUEUED','b');
INSERT INTO "tags" VALUES('is-PLACED','ü');
INSERT INTO "tags" VALUES('is-PLACED','b');
INSERT INTO "tags" VALUES('is-SUBMITTED','ü');
INSERT INTO "tags" VALUES('is-SUBMITTED','b');
INSERT INTO "tags" VALUES('is-RUNNING','ü');
INSERT INTO "tags" VALUES('is-RUNNING','b');
INSERT INTO "tags" VALUES('is-UNREACHABLE','ü');
INSERT INTO "tags" VALUES('is-UNREACHABLE','b');
INSERT INTO "tags" VALUES('is-LOST','ü');
INSERT INTO "tags" VALUES('is-LOST','b');
INSERT INTO "tags" VALUES('is-SUCCEEDED','ü');
INSERT INTO "tags" VALUES('is-SUCCEEDED','b');
INSERT INTO "tags" VALUES('is-FAILED','ü');
INSERT INTO "tags" VALUES('is-FAILED','b');
INSERT INTO "tags" VALUES('is-STOPPED','ü');
INSERT INTO "tags" VALUES('is-STOPPED','b');
CREATE TABLE tokens (
	id TEXT NOT NULL, 
	user TEXT NOT NULL, 
	role TEXT NOT NULL, 
	digest TEXT NOT NULL, 
	created_at FLOAT NOT NULL, 
	expires_at FLOAT, 
	revoked_at FLOAT, 
	used_at FLOAT, 
	CONSTRAINT pk_tokens PRIMARY KEY (id)
);
INSERT INTO "tokens" VALUES('t1','ann','admin','d',1700000000.0,NULL,NULL,NULL);
CREATE TABLE upkeep (
	id INTEGER NOT NULL, 
	clock_boot TEXT, 
	clock_offset FLOAT, 
	secrets_until FLOAT NOT NULL, 
	logs_until FLOAT, 
	CONSTRAINT pk_upkeep PRIMARY KEY (id), 
	CONSTRAINT ck_upkeep_one_row CHECK (id = 1)
);
INSERT INTO "upkeep" VALUES(1,NULL,NULL,0.0,NULL);
CREATE TABLE uploads (
	user TEXT NOT NULL, 
	name TEXT NOT NULL, 
	content TEXT NOT NULL, 
	size INTEGER NOT NULL, 
	used_at FLOAT NOT NULL, 
	CONSTRAINT pk_uploads PRIMARY KEY (user, name)
);
INSERT INTO "uploads" VALUES('ann','n','_ray_pkg_1.zip',3,1700000000.0);
CREATE TABLE waits (
	id INTEGER NOT NULL, 
	epoch INTEGER NOT NULL, 
	waits JSON NOT NULL, 
	CONSTRAINT pk_waits PRIMARY KEY (id)
);
CREATE INDEX ix_audit_at ON audit (at);
CREATE UNIQUE INDEX uq_jobs_idempotency ON jobs (user, idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE UNIQUE INDEX uq_jobs_head_group ON jobs (head_group, user) WHERE head_group IS NOT NULL;
CREATE INDEX ix_jobs_user ON jobs (user);
CREATE INDEX ix_jobs_stopping ON jobs (state, target) WHERE target = 'STOPPED';
CREATE INDEX ix_jobs_state ON jobs (state, seq);
CREATE INDEX ix_jobs_queue_deadline ON jobs (queue_deadline) WHERE queue_deadline IS NOT NULL;
CREATE INDEX ix_jobs_parent ON jobs (parent) WHERE parent IS NOT NULL;
CREATE INDEX ix_jobs_open ON jobs (user, state) WHERE ended_at IS NULL;
CREATE INDEX ix_jobs_name ON jobs (name) WHERE name IS NOT NULL;
CREATE INDEX ix_jobs_members ON jobs (head, state, seq) WHERE head IS NOT NULL;
CREATE INDEX ix_jobs_heads_user ON jobs (user, seq) WHERE head IS NULL;
CREATE INDEX ix_jobs_heads_state ON jobs (state, seq) WHERE head IS NULL;
CREATE INDEX ix_jobs_heads ON jobs (seq) WHERE head IS NULL;
CREATE INDEX ix_jobs_group ON jobs ("group") WHERE "group" IS NOT NULL;
CREATE INDEX ix_jobs_ended ON jobs (ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX ix_uploads_content ON uploads (content);
CREATE UNIQUE INDEX uq_attempts_remote ON attempts (cluster, remote_id);
CREATE INDEX ix_attempts_placed ON attempts (placed_at);
CREATE INDEX ix_attempts_live ON attempts (cluster) WHERE outcome IS NULL;
CREATE INDEX ix_attempts_ended ON attempts (ended_at, placed_at) WHERE ended_at IS NOT NULL;
CREATE INDEX ix_dependencies_needs ON dependencies (needs);
CREATE INDEX ix_dependencies_failed ON dependencies (submission_id) WHERE failed;
CREATE INDEX ix_events_job ON events (submission_id, id);
CREATE INDEX ix_tags_tag ON tags (tag);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('jobs',13);
INSERT INTO "sqlite_sequence" VALUES('events',33);
INSERT INTO "sqlite_sequence" VALUES('audit',1);
INSERT INTO "sqlite_sequence" VALUES('packages',1);
COMMIT;
