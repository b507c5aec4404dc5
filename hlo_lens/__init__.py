"""hlo_lens: what XLA made of a JAX program, read from HLO text.

`load(path)` reads a file, a gzip file, a serialized proto or a dump folder into a `Program`;
`parse(text)` reads one HLO text into a `Module`; `from_jax(lowered_or_compiled)` takes what jax
holds in memory; `aot.compile(fn, *args, target=...)` compiles for a device that need not be here.
`diff.compare(old, new)` says what changed between two Programs, and
`testing.assert_lowering(program)` fails a test where one is not as expected.
Text that cannot be read raises `HloParseError`; a file that is no HLO at all raises `InputError`.

Names are imported when first used, so that importing the package costs nothing.

PYTEST_DONT_REWRITE: pytest would warn of a package with a plugin that is imported before it starts.
"""

from hlo_lens._version import __version__

TYPE_CHECKING = False  # type checkers take this as true; importing typing for it would cost time
if TYPE_CHECKING:
    from hlo_lens import aot as aot
    from hlo_lens import diff as diff
    from hlo_lens import testing as testing
    from hlo_lens.files import InputError
    from hlo_lens.from_jax import from_jax
    from hlo_lens.hlo import HloParseError, parse
    from hlo_lens.program import Program, load

__all__ = ["HloParseError", "InputError", "Program", "__version__", "from_jax", "load", "parse"]

_HOME = {
    "HloParseError": "hlo_lens.hlo",
    "InputError": "hlo_lens.files",
    "Program": "hlo_lens.program",
    "from_jax": "hlo_lens.from_jax",
    "load": "hlo_lens.program",
    "parse": "hlo_lens.hlo",
}


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name in ("aot", "diff", "testing"):  # modules of their own, which not everybody needs
        return import_module(f"hlo_lens.{name}")
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'hlo_lens' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(home), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
