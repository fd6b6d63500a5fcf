"""The cuda device over the stand-in driver: memory, graphs, rounds, and everything that fails."""

from __future__ import annotations

from typing import Final

import pytest

from tests.runtime.cuda import failing_loads, rank_scenarios, scenarios
from tests.standin_driver.building import needs_standin, run_child

# Settings of the stand-in's process; none for most.
_SETTINGS: Final[dict[str, dict[str, str]]] = {
    "the_cache_takes_its_share_of_what_is_free": {"STANDIN_MEMORY": str(4 << 20)},
    "a_gpu_of_another_capability_is_refused": {"STANDIN_CAPABILITY": "80"},
    "a_machine_without_a_gpu_is_refused": {"STANDIN_DEVICES": "0"},
    "a_machine_without_the_driver_is_refused": {"LD_LIBRARY_PATH": ""},
    "a_driver_that_is_too_old_is_refused": {"STANDIN_DRIVER": "12040"},
}

_PROVES: Final = {
    "a_start_waits_for_its_weights": pytest.mark.clause("BOOT-1"),
    "weights_arrive_whole": pytest.mark.clause("BOOT-1"),
    "a_gpu_has_to_have_room_for_the_weights_too": pytest.mark.clause("BOOT-1"),
    "the_cache_takes_its_share_of_what_is_free": pytest.mark.clause("BOOT-1"),
    "closing_waits_for_the_rounds_that_run": pytest.mark.clause("BOOT-4"),
    "a_round_that_never_ends_ends_in_an_error": pytest.mark.clause("BOOT-4"),
    "a_round_is_one_launch_and_takes_nothing": pytest.mark.clause("BOOT-5"),
    "other_threads_run_while_a_launch_lasts": pytest.mark.clause("BOOT-5"),
    "two_rounds_wait_and_keep_their_frames": pytest.mark.clause("BIND-9"),
    "an_illegal_address_ends_in_an_error": pytest.mark.clause("CACHE-8"),
    "functions_that_take_other_parameters_are_refused": pytest.mark.clause("CORE-10"),
}


@pytest.mark.parametrize("name", rank_scenarios.SCENARIOS)
def test_scenario_of_ranks(name: str) -> None:
    needs_standin()
    gpus = "1" if name == "one_gpu_is_too_few" else "2"
    run_child("tests.runtime.cuda.rank_scenarios", [name], {"STANDIN_DEVICES": gpus})


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=_PROVES.get(name, ())) for name in scenarios.SCENARIOS]
)
def test_scenario(name: str) -> None:
    needs_standin()
    run_child("tests.runtime.cuda.scenarios", [name], _SETTINGS.get(name, {}))


@pytest.mark.parametrize("name", failing_loads.SCENARIOS)
def test_a_start_that_fails(name: str) -> None:
    needs_standin()
    run_child("tests.runtime.cuda.failing_loads", [name], _SETTINGS.get(name, {}))
