"""pytest's fixture `hlolens`: load programs, or compile them for a target, and assert on them.

    @pytest.mark.hlolens_targets("cpu", "cuda:h100")
    def test_no_gather(hlolens):
        program = hlolens.compile(step, weights, batch)
        hlolens.assert_lowering(program).collectives("all-gather", phase="bwd").count(0)

Only pytest and the standard library are imported when pytest starts.
"""

from __future__ import annotations

import errno
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from hlo_lens.program import Program
    from hlo_lens.testing import Lowering
    from hlo_lens.testing.asking import Asked

__all__ = ["Hlolens"]

__tracebackhide__ = True  # pytest leaves the frames of such a module out of a traceback

_MARKER = "hlolens_targets"
_FIXTURE = "hlolens_target"
_TIMEOUT = 900.0  # seconds, as of hlo_lens.aot

_compiled = pytest.StashKey[dict[str, "Program"]]()
_wrong_choice = pytest.StashKey[str]()
_told_by_worker = pytest.StashKey[str]()
_OUTPUT = "hlolens_wrong_choice"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("hlolens", "expected lowerings (hlo_lens)")
    group.addoption(
        "--hlolens-target",
        action="append",
        default=[],
        metavar="TARGET",
        help="Of the tests with a target, run those for this one; a glob such as 'cuda:*' too; "
        "may be repeated.",
    )
    group.addoption(
        "--hlolens-require-targets",
        action="store_true",
        help="Fail, and do not skip, where the packages for a target are not installed.",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        f"{_MARKER}(target, ...): compile for each of these targets; "
        "one whose packages are not installed is skipped",
    )
    for chosen in config.getoption("hlolens_target"):
        if not set("*?[") & set(chosen):
            _checked_target(chosen, "--hlolens-target")


def _checked_target(name: object, where: str) -> str:
    from hlo_lens.aot.targets import TargetError, parse_target

    if not isinstance(name, str):
        raise pytest.UsageError(f"{where}: a target is a text such as 'cpu', not {name!r}")
    try:
        parse_target(name)
    except TargetError as problem:
        raise pytest.UsageError(f"{where}: {problem}") from None
    return name


# --- targets ---------------------------------------------------------------------------------


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test for each target that its marker names."""
    marker = metafunc.definition.get_closest_marker(_MARKER)
    if marker is None:
        return
    name = metafunc.definition.nodeid
    if _FIXTURE not in metafunc.fixturenames:
        if any(one.name == _MARKER for one in metafunc.definition.own_markers):
            raise pytest.UsageError(f"{name} is for targets, but has no parameter hlolens")
        return  # the marker is that of its class or module, and for the others there
    if not marker.args or marker.kwargs:
        raise pytest.UsageError(f'{name}: write {_MARKER}("cpu", "cuda:h100")')
    targets = list(dict.fromkeys(_checked_target(one, name) for one in marker.args))
    metafunc.parametrize(_FIXTURE, targets, indirect=True, ids=targets)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the targets that were not chosen."""
    chosen = config.getoption("hlolens_target")
    if not chosen:
        return
    targets = [(item, target) for item in items if (target := _target_of(item)) is not None]
    unused = [one for one in chosen if not any(fnmatchcase(target, one) for _, target in targets)]
    if unused and config.getoption("hlolens_require_targets"):
        there = ", ".join(sorted({target for _, target in targets})) or "none"
        wrong = f"--hlolens-target {unused[0]}: no test is for it; targets of tests are: {there}"
        if not targets and hasattr(config, "workeroutput"):  # an error of a worker is not shown
            config.workeroutput[_OUTPUT] = wrong
            items.clear()
            return
        if not targets:
            raise pytest.UsageError(wrong)
        config.stash[_wrong_choice] = wrong  # each test says so: what a worker of xdist raises here
        return  # is not shown
    left_out = {
        id(item): item
        for item, target in targets
        if not any(fnmatchcase(target, one) for one in chosen)
    }
    if left_out:
        config.hook.pytest_deselected(items=[*left_out.values()])
        items[:] = [item for item in items if id(item) not in left_out]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """A worker of xdist has ended: keep what it could not raise."""
    if wrong := getattr(node, "workeroutput", {}).get(_OUTPUT):
        node.config.stash[_told_by_worker] = wrong


