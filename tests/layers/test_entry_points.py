"""The specification's entry points under their names, and what each extra needs."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
# Distribution to import name, where they differ.
MODULES = {"pillow": "PIL", "protobuf": "google.protobuf"}
# Fails on importing anything that was named on the command line.
REFUSING = """
import importlib, sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in sys.argv[2].split(","):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Refuse())
for module in sys.argv[1].split(","):
    importlib.import_module(module)
"""


def requirements(extra: str) -> set[str]:
    """Distributions of an extra, with those of the extras that it names."""
    found: set[str] = set()
    for requirement in EXTRAS[extra]:
        name = re.split(r"[\[<>=!~ ]", requirement)[0]
        if name == PROJECT["name"]:
            inner = re.findall(r"\[(.*)\]", requirement)[0]
            found |= {r for one in inner.split(",") for r in requirements(one.strip())}
        else:
            found.add(name)
    return found


def imports_without(modules: str, refused: set[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", REFUSING, modules, ",".join(sorted(refused))],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.clause("BOOT-11")
def test_entry_points_have_the_specifications_names() -> None:
    from helios.contract import PreparedContract
    from helios.frontend.bootstrap import Bootstrap
    from helios.model import PreparedContract as Named
    from helios.runtime import NativeModel, RankPeers
    from helios.server.server import Server

    assert Named is PreparedContract
    assert callable(NativeModel.load)
    assert isinstance(NativeModel.manifests, property)
    assert callable(Bootstrap.load)
    assert callable(Server.start)
    assert {peer.name for peer in RankPeers} == {"THREADS", "PROCESSES"}


def test_what_helios_runtime_lacks_is_an_attribute_error() -> None:
    import helios.runtime

    assert set(helios.runtime.__all__) == {getattr(helios.runtime, n).__name__ for n in
                                           helios.runtime.__all__}  # fmt: skip
    with pytest.raises(AttributeError, match="nothing_there"):
        helios.runtime.nothing_there  # noqa: B018


@pytest.mark.clause("BOOT-11")
def test_the_runtime_core_needs_no_http_and_no_command_line_library() -> None:
    extra = requirements("server") - requirements("runtime-core")
    assert extra >= {"starlette", "uvicorn", "typer", "rich"}
    done = imports_without("helios.engine,helios.runtime.native_model", extra)
    assert done.returncode == 0, done.stderr


def test_the_contract_needs_protobuf_alone() -> None:
    assert [re.split("[<>=]", r)[0] for r in PROJECT["dependencies"]] == ["protobuf"]
    done = imports_without("helios.model,helios.contract.json_form", requirements("server"))
    assert done.returncode == 0, done.stderr


def test_the_check_of_imports_can_fail() -> None:
    done = imports_without("helios.engine", {"tokenizers"})
    assert "No module named 'tokenizers'" in done.stderr


@pytest.mark.parametrize("extra", ["runtime-core", "server", "ignition"])
def test_what_an_extra_names_can_be_imported(extra: str) -> None:
    import importlib

    for name in requirements(extra):
        importlib.import_module(MODULES.get(name, name))


def test_the_script_says_what_to_install() -> None:
    code = REFUSING + "\nfrom helios.command import main\nmain()\n"
    done = subprocess.run(
        [sys.executable, "-c", code, "helios", "typer"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "needs typer. Install it with: pip install 'helios-serve[server]'" in done.stderr
