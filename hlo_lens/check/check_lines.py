"""CHECK lines read by the `filecheck` package.

Only what runs them imports this: the package is an extra.
"""

from __future__ import annotations

import difflib
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NoReturn

from filecheck.compiler import UNESCAPED_BRACKETS, compile_uops
from filecheck.error import CheckError, ParseError
from filecheck.ops import RE, Capture, CheckOp
from filecheck.options import Options
from filecheck.parser import Parser, pattern_for_opts

from hlo_lens.files import InputError
from hlo_lens.present.quantities import visible

_KINDS: Final = ("NEXT", "SAME", "NOT", "DAG", "LABEL", "EMPTY", "COUNT")
_KIND: Final = re.compile(r"NEXT|SAME|NOT|DAG|LABEL|EMPTY|COUNT-\d+")
# What nearly is a directive: its kind, what parts it from the prefix, {LITERAL}, the colon.
_NEAR_KIND: Final = r"(?:NEXT|SAME|NOT|DAG|LABEL|EMPTY|COUNT(?:-\d+)?)"
_DASH: Final = r"[-_.\u2010-\u2015\u2212\u00ad\u200b-\u200d\u2060\ufeff]"  # or what is not seen
_LITERAL: Final = r"(?:\s*\{[^{}\n]*\})?"
_COLON: Final = r"\s*[:\uff1a]"
_SIGNS: Final = r"[\W_]*?(?<![-_])"  # those of a comment, or others, in front of a directive
_COMMENT: Final = re.compile(r"(//|/\*|#|;)[\W_]*")  # behind code, with all signs at its beginning
_HEAD: Final = re.compile(
    rf"{_SIGNS}(([A-Za-z][A-Za-z0-9]*(?:[-_][A-Za-z0-9]+)*?)"
    rf"(?:{_DASH}+((?i:{_NEAR_KIND}))\b|{_LITERAL}{_COLON}))"
)


@dataclass(frozen=True, slots=True)
class CheckFile:
    """The CHECK lines of a file: those of its prefixes."""

    name: str
    operations: Sequence[CheckOp]
    options: Options


def read_checks(name: str, text: str, prefixes: Sequence[str]) -> CheckFile:
    """The CHECK lines of a text. Raises `InputError` with its line for one that cannot be run, and
    where there are none: nothing would be checked."""
    options = Options(name, check_prefixes=list(prefixes), comment_prefixes=["COM:", "RUN:"])
    directive, _ = pattern_for_opts(options)
    # The package skips lines in which a comment prefix stands in front of CHECK, within words and
    # behind a directive, too. To LLVM's it is one as a word of its own, in front of directives.
    comment = re.compile(rf"^(?:(?!{directive.pattern}).)*?(?<![\w-])(?:COM|RUN):")
    looked_at = "\n".join("" if comment.match(line) else line for line in text.split("\n"))
    _refuse_misspelled_kind(name, looked_at, prefixes)
    _refuse_misspelled_prefix(name, looked_at, prefixes)
    _refuse_nearly_written(name, looked_at, prefixes)
    parser = Parser(options, io.StringIO(text), directive, comment)
    operations: list[CheckOp] = []
    while True:
        try:
            operation = next(parser, None)
        except ParseError as problem:
            raise InputError(f"{name}:{problem.line_no}", problem.message) from None
        except Exception as problem:
            raise InputError(f"{name}:{parser.line_no}", stopped(problem)) from None
        if operation is None:
            break
        operations.append(operation)
    unused = [one for one in prefixes if all(each.prefix != one for each in operations)]
    if unused:
        listed = ", ".join(f"{one}:" for one in unused)
        raise InputError(name, f"no line with {listed} in it: nothing would be checked")
    _refuse_without_a_line_before(name, operations)
    _refuse_unusable(name, operations, options)
    return CheckFile(name, operations, options)