def pytest_sessionfinish(session: pytest.Session) -> None:
    if _told_by_worker in session.config.stash:
        session.exitstatus = pytest.ExitCode.USAGE_ERROR


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    if wrong := config.stash.get(_told_by_worker, ""):
        terminalreporter.write_line(f"ERROR: {wrong}", red=True)


def _target_of(item: pytest.Item) -> str | None:
    spec = getattr(item, "callspec", None)
    target = None if spec is None else spec.params.get(_FIXTURE)
    return target if isinstance(target, str) else None


def _need(config: pytest.Config, name: str, *, stubs: bool = True) -> None:
    """Skip the test, or fail it where that was asked for, if what `name` takes is not installed."""
    from hlo_lens.aot import parse_target, readiness

    state = readiness(parse_target(name))
    if not state.ready:
        reason = f"{name} needs packages that are not installed: {state.install}"
    elif state.needs_stub_runtime and not stubs:
        note = state.note or ""
        reason = f"{name}: {note.replace('--allow-stub-runtime', 'allow_stub_runtime=True')}"
    else:
        return
    if config.getoption("hlolens_require_targets"):
        pytest.fail(f"--hlolens-require-targets: {reason}", pytrace=False)
    pytest.skip(reason)


# --- fixtures --------------------------------------------------------------------------------


@pytest.fixture
def hlolens_target(request: pytest.FixtureRequest) -> str | None:
    """The target that this test is for, of those that `hlolens_targets` names; else None."""
    target: str | None = getattr(request, "param", None)
    if target is not None:
        if wrong := request.config.stash.get(_wrong_choice, ""):
            pytest.fail(wrong, pytrace=False)
        _need(request.config, target)
    return target


@pytest.fixture
def hlolens(request: pytest.FixtureRequest, hlolens_target: str | None) -> Iterator[Hlolens]:
    """Compile or load programs, and assert what they were lowered to."""
    fixture = Hlolens(request, hlolens_target)
    yield fixture
    for one in fixture._asked.values():
        one.close()


class Hlolens:
    """What the fixture `hlolens` gives a test. `target`: the one that it is for, or None.

    A relative path is looked for in the folder of the test's file, then in pytest's rootdir; from
    where pytest is run makes no difference.
    """

    def __init__(self, request: pytest.FixtureRequest, target: str | None) -> None:
        self.target = target
        self._request = request
        self._programs: list[Program] = []
        self._asked: dict[int, Asked] = {}  # by the place in programs

    def __repr__(self) -> str:
        return "<hlolens>" if self.target is None else f"<hlolens for {self.target}>"

    def load(
        self, path: str | os.PathLike[str], *, module: str | None = None, stage: str | None = None
    ) -> Program:
        """Read a file or a dump folder; raises as `hlo_lens.load` does."""
        from hlo_lens.program import load
        from hlo_lens.testing.failures import quietly

        return self._used(quietly(lambda: load(self._find(path), module=module, stage=stage)))

    def compile(
        self,
        fn: Callable[..., Any],
        *args: Any,
        target: str | None = None,
        mesh: Mapping[str, int] | str | None = None,
        flags: Iterable[str] | Mapping[str, Any] = (),
        timeout: float | None = _TIMEOUT,
        all_passes: bool = False,
        allow_stub_runtime: bool = False,
    ) -> Program:
        """What `fn(*args)` becomes on `target`, or on the target of the test; see
        `hlo_lens.aot.compile`.

        Skips the test where the packages for the target are not installed. One compile is made for
        the same function, arguments and options, whichever tests ask for it; its text stays in
        pytest's temporary folder. Raises `hlo_lens.aot.CompileError` where it fails.
        """
        from hlo_lens.aot import CompileError

        wanted = target or self.target
        if wanted is None:
            raise pytest.UsageError(
                'for which target? compile(..., target="cpu"), or mark the test '
                f'@pytest.mark.{_MARKER}("cpu", "cuda:h100")'
            )
        options = {
            "target": wanted,
            "mesh": mesh,
            "flags": dict(flags) if isinstance(flags, Mapping) else list(flags),
            "all_passes": all_passes,
            "allow_stub_runtime": allow_stub_runtime,
        }
        try:
            _need(self._request.config, wanted, stubs=allow_stub_runtime)
            with _sent_by_value(self._request):
                return self._used(_compiled_once(self._request, fn, args, options, timeout))
        except (CompileError, ValueError) as problem:
            if not hasattr(problem, "render"):
                raise
            raise problem.with_traceback(None) from None  # it says all in a sentence

    def assert_lowering(self, program: object) -> Lowering:
        """As `hlo_lens.testing.assert_lowering`, with paths as `load` takes them."""
        from hlo_lens.testing.asking import Asked
        from hlo_lens.testing.lowering import Lowering, program_of

        used = self._used(program_of(program, self._find))
        at = next(at for at, one in enumerate(self._programs) if one is used)
        if at not in self._asked:
            self._asked[at] = Asked(used.facts)
        return Lowering(self._asked[at], self._find)

    def save(self, program: Program) -> Path:
        """Write the text of every stage into the test's `tmp_path`; the folder."""
        return _saved(program, self._request.getfixturevalue("tmp_path"))

    def _used(self, program: Program) -> Program:
        if not any(one is program for one in self._programs):
            self._programs.append(program)
        return program

    def _find(self, path: str | os.PathLike[str]) -> str:
        """The file that a path means; it need not be there."""
        if not os.fspath(path):
            raise FileNotFoundError(errno.ENOENT, "an empty path names no file", "")
        places = [self._request.path.parent, self._request.config.rootpath]
        found = [place / path for place in places]
        for one in found:
            if one.exists():
                return os.path.relpath(one) if _is_within(one, Path.cwd()) else str(one)
        return str(found[0])


