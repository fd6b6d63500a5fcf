"""The alerts are valid, ask for metrics that there are, and each fires where it should."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.deploy.prometheus import DEPLOY, promtool
from tests.deploy.shown import ALERTS, exposition, names_in, series

CASES = Path(__file__).parent / "alerts_test.yml"


def test_promtool_takes_them() -> None:
    checked = promtool("check", "rules", "--lint-fatal", ALERTS)
    assert checked.returncode == 0, checked.stderr
    checked = promtool("check", "config", DEPLOY / "prometheus.yml")
    assert checked.returncode == 0, checked.stderr


@pytest.mark.clause("OBS-6")
def test_every_name_is_exported() -> None:
    for path in (ALERTS, CASES):
        used = names_in(path.read_text())
        assert used
        assert used <= series()


def test_each_fires_where_it_should() -> None:
    checked = promtool("test", "rules", CASES)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    alerts = re.findall(r"- alert: (\w+)", ALERTS.read_text())
    firing = re.findall(r"- alertname: (\w+)\n +eval_time: \w+\n +exp_alerts:\n", CASES.read_text())
    silent = re.findall(r"alertname: (\w+), eval_time: \w+, exp_alerts: \[\]", CASES.read_text())
    assert sorted(alerts) == sorted(firing)
    assert sorted(alerts) == sorted(silent)


def test_promtool_takes_the_exposition() -> None:
    checked = promtool("check", "metrics", text=exposition())
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_promtool_minds_only_the_colon_of_vllms_names() -> None:
    checked = promtool("check", "metrics", text=exposition(vllm=True))
    complaints = checked.stderr.splitlines()
    assert complaints
    assert all(
        line.startswith("vllm:") and line.endswith("metric names should not contain ':'")
        for line in complaints
    )
