"""What a test needs besides processor and memory, and proof that it needs no more.

``process``: it starts a program or opens a socket, uses what only the target of these
tests installs (the groups ``lab``, ``fuzz`` and ``balancers``), or runs a whole
evaluation, for half a minute. ``timing``: it
measures how long something takes, or how that grows, and wants the machine for itself.
Everything else runs on every processor at once, ``make test``.

The table is the one place that says so. A test that starts a program, connects,
listens or measures without its row fails, whatever became of what it tried.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final

TESTS: Final = Path(__file__).resolve().parents[1]

# A folder or a file under ``tests``, and those of its tests that need it: none, all.
Table = Mapping[str, tuple[str, ...]]
PROCESS: Final[Table] = {
    "attest/test_hostile_sizes.py": (),
    "cli/policy/test_approve.py": (),
    "cli/policy/test_ready.py": (
        "test_drafts_are_written_as_the_comment_says",
        "test_findings_are_explained",
        "test_questions_are_routed_as_the_comment_says",
        "test_with_the_embedded_model_permitted_questions_are_sent",
    ),
    "cli/policy/test_test_cases.py": (),
    "cli/route/test_explain.py": (
        "test_a_model_of_ones_own_has_an_assumed_quality",
        "test_a_model_of_the_catalogue_counts_before_it_is_installed",
        "test_lines_are_explained_by_the_command",
        "test_the_command_never_shows_the_text",
        "test_without_an_enclave_the_choice_is_qualified",
    ),
    "cli/route/test_in_one_day.py": ("test_the_page_shows_what_the_command_prints",),
    "cli/test_declared.py": (
        "test_a_completion_mode_without_words_is_ignored",
        "test_a_failed_completion_is_no_traceback",
        "test_an_odd_completion_mode_is_ignored",
        "test_commands_that_only_inspect_do_not_load_the_tiers",
        "test_help_imports_nothing_slow",
        "test_words_are_completed",
    ),
    "cli/test_main.py": (),
    "cli/test_models.py": (
        "test_a_known_model_without_room_is_not_fetched",
        "test_a_known_models_size_memory_and_network_are_shown_before_anything_is_sent",
        "test_a_script_agrees_beforehand",
        "test_an_unpinned_or_unpermitted_model_is_not_downloaded",
        "test_any_other_reply_downloads_nothing",
        "test_consent_downloads_the_model",
    ),
    "cli/test_serve_gateway.py": (),
    "cli/test_serve_models.py": (),
    "cli/test_start.py": (
        "test_serve_says_once_what_is_wrong",
        "test_the_embedded_model_is_called_a_demonstration",
    ),
    "client/answering/test_optional_steps.py": (),
    "client/audit/test_killed.py": (
        "test_processes_that_are_killed_leave_a_log_that_verifies",
    ),
    "client/audit/test_writer.py": (
        "test_a_file_that_may_not_grow_refuses_the_record",
        "test_a_killed_writer_loses_nothing_that_it_confirmed",
        "test_several_processes_corrupt_nothing",
    ),
    "client/chat/test_query.py": ("test_a_seed_joins_no_two_processes",),
    "client/detection/detectors/presidio/test_operator.py": (
        "test_what_starts_says_what_could_not_be_built",
    ),
    "client/detection/detectors/test_hazards.py": (
        "test_every_detector_that_hangs_keeps_the_query_home",
        "test_no_socket_is_made_and_no_program_started",
    ),
    "client/detection/detectors/test_loading.py": (
        "test_a_text_loads_what_it_needs",
        "test_what_most_texts_need_can_be_loaded_before_one_comes",
    ),
    "client/detection/detectors/test_main.py": (),
    "client/detection/test_inspection.py": (),
    "client/detection/test_worker.py": (),
    "client/detection/test_worker_pool.py": (),
    "client/endpoint": (),
    "client/local/registry/test_download.py": (),
    "client/local/test_model.py": (
        "test_a_default_context_shrinks_with_memory",
        "test_a_failed_load_is_reported_to_every_caller",
        "test_an_adapter_answers",
        "test_another_adapter_is_refused_at_start",
        "test_embedded_model_answers",
        "test_missing_file_is_refused_at_start",
        "test_queries_at_a_time_are_as_many_as_memory_holds",
        "test_real_engine_answers",
        "test_the_context_is_reported",
        "test_the_context_is_told_before_the_model_is_loaded",
        "test_weights_that_memory_does_not_hold_are_not_loaded",
        "test_what_the_engine_cannot_compute_is_refused_at_start",
        "test_who_gives_up_at_the_start_leaves_no_process",
        "test_wrong_digest_is_refused_at_start",
    ),
    "client/local/test_named.py": (
        "test_a_context_that_is_not_possible_is_an_error_of_that_model",
        "test_without_memory_for_both_the_old_one_stays",
    ),
    "client/on_premises/test_real_server.py": (),
    "client/on_premises/test_server.py": (),
    "client/on_premises/test_settings.py": (
        "test_no_other_account_may_choose_the_target_of_a_link",
        "test_no_other_account_may_replace_the_folder",
        "test_no_other_account_may_write_to_the_folder",
        "test_our_own_socket_in_our_own_folder_is_accepted",
        "test_the_folder_is_ours_or_the_servers",
    ),
    "client/pseudonyms/test_session.py": (
        "test_no_other_endpoint_lets_anything_by",
        "test_the_local_endpoint_returns_restored_text_only",
    ),
    "client/queue/test_deferred_store.py": ("test_what_was_put_survives_who_put_it",),
    "client/queue/test_deferring.py": (
        "test_killed_while_it_drains_no_question_is_lost_and_none_has_two_answers",
    ),
    "client/remote/test_access.py": (
        "test_a_named_authority_is_the_only_one",
        "test_a_private_authority_is_trusted_when_it_is_named",
        "test_another_name_or_authority_is_untrusted",
        "test_https_and_http_are_distinguished",
        "test_our_certificate_is_shown",
        "test_version_1_2_is_spoken",
    ),
    "client/remote/test_transport.py": (),
    "client/system/test_files.py": (
        "test_digest_is_what_the_documented_command_prints",
    ),
    "client/test_api.py": (
        "test_a_missing_model_is_reported_when_needed",
        "test_a_stream_may_be_left_early",
        "test_client_answers_decides_and_streams",
        "test_counts_go_where_a_program_says_while_its_client_runs",
        "test_counts_stop_where_a_client_does_not_start",
        "test_sync_client_does_the_same",
        "test_sync_client_takes_a_word",
    ),
    "client/test_assemble.py": (
        "test_a_client_runs_the_model_of_its_rollout",
        "test_a_model_of_the_file_may_be_the_usual_one",
    ),
    "client/test_consent.py": (
        "test_the_endpoint_shows_what_to_agree_to",
        "test_there_is_no_token_for_what_is_not_shown",
    ),
    "client/test_forgetting.py": (),
    "client/test_telemetry.py": (),
    "conformance/balancer": (),
    "conformance/relay": (),
    "degradation": (),
    "deploy/test_by_hand.py": ("test_a_new_user_gets_there",),
    "deploy/test_containers_guest.py": (),
    "deploy/test_image_build.py": (),
    "deploy/test_image_door.py": (),
    "deploy/test_image_guest.py": (
        "test_door_gets_the_servers_socket_once_it_is_closed_to_others",
    ),
    "deploy/test_image_measurements.py": ("test_time_of_the_build_can_be_stated",),
    "deploy/test_systemd.py": (
        "test_a_line_that_systemd_would_ignore_is_seen",
        "test_no_unit_is_more_exposed_than_it_needs",
        "test_systemd_accepts_every_line",
    ),
    "dev/test_emulator.py": (),
    "dev/test_on_premises.py": (),
    "dev/test_recorder.py": (),
    "enclave_server/acquire/test_fuse.py": (),
    "enclave_server/acquire/test_process.py": (),
    "enclave_server/evidence/test_report.py": (),
    "enclave_server/http/test_counter_socket.py": (),
    "enclave_server/http/test_padded.py": (),
    "enclave_server/http/test_server.py": (),
    "enclave_server/http/test_tls.py": (
        "test_answers_are_served_over_tls",
        "test_plain_http_to_a_tls_port_is_not_answered",
        "test_silent_handshake_is_dropped",
    ),
    "enclave_server/ohttp/test_cover.py": (
        "test_dummies_without_room_get_the_shortest_answer",
    ),
    "enclave_server/ohttp/test_replay.py": (
        "test_after_a_restart_the_same_bytes_do_not_open",
        "test_full_set_sends_its_clients_to_the_keys_that_came_after_it",
        "test_of_concurrent_duplicates_one_is_answered",
        "test_replay_is_refused_inside_and_the_model_never_runs_twice",
        "test_replay_is_reported_as_a_problem_of_our_own",
        "test_wrong_date_is_reported_with_ours",
    ),
    "enclave_server/stapler/test_command.py": (),
    "enclave_server/test_confinement.py": (
        "test_a_locked_server_ends_with_the_evidence_process",
        "test_a_release_that_names_another_is_not_served",
        "test_a_release_that_names_none_is_served_without_a_statement",
        "test_a_server_ends_with_what_starts_its_engines",
        "test_an_escape_of_the_engine_ends_it_before_there_is_evidence",
        "test_an_escape_of_the_server_ends_it_before_a_model_is_loaded",
        "test_what_is_missing_is_said_and_nothing_stated",
        "test_what_is_missing_refuses_a_release_that_names_it",
        "test_what_was_found_is_stated_and_bound",
        "test_without_an_evidence_process_nothing_is_locked",
    ),
    "enclave_server/test_failures.py": (),
    "enclave_server/test_forgetting.py": (),
    "enclave_server/test_locked.py": (),
    "enclave_server/test_main.py": (
        "test_it_restarts_itself_once_with_its_settings",
        "test_stream_that_cannot_be_written_exits_with_3",
        "test_unusable_model_is_a_failure",
    ),
    "enclave_server/test_mistakes.py": (),
    "enclave_server/test_model.py": (
        "test_a_lost_engine_is_reported_and_replaced",
        "test_a_model_that_cannot_be_loaded_again_is_said",
        "test_an_unasked_context_is_the_models_and_told_before_loading",
        "test_file_with_another_digest_is_refused",
        "test_real_model_answers",
    ),
    "enclave_server/test_peer.py": (),
    "enclave_server/test_process.py": (),
    "enclave_server/test_service.py": (),
    "enclave_server/test_service_attested.py": (),
    "end_to_end": (),
    "fuzz/test_engine.py": (),
    "inference/process/test_forked.py": (),
    "inference/process/test_parent.py": (),
    "inference/process/test_starter.py": (),
    "inference/test_default_model.py": (),
    "inference/test_engine.py": (),
    "inference/test_forgetting.py": (),
    "inference/test_limits.py": (),
    "inference/test_native.py": (
        "test_an_application_keeps_its_own_use_of_the_package",
        "test_keys_and_values_of_an_erased_sequence_are_nowhere",
        "test_library_logs_nothing",
        "test_runtime_settings_are_made_before_the_library_loads",
        "test_the_librarys_copies_of_tokens_are_nowhere_while_another_goes_on",
        "test_the_packages_disk_cache_is_never_imported",
    ),
    "inference/test_sampler.py": (
        "test_a_grammar_takes_no_more_memory_than_is_counted",
        "test_odd_schemas_neither_crash_nor_stall",
    ),
    "inference/test_together.py": (),
    "lab/commands/test_compare.py": (
        "test_a_side_that_has_answered_all_is_not_started_again",
        "test_a_tier_that_is_not_reached_answers_nothing",
        "test_an_interrupted_run_goes_on",
        "test_graded_pairs_are_written_for_calibrate",
        "test_pairs_that_a_person_grades_are_enough",
        "test_the_embedded_model_is_as_good_as_itself",
    ),
    "lab/evaluation/test_evaluation.py": (
        "test_a_process_that_fails_in_any_way_keeps_the_query_home",
        "test_the_command_measures_writes_and_stops_its_workers",
    ),
    # Besides, urllib3, which Presidio brings, tries a socket when it is imported.
    "lab/evaluation/test_stock_presidio.py": (
        "test_a_changed_model_is_refused",
        "test_a_model_finds_names_that_a_tokenizer_alone_does_not",
    ),
    "lab/training/test_router_battery.py": (
        "test_by_the_default_profile_a_useful_local_model_does_the_routine_work",
        "test_by_the_default_profile_the_embedded_model_is_asked_next_to_nothing",
        "test_on_requests_that_were_written_blind_it_does_less_well",
    ),
    "lab/training/test_router_outcomes.py": (
        "test_a_head_is_measured_by_what_it_did_not_learn",
        "test_answers_are_graded_and_kept_without_a_word_of_them",
    ),
    "lab/training/test_router_training.py": (),
    "netsep/test_netsep.py": (),
    "privacy": (),
    "relay/test_access_keys.py": (
        "test_relay_asks_everything_but_health_for_a_key",
        "test_relay_takes_the_key_and_passes_it_on_to_no_one",
    ),
    "relay/test_admission.py": (
        "test_a_client_keeps_no_uncounted_connections",
        "test_chunks_of_a_sensible_size_pass",
        "test_far_more_framing_than_content_is_refused",
        "test_framing_is_weighed_after_an_early_refusal_too",
        "test_framing_is_weighed_in_content_that_came_at_once",
        "test_one_client_does_not_take_all_places_for_uploads",
    ),
    "relay/test_client_limits.py": (
        "test_caps_are_off_behind_a_unix_socket",
        "test_relay_refuses_connections_of_one_client_over_its_cap",
        "test_relay_refuses_requests_of_one_client_over_its_rate",
        "test_requests_of_one_connection_are_counted_too",
    ),
    "relay/test_command.py": (),
    "relay/test_copies.py": (),
    "relay/test_drain.py": (),
    "relay/test_exchange.py": (),
    "relay/test_fair_queue.py": (
        "test_a_request_waits_for_its_turn_whole_or_in_pieces",
        "test_nine_requests_of_one_address_leave_places_to_another",
    ),
    "relay/test_limits.py": (),
    "relay/test_streams.py": (),
    "relay/test_telemetry.py": (),
    "relay/test_tls.py": (),
    "relay/test_upstream.py": (),
    "sandbox/test_escapes.py": (),
    "sandbox/test_memory.py": (
        "test_a_computing_process_is_closed_to_others_of_its_account",
        "test_a_limit_that_cannot_be_lifted_prevents_it",
        "test_ignored_settings_are_not_in_force",
        "test_memory_is_locked_where_no_limit_prevents_it",
        "test_memory_is_not_merged_with_that_of_others",
        "test_the_allocator_is_looked_at",
    ),
    "sandbox/test_trial.py": (),
    "sandbox/test_wall.py": (),
    "test_documents.py": ("test_the_policy_in_the_readme_answers_as_it_says",),
    "test_doors.py": (
        "test_each_module_uses_the_doors_it_is_named_for_and_no_other",
        "test_lint_sees_what_is_planted_in_any_module",
        "test_no_excuse_opens_a_door_that_is_not_named",
    ),
    "test_native_libraries.py": (
        "test_no_native_library_of_the_detectors_could_reach_anybody",
    ),
    "test_needs.py": ("test_such_a_test_fails_though_it_hid_what_it_did",),
    "test_parties.py": (),
    "test_tools.py": (),
    "transparency/test_log.py": ("test_another_process_is_locked_out",),
}

TIMING: Final[Table] = {
    "cli/attest/test_evidence_hostile.py": (
        "test_eight_times_the_file_is_not_sixty_times_the_work",
    ),
    "client/detection/detectors/languages/test_stretches.py": ("test_time_is_linear",),
    "client/detection/detectors/model/test_detector.py": (
        "test_the_shipped_model_takes_time_in_proportion",
    ),
    "client/detection/detectors/model/test_excerpts.py": (
        "test_cutting_takes_linear_time",
    ),
    "client/detection/detectors/names/test_figures.py": (
        "test_time_grows_with_the_length_only",
    ),
    "client/detection/detectors/names/test_nobody.py": (
        "test_time_grows_with_the_length_only",
    ),
    "client/detection/detectors/patterns/test_catalog.py": (
        "test_time_of_a_spread_number_is_linear",
    ),
    "client/detection/detectors/patterns/test_matcher.py": (
        "test_the_measurement_sees_a_quadratic_pattern",
        "test_time_of_a_pattern_grows_with_length_only",
        "test_time_of_a_run_grows_with_length_only",
        "test_time_of_all_patterns_together_is_linear",
    ),
    "client/detection/detectors/patterns/test_number_rows.py": (
        "test_time_of_a_row_is_linear",
    ),
    "client/detection/detectors/presidio/test_engine.py": (
        "test_a_long_run_of_punctuation_takes_linear_time",
        "test_digits_are_sought_in_linear_time",
    ),
    "client/detection/detectors/test_hazards.py": (
        "test_f2_f3_f4_time_grows_no_faster_than_the_text",
    ),
    "client/detection/detectors/test_policy_detectors.py": (
        "test_a_pattern_takes_linear_time",
        "test_exact_values_take_linear_time",
        "test_many_words_cost_no_more_than_few",
    ),
    "client/detection/detectors/topics/test_lexicon.py": (
        "test_a_phrase_takes_linear_time",
        "test_confidential_rules_take_linear_time",
    ),
    "client/detection/detectors/topics/test_markers.py": (
        "test_markers_take_linear_time",
    ),
    "client/detection/test_worker_pool.py": (
        "test_closing_does_not_wait_for_a_spare_to_start",
    ),
    "enclave_server/test_failures.py": ("test_time_does_not_disclose_why_it_failed",),
    "inference/test_engine.py": (
        "test_cancelled_task_stops_the_engine",
        "test_closing_the_iterator_stops_the_engine",
        "test_default_model_stops_soon_while_reading_a_long_prompt",
    ),
    "inference/test_grammar.py": ("test_a_tree_of_long_texts_is_made_in_proportion",),
    "wire/test_refusal_time.py": (),
}

NEEDS: Final[Mapping[str, Table]] = {"process": PROCESS, "timing": TIMING}

UNMARKED: Final = "without the marker"
MEASURED: Final = "curtilage.tests.measured"
"""The audit event of ``support.growth``."""
_EVENTS: Final[Mapping[str, str]] = {
    "os.exec": "process",
    "os.fork": "process",
    "os.forkpty": "process",
    "os.posix_spawn": "process",
    "os.system": "process",
    "pty.spawn": "process",
    "socket.bind": "process",
    "socket.connect": "process",
    "socket.getaddrinfo": "process",
    "socket.sendto": "process",
    "subprocess.Popen": "process",
    MEASURED: "timing",
}


def rows(table: Table) -> Iterator[str]:
    """Yield each row as pytest names it: a folder, a file, or ``file::test``."""
    for place, tests in table.items():
        yield from (f"{place}::{test}" for test in tests) if tests else (place,)


def _markers() -> Mapping[str, frozenset[str]]:
    markers: dict[str, frozenset[str]] = {}
    for marker, table in NEEDS.items():
        for row in rows(table):
            markers[row] = markers.get(row, frozenset()) | {marker}
    return markers


_MARKERS: Final = _markers()
_NONE: Final[frozenset[str]] = frozenset()


@cache
def of_file(path: Path) -> frozenset[str]:
    """Return the markers that every test in a file or folder has."""
    if TESTS not in path.parents:
        return _NONE
    within = path.relative_to(TESTS)
    places = [each.as_posix() for each in (within, *within.parents)]
    return _NONE.union(*(_MARKERS.get(place, _NONE) for place in places))


def of_test(path: Path, name: str) -> frozenset[str]:
    """Return the markers of a test function."""
    place = path.as_posix().removeprefix(f"{TESTS.as_posix()}/")
    return of_file(path) | _MARKERS.get(f"{place}::{name}", _NONE)


def of_some(path: Path) -> frozenset[str]:
    """Return the markers that any test in a file or folder has."""
    place = path.relative_to(TESTS).as_posix()
    inside = [row for row in _MARKERS if row.startswith((f"{place}/", f"{place}::"))]
    return of_file(path).union(*(_MARKERS[row] for row in inside))


class Watch:
    """Notes what a test does without its marker; ``note`` is an audit hook.

    Refusing it where it happens would not do: what is tested may take the
    exception for a failure of its own and go on.
    """

    def __init__(self) -> None:
        self._has: frozenset[str] | None = None
        self._did: list[str] = []

    def begin(self, markers: frozenset[str]) -> None:
        """Say what the test that begins may do."""
        self._has, self._did = markers, []

    def end(self) -> list[str]:
        """Return what it did beyond that."""
        self._has = None
        return list(dict.fromkeys(self._did))

    def note(self, event: str, _: tuple[object, ...]) -> None:
        """Take an event of ``sys.audit``."""
        if self._has is None:  # also while Python ends, and takes names away
            return
        needed = _EVENTS.get(event)
        if needed and needed not in self._has:
            self._did.append(f"{event} {UNMARKED} {needed!r}")