def _is_within(path: Path, folder: Path) -> bool:
    return path.absolute().is_relative_to(folder)


# --- compiling once --------------------------------------------------------------------------


@contextmanager
def _sent_by_value(request: pytest.FixtureRequest) -> Iterator[None]:
    """Functions of the test's module go to the compiling process as they are here.

    There the module may not be found by its name, and would be a new one.
    """
    try:
        import cloudpickle
    except ImportError:
        yield
        return
    modules = [
        module
        for module in request.config.pluginmanager.get_plugins()
        if isinstance(module, ModuleType) and Path(module.__file__ or "").name == "conftest.py"
    ]
    if isinstance(request.module, ModuleType):
        modules.append(request.module)
    known = cloudpickle.list_registry_pickle_by_value()
    ours = [
        module
        for module in modules
        if sys.modules.get(module.__name__) is module and module.__name__ not in known
    ]
    for module in ours:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in ours:
            cloudpickle.unregister_pickle_by_value(module)


def _compiled_once(
    request: pytest.FixtureRequest,
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    options: dict[str, Any],
    timeout: float | None,
) -> Program:
    """The Program of a compile; that of an earlier one with the same input, in any process of this
    run."""
    from hlo_lens.program import load

    key = _key(fn, args, options)
    programs = request.config.stash.setdefault(_compiled, {})
    if key not in programs:
        name = f"{getattr(fn, '__name__', 'function')}-{options['target']}"
        folder = _shared_folder(request) / f"{re.sub(r'[^A-Za-z0-9_.]+', '-', name)}-{key[:12]}"
        if not folder.is_dir():
            _compile_into(folder, fn, args, options, timeout)
        programs[key] = load(folder)
    return programs[key]