def stopped(problem: Exception) -> str:
    """What is told of an exception of the package: of what it does not expect."""
    if isinstance(problem, RecursionError):
        return "the package filecheck cannot run this line: it nests too deep"
    why = str(problem) or type(problem).__name__
    return f"the package filecheck cannot run this line: {why}"


def _refuse_misspelled_kind(name: str, text: str, prefixes: Sequence[str]) -> None:
    """`CHECK-NXT:`, which would be passed over in silence."""
    directive = re.compile(
        rf"(?:^|[^\w-])({_any_of(prefixes)})"
        rf"(?:([-_])([A-Za-z][A-Za-z0-9-]*)|( )([A-Z][A-Z0-9-]*)){_LITERAL}{_COLON}",
        re.M,
    )
    for found in directive.finditer(text):
        prefix, mark, kind = found[1], found[2] or found[4], found[3] or found[5]
        if mark == "-" and (_KIND.fullmatch(kind) or f"{prefix}-{kind}" in prefixes):
            continue
        # CHECK-GPU: and CHECK-GPU-NEXT: are lines of another prefix.
        close = difflib.get_close_matches(kind.partition("-")[0].upper(), _KINDS, n=1)
        if close:
            line = text.count("\n", 0, found.start(1)) + 1
            raise _nearly(
                f"{name}:{line}", found[0][found.start(1) - found.start() :], prefix, close[0]
            )


def _refuse_nearly_written(name: str, text: str, prefixes: Sequence[str]) -> None:
    """A prefix and a kind that are put together in another way than by one `-`, written in another
    case or with something else than a colon behind them: what begins a line has no need of the
    colon, if it has the dash or is in capitals. So prose may begin with `check not`."""
    heads, parted = _any_of(prefixes), r"(?:[^\w:]|_)*"
    kind = rf"((?i:{_NEAR_KIND}))"
    at_the_beginning = re.compile(
        rf"{_SIGNS}([-_]*(?:((?i:{heads}))(?:{_DASH}+{kind}\b{_LITERAL}(?:{_COLON})?"
        rf"|{parted}{kind}{_LITERAL}{_COLON}|(?i:S?){_LITERAL}{_COLON})"
        rf"|({heads}){parted}({_NEAR_KIND})\b{_LITERAL}))"
    )
    further_on = re.compile(
        rf"(?<![\w-])(-*({heads})(?:{parted}{kind}{_LITERAL}{_COLON}|{_LITERAL}{_COLON}))"
    )
    right = re.compile(rf"(?:{heads})(?:-(?:{_KIND.pattern}))?(?:\{{LITERAL\}})?:")
    for number, line in enumerate(text.split("\n"), 1):
        beginnings = (at_the_beginning.match(line, at) for at in _beginnings(line))
        for found in filter(None, (*beginnings, *further_on.finditer(line))):
            written, *parts = found.groups()
            prefix, *kinds = filter(None, parts)
            plural = re.fullmatch(r"s\b.*", written[len(prefix) :])  # checks: see below
            if right.fullmatch(written) or (plural and not kinds and prefix not in prefixes):
                continue
            wanted = next(one for one in prefixes if one.lower() == prefix.lower())
            raise _nearly(f"{name}:{number}", written, wanted, *kinds)


def _refuse_misspelled_prefix(name: str, text: str, prefixes: Sequence[str]) -> None:
    """`CEHCK:` or `chek-not` at the beginning of a line: two letters that changed places, one that
    is missing or one that stands twice. Digits tell prefixes apart: `STEP1:`, `STEP12:`."""
    for number, line in enumerate(text.split("\n"), 1):
        for found in filter(None, (_HEAD.match(line, at) for at in _beginnings(line))):
            written, head, kind = found.groups()
            for prefix in (one for one in prefixes if len(one) > 3):
                if _is_misspelled(*((head.upper(), prefix.upper()) if kind else (head, prefix))):
                    raise _nearly(f"{name}:{number}", written, prefix, kind or "")


