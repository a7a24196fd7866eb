package matrix

// harmless are settings that change no answer of ours, and do not hold one up for
// good, by the reason. What a server of another version has is among them.
type harmless struct{ why, names string }

// harmlessSettings are those of each kind of server that a session can have.
var harmlessSettings = map[string][]harmless{
	"postgres": {
		{"how a statement is planned and run, not what it yields", `
			compute_query_id cpu_index_tuple_cost cpu_operator_cost cpu_tuple_cost cursor_tuple_fraction
			debug_discard_caches debug_parallel_query default_statistics_target effective_cache_size
			effective_io_concurrency enable_async_append enable_bitmapscan enable_distinct_reordering enable_gathermerge
			enable_group_by_reordering enable_hashagg enable_hashjoin enable_incremental_sort enable_indexonlyscan
			enable_indexscan enable_material enable_memoize enable_mergejoin enable_parallel_append enable_parallel_hash
			enable_partitionwise_aggregate enable_partitionwise_join enable_presorted_aggregate
			enable_self_join_elimination enable_seqscan enable_sort enable_tidscan force_parallel_mode from_collapse_limit
			geqo geqo_effort geqo_generations geqo_pool_size geqo_seed geqo_selection_bias geqo_threshold
			gin_fuzzy_search_limit gin_pending_list_limit hash_mem_multiplier jit jit_above_cost jit_debugging_support
			jit_dump_bitcode jit_expressions jit_inline_above_cost jit_optimize_above_cost jit_profiling_support
			jit_tuple_deforming join_collapse_limit max_parallel_maintenance_workers max_parallel_workers
			max_parallel_workers_per_gather min_parallel_index_scan_size min_parallel_table_scan_size
			parallel_leader_participation parallel_setup_cost parallel_tuple_cost random_page_cost
			recursive_worktable_factor seq_page_cost stats_fetch_consistency synchronize_seqscans work_mem`},
		{"what is logged, traced and shown", `
			application_name backtrace_functions client_min_messages debug_pretty_print debug_print_parse debug_print_plan
			debug_print_rewritten icu_validation_level lc_messages log_connections log_disconnections log_duration
			log_error_verbosity log_executor_stats log_lock_failures log_lock_waits log_min_duration_sample
			log_min_duration_statement log_min_error_statement log_min_messages log_parameter_max_length
			log_parameter_max_length_on_error log_parser_stats log_planner_stats log_replication_commands log_statement
			log_statement_sample_rate log_statement_stats log_temp_files log_transaction_sample_rate md5_password_warnings
			trace_notify trace_sort track_activities track_cost_delay_timing track_counts track_functions track_io_timing
			track_wal_io_timing update_process_title`},
		{"memory, disk and network: too little is an error, after which the same is tried again", `
			backend_flush_after client_connection_check_interval commit_delay commit_siblings deadlock_timeout
			file_copy_method io_combine_limit logical_decoding_work_mem maintenance_io_concurrency maintenance_work_mem
			max_stack_depth tcp_keepalives_count tcp_keepalives_idle tcp_keepalives_interval tcp_user_timeout temp_buffers
			temp_file_limit temp_tablespaces vacuum_buffer_usage_limit vacuum_cost_delay vacuum_cost_limit
			vacuum_cost_page_dirty vacuum_cost_page_hit vacuum_cost_page_miss vacuum_failsafe_age vacuum_freeze_min_age
			vacuum_freeze_table_age vacuum_max_eager_freeze_failure_rate vacuum_multixact_failsafe_age
			vacuum_multixact_freeze_min_age vacuum_multixact_freeze_table_age vacuum_truncate wal_compression
			wal_init_zero wal_recycle wal_sender_timeout wal_skip_threshold`},
		{"a statement, or a transaction, that takes too long is an error, after which the same is tried again", `
			idle_in_transaction_session_timeout idle_session_timeout lock_timeout post_auth_delay statement_timeout
			transaction_timeout`},
		{"set by BEGIN, from the defaults", `
			transaction_deferrable transaction_isolation transaction_read_only`},
		{"what a crash of the server may take back", `
			synchronous_commit`},
		{"for new tables, functions and roles", `
			allow_in_place_tablespaces allow_system_table_mods check_function_bodies createrole_self_grant
			default_table_access_method default_tablespace default_toast_compression dynamic_library_path event_triggers
			extension_control_path extension_destdir local_preload_libraries output_plugin_libraries password_encryption
			scram_iterations session_preload_libraries`},
		{"of types and functions that no statement uses", `
			default_text_search_config lc_monetary lc_numeric lc_time lo_compat_privileges
			restrict_nonsystem_relation_kind xmlbinary xmloption`},
		{"of a superuser, for a damaged database or to test the server", `
			debug_logical_replication_streaming ignore_checksum_failure ignore_system_indexes wal_consistency_checking
			zero_damaged_pages`},
	},
	"mysql": {
		{"how a statement is planned and run, not what it yields", `
			analyze_max_length analyze_sample_percentage big_tables enable_secondary_engine_statistics end_markers_in_json
			eq_range_index_dive_limit expensive_subquery_limit histogram_generation_max_mem_size histogram_size
			histogram_type in_predicate_conversion_threshold information_schema_stats_expiry innodb_parallel_read_threads
			internal_tmp_mem_storage_engine join_buffer_size join_buffer_space_limit join_cache_level
			max_length_for_sort_data max_rowid_filter_size max_seeks_for_key mrr_buffer_size
			optimizer_adjust_secondary_key_costs optimizer_extra_pruning_depth optimizer_join_limit_pref_ratio
			optimizer_max_sel_arg_weight optimizer_max_sel_args optimizer_max_subgraph_pairs optimizer_prune_level
			optimizer_search_depth optimizer_selectivity_sampling_limit optimizer_trace optimizer_trace_features
			optimizer_trace_limit optimizer_trace_max_mem_size optimizer_trace_offset optimizer_use_condition_selectivity
			preload_buffer_size query_cache_strip_comments query_cache_type query_cache_wlock_invalidate
			range_alloc_block_size range_optimizer_max_mem_size read_buffer_size read_rnd_buffer_size
			rowid_merge_buff_size secondary_engine_cost_threshold select_into_buffer_size select_into_disk_sync
			select_into_disk_sync_delay set_operations_buffer_size use_secondary_engine use_stat_tables
			windowing_use_high_precision`},
		{"what is logged, traced, counted and shown", `
			aria_stats_method binlog_annotate_row_events binlog_rows_query_log_events error_count explain_format
			explain_json_format_version lc_messages log_disabled_statements log_queries_not_using_indexes
			log_slow_admin_statements log_slow_disabled_statements log_slow_filter log_slow_max_warnings
			log_slow_min_examined_row_limit log_slow_query log_slow_query_time log_slow_rate_limit
			log_slow_slave_statements log_slow_verbosity log_warnings long_query_time max_error_count
			min_examined_row_limit myisam_stats_method note_verbosity print_identified_with_as_hex profiling
			profiling_history_size progress_report_time session_track_gtids session_track_schema
			session_track_state_change session_track_system_variables session_track_transaction_info
			show_create_table_skip_secondary_engine show_create_table_verbosity
			show_gipk_in_create_table_and_information_schema slow_query_log sql_log_off sql_notes sql_quote_show_create
			sql_warnings statement_id terminology_use_previous warning_count`},
		{"memory, disk and network: too little is an error, after which the same is tried again", `
			aria_repair_threads aria_sort_buffer_size bulk_insert_buffer_size connection_memory_chunk_size
			connection_memory_limit global_connection_memory_tracking innodb_ddl_buffer_size innodb_ddl_threads
			innodb_tmpdir keep_files_on_create max_allowed_packet max_heap_table_size max_session_mem_used max_tmp_tables
			max_user_connections myisam_repair_threads myisam_sort_buffer_size net_buffer_length net_read_timeout
			net_retry_count net_write_timeout parser_max_mem_size query_alloc_block_size query_prealloc_size
			sort_buffer_size tcp_nodelay thread_pool_priority tmp_disk_table_size tmp_memory_table_size tmp_table_size
			transaction_alloc_block_size transaction_prealloc_size`},
		{"a statement, or a transaction, that takes too long or a session that is idle is an error, after which the same is tried again", `
			deadlock_search_depth_long deadlock_search_depth_short deadlock_timeout_long deadlock_timeout_short
			idle_readonly_transaction_timeout idle_transaction_timeout idle_write_transaction_timeout
			innodb_lock_wait_timeout interactive_timeout lock_wait_timeout max_execution_time max_statement_time
			wait_timeout`},
		{"how what is committed reaches replicas and logs", `
			binlog_alter_two_phase binlog_direct_non_transactional_updates binlog_row_image binlog_row_value_options
			binlog_transaction_compression binlog_transaction_compression_level_zstd default_master_connection
			group_replication_consistency gtid_domain_id gtid_next gtid_owned gtid_seq_no immediate_server_version
			max_relay_log_size original_commit_timestamp original_server_version pseudo_replica_mode pseudo_slave_mode
			rbr_exec_mode server_id skip_parallel_replication sql_slave_skip_counter transaction_allow_batching
			wsrep_causal_reads wsrep_dirty_reads wsrep_gtid_seq_no wsrep_on wsrep_osu_method wsrep_retry_autocommit
			wsrep_sync_wait wsrep_trx_fragment_size wsrep_trx_fragment_unit xa_detach_on_prepare`},
		{"for new tables, whose engine and collation are looked at or named", `
			alter_algorithm character_set_database character_set_server collation_database collation_server
			column_compression_threshold column_compression_zlib_level column_compression_zlib_strategy
			column_compression_zlib_wrap default_collation_for_utf8mb4 default_storage_engine default_table_encryption
			default_tmp_storage_engine enable_cascade_triggers enforce_storage_engine explicit_defaults_for_timestamp
			external_table_secondary_storage_engine external_table_storage_engine innodb_compression_default
			innodb_default_encryption_key_id innodb_strict_mode innodb_table_locks old_alter_table
			restrict_fk_on_non_standard_key sql_generate_invisible_primary_key sql_require_primary_key storage_engine
			system_versioning_alter_history system_versioning_asof system_versioning_insert_history`},
		{"of types and functions that no statement uses", `
			auto_increment_increment auto_increment_offset block_encryption_mode character_set_filesystem
			cte_max_recursion_depth default_regex_flags generated_random_password_length identity
			innodb_ft_enable_stopword innodb_ft_user_stopword_table insert_id last_insert_id max_delayed_threads
			max_insert_delayed_threads max_points_in_geometry max_recursive_iterations max_sp_recursion_depth old
			old_passwords rand_seed1 rand_seed2`},
		{"of the connection, which no client sets", `
			external_user proxy_user pseudo_thread_id resultset_metadata`},
	},
	"sqlite": {
		{"they return something, or do it at once", `
			analysis_limit collation_list compile_options data_version database_list foreign_key_check foreign_key_list
			freelist_count function_list incremental_vacuum index_info index_list index_xinfo integrity_check module_list
			optimize page_count pragma_list quick_check shrink_memory table_info table_list table_xinfo wal_checkpoint`},
		{"of the file", `
			application_id auto_vacuum default_cache_size encoding journal_mode journal_size_limit max_page_count
			page_size schema_version secure_delete user_version`},
		{"memory, disk and threads", `
			cache_size cache_spill empty_result_callbacks hard_heap_limit mmap_size soft_heap_limit temp_store
			temp_store_directory threads wal_autocheckpoint`},
		{"how long a statement waits for others", `
			busy_timeout locking_mode`},
		{"what a crash of the machine may take back", `
			checkpoint_fullfsync fullfsync synchronous`},
	},
}