def _key(fn: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> str:
    """A digest of all that the compiling process is given: the function with what it holds, shapes,
    options, what `jax.config` says, environment."""
    import hashlib
    import json

    from hlo_lens.aot.sending import send
    from hlo_lens.aot.settings import settings

    environment = [
        (name, value)
        for name, value in sorted(os.environ.items())
        if not name.startswith(("PYTEST_", "_PYTEST"))
    ]
    # In the order given, which of the axes of a mesh says something.
    told = [options, os.getcwd(), sys.path, environment, settings()]
    rest = json.dumps(told, default=repr)
    return hashlib.sha256(send(fn, args) + rest.encode()).hexdigest()


def _shared_folder(request: pytest.FixtureRequest) -> Path:
    """Where the compiles of this run lie, beside the `tmp_path`s; that of all workers of xdist."""
    base: Path = request.getfixturevalue("tmp_path_factory").getbasetemp()
    folder = (base.parent if hasattr(request.config, "workerinput") else base) / "hlolens"
    folder.mkdir(exist_ok=True)
    return folder


def _compile_into(
    folder: Path,
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    options: dict[str, Any],
    timeout: float | None,
) -> None:
    """Compile elsewhere and move what is whole: another worker may be at the same. What failed
    stays where it is."""
    from hlo_lens.aot import compile

    scratch = Path(tempfile.mkdtemp(prefix=f"{folder.name}-", dir=folder.parent))
    compile(fn, *args, **options, timeout=timeout, out=scratch)
    try:
        scratch.rename(folder)
    except OSError:
        if not folder.is_dir():
            raise
        shutil.rmtree(scratch, ignore_errors=True)


# --- what failed -----------------------------------------------------------------------------


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, Any, None]:
    """Of a test that failed: where the HLO lies, written now if it is in no file."""
    outcome = yield
    report = outcome.get_result()
    if call.excinfo is not None and "hlo_lens.testing.lowering" in sys.modules:
        from hlo_lens.testing.lowering import forget

        forget()
    if report.failed and call.excinfo is not None and "hlo_lens.program" in sys.modules:
        report.sections += list(_sections(item, call.excinfo.value))


def _sections(item: pytest.Item, problem: BaseException) -> Iterator[tuple[str, str]]:
    fixture = getattr(item, "funcargs", {}).get("hlolens")
    programs = [*fixture._programs] if isinstance(fixture, Hlolens) else []
    judged = getattr(problem, "program", None)
    if judged is not None and not any(one is judged for one in programs):
        programs.append(judged)
    lines = []
    for one in programs:
        place = _place(item, one)
        lines.append(f"{one.name}: {place}")
        lines += _commands(problem, place) if one is judged else ()
    if lines:
        yield "HLO (hlolens inspect PATH says more)", "\n".join(lines)
    if type(problem).__name__ == "CompileError" and (log := getattr(problem, "log", "")).strip():
        yield "what the compiler printed", log


def _commands(problem: BaseException, place: str) -> Iterator[str]:
    """What shows more of a program that was in no file, now that it lies at a place."""
    from hlo_lens.testing.failures import NO_FILE

    program: Program = problem.program  # type: ignore[attr-defined]
    for verdict in problem.verdicts:  # type: ignore[attr-defined]
        at = program.index(program.main) if verdict.module is None else verdict.module
        file = _file_of(Path(place), program.stages[at])
        if NO_FILE.match(verdict.command) and file.is_file():
            path = shlex.quote(str(file)).replace("\\", r"\\")
            words = re.sub(r" (FILE|NEW) ", f" {path} ", verdict.command, count=1)
            if not NO_FILE.match(words):
                yield words


def _place(item: pytest.Item, program: Program) -> str:
    """Where the text of a program lies."""
    files = [module.filename for module in program.modules]
    if all(file is not None and os.path.exists(file) for file in files):
        return os.path.commonpath(map(str, files))
    folder = getattr(item, "funcargs", {}).get("tmp_path")
    if folder is None:
        # pytest gives this to fixtures, and a test may have none.
        factory: pytest.TempPathFactory = item.config._tmp_path_factory  # type: ignore[attr-defined]
        folder = factory.mktemp("hlolens")
    try:
        return str(_saved(program, folder))
    except OSError as problem:  # what the test says matters more
        return f"not kept: {problem}"


def _saved(program: Program, folder: Path) -> Path:
    """The folder with a text for each stage, as `hlolens compile` leaves them."""
    name = re.sub(r"[^A-Za-z0-9_.]+", "-", program.name)[:60] or "program"
    place = folder / name
    for number in range(1, 1000):
        if not place.exists():
            break
        place = folder / f"{name}-{number}"
    place.mkdir(parents=True)
    for stage, module in zip(program.stages, program.modules, strict=True):
        _file_of(place, stage).write_text(f"{module.text.rstrip()}\n", encoding="utf-8")
    return place


def _file_of(folder: Path, stage: str) -> Path:
    """The text of a stage in such a folder."""
    return folder / f"{re.sub(r'[^A-Za-z0-9_.]+', '-', stage)}.txt"