def _beginnings(line: str) -> Sequence[int]:
    """Where a directive begins the line, or a comment in it."""
    return [0, *(mark.end(1) for mark in _COMMENT.finditer(line))]


def _is_misspelled(head: str, prefix: str) -> bool:
    first = head.partition("-")[0]
    letters = [at for at in range(1, len(prefix)) if not prefix[at].isdigit()]
    if first in {prefix[:at] + prefix[at] + prefix[at:] for at in letters}:
        return True
    if head.startswith(prefix):  # CHECKED: and CHECK-GPU: are lines of another prefix
        return False
    first_missing = first in {prefix[:at] + prefix[at + 1 :] for at in letters}
    same = head[: len(prefix)]
    digits = re.sub(r"\D", "", same) == re.sub(r"\D", "", prefix)
    return first_missing or (digits and sorted(same) == sorted(prefix))


def _any_of(prefixes: Sequence[str]) -> str:
    return "|".join(map(re.escape, sorted(prefixes, key=len, reverse=True)))


def _nearly(place: str, written: str, prefix: str, kind: str = "") -> InputError:
    """`no directive CHECK-nto:, did you mean CHECK-NOT:?`."""
    wanted = prefix + (f"-{kind.upper()}" if kind else "") + ("-2" if kind == "COUNT" else "")
    wanted += "{LITERAL}" if "{" in written else ""
    odd = next((sign for sign in written if not sign.isascii()), "")
    told = f" ({odd!a} is no ASCII sign)" if odd else ""
    return InputError(place, f"no directive {visible(written)}, did you mean {wanted}:?{told}")


def _refuse_without_a_line_before(name: str, operations: Sequence[CheckOp]) -> None:
    """As FileCheck does: CHECK-NEXT, -SAME and -EMPTY are about the line that the one before
    matched. A CHECK-NOT matches none, and CHECK-DAGs match lines here and there."""
    first = next((one for one in operations if one.name not in ("NOT", "DAG")), None)
    if first is not None and first.name in ("NEXT", "SAME", "EMPTY"):
        why = (
            f"{first.check_name}: has no {first.prefix}: line before it, from which it could go on"
        )
        _refuse(name, first, why)


def _refuse_unusable(name: str, operations: Sequence[CheckOp], options: Options) -> None:
    """Lines that the package would only stumble over when it comes to them."""
    captured: dict[str, str | int] = {}
    for operation in operations:
        is_label = operation.name == "LABEL"
        try:
            _, captures = compile_uops(operation, {} if is_label else captured, options)
        except CheckError as problem:
            _refuse(name, operation, problem.message)
        except NotImplementedError:
            _refuse(name, operation, "the package filecheck does no arithmetic on variables")
        except Exception as problem:
            _refuse(name, operation, stopped(problem))
        _refuse_miscounted(name, operation)
        if is_label and captures:
            _refuse(name, operation, "a CHECK-LABEL captures no variable")
        if operation.name == "NOT" and captures:
            continue  # it matches nothing that could be captured
        captured.update(dict.fromkeys(captures, ""))


def _refuse_miscounted(name: str, operation: CheckOp) -> None:
    """The package counts `(` in a class, `[(]`, as a group, and captures something else then."""
    if not any(isinstance(each, Capture) for each in operation.uops):
        return
    for each in operation.uops:
        written = each.content if isinstance(each, RE) else ""
        written = each.pattern if isinstance(each, Capture) else written
        if re.compile(written).groups != len(UNESCAPED_BRACKETS.findall(written)):
            _refuse(
                name,
                operation,
                rf"the package filecheck miscounts the parentheses of {written}; "
                r"write a literal one as \(, no (?: and no (( side by side",
            )


def _refuse(name: str, operation: CheckOp, why: str) -> NoReturn:
    raise InputError(f"{name}:{operation.source_line}", why)
