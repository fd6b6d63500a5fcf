"""What prompts leave behind, over HTTP and a restart: reused, never wrong, named by the server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.server.real import NAMESPACE, ServerProcess, run_cli, server_process

# Six whole pages of 32 tokens and seven tokens more; nobody else asks for it.
PROMPT = [3 + 7 * index % 200 for index in range(199)]
RESTORED = 'flare_offload_restored_total{tier="files"}'
DAMAGED = 'flare_offload_damaged_total{tier="files"}'
STORED = 'flare_offload_stored_total{tier="files"}'


def ask(server: ServerProcess, prompt: list[int] = PROMPT) -> tuple[Any, int]:
    """(tokens and their log-probabilities, tokens of the prompt that were reused)."""
    body = {"model": "tiny", "prompt": prompt, "max_tokens": 12, "temperature": 0, "logprobs": 0}
    answer = server.http.post("/v1/completions", json=body).json()
    usage = answer["usage"]
    assert usage["prompt_tokens"] == len(prompt)
    return answer["choices"][0], usage["prompt_tokens_details"]["cached_tokens"]


@pytest.fixture(scope="module")
def expected(core_folder: Path) -> Any:
    """What the prompt gets where nothing is reused."""
    with server_process(core_folder, "--threads", "1", "--no-prefix-reuse") as server:
        assert "no prefix reuse" in server.ready
        assert server.metrics()["flare_prefix_reuse"] == 0
        answers = [ask(server) for _ in range(2)]
        assert answers[0] == answers[1]
        metrics = server.metrics()
    assert metrics["flare_prefix_queries_total"] == metrics["flare_pages_published_total"] == 0
    answer, reused = answers[0]
    assert reused == 0
    return answer


def test_a_prompt_is_reused_after_a_restart_and_not_where_its_files_are_damaged(
    core_folder: Path, expected: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "prompts"
    options = ("--threads", "1", "--prompt-cache", str(folder), "--prompt-cache-size", "1GiB")
    with server_process(core_folder, *options) as yesterday:
        assert "prompt cache of 1.00 GiB" in yesterday.ready
        assert ask(yesterday) == (expected, 0)
        assert ask(yesterday) == (expected, 198)
        assert yesterday.metrics()[RESTORED] == 0, "it was on the device"
        assert yesterday.terminate() == 0
    files = sorted(folder.iterdir())
    assert len(files) >= 7  # pages, and the state before the prompt's last token
    with server_process(core_folder, *options) as today:
        assert ask(today) == (expected, 198)
        metrics = today.metrics()
        assert metrics[RESTORED] >= 7
        assert metrics['flare_offload_restored_bytes_total{tier="files"}'] > 0
        assert metrics["flare_prefix_reused_tokens_total"] == 198
        assert metrics["flare_prefix_queried_tokens_total"] == 198
        assert metrics[DAMAGED] == 0
        assert today.terminate() == 0
    for file in folder.iterdir():
        content = bytearray(file.read_bytes())
        content[-1] ^= 1
        file.write_bytes(content)
    with server_process(core_folder, *options) as tomorrow:
        assert ask(tomorrow) == (expected, 0)
        metrics = tomorrow.metrics()
        assert metrics[DAMAGED] >= 1
        assert metrics[RESTORED] == 0
        assert metrics["flare_prefix_reused_tokens_total"] == 0


def test_a_reset_deletes_the_files_too(core_folder: Path, expected: Any, tmp_path: Path) -> None:
    options = ("--threads", "1", "--prompt-cache", str(tmp_path), "--offload-memory", "64MiB")
    with server_process(core_folder, *options) as server:
        assert "offload memory of 64.0 MiB, prompt cache of 16.00 GiB" in server.ready
        ask(server)
        server.metrics_until(lambda now: now[STORED] >= 7)
        assert server.http.post("/reset_prefix_cache").status_code == 200
        server.metrics_until(lambda now: now['flare_offload_entries{tier="files"}'] == 0)
        assert ask(server) == (expected, 0)


def test_a_cache_too_small_for_a_page_is_refused(core_folder: Path, tmp_path: Path) -> None:
    ended = run_cli(
        "serve", core_folder, "--accept", NAMESPACE, "--port", 0,
        "--prompt-cache", tmp_path, "--prompt-cache-size", "2KiB",
    )  # fmt: skip
    assert ended.returncode == 2
    assert "(--prompt-cache-size): 2.0 KiB hold not even one page" in ended.stderr


def test_generating_keeps_its_prompt_too(core_folder: Path, tmp_path: Path) -> None:
    """A long text is begun again where an earlier command has left it."""
    text = "once upon a time " * 12
    asked = ("generate", core_folder, "--accept", NAMESPACE, text, "--max-tokens", 5)
    same = ("--temperature", 0, "--prompt-cache", tmp_path)
    first = run_cli(*asked, *same)
    assert first.returncode == 0, first.stderr
    used = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert used
    assert run_cli(*asked, *same).stdout == first.stdout
    assert any(path.stat().st_mtime_ns > before for path, before in used.items()), "none was read"
