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

_KINDS: Final = ("NEXT", "SAME", "NOT", "DAG", "LABEL", "EMPTY", "COUNT")
_HEAD: Final = re.compile(r"[\s/;#]*([A-Z][A-Z0-9-]*):")
_KIND: Final = re.compile(r"NEXT|SAME|NOT|DAG|LABEL|EMPTY|COUNT-\d+")
_NEAR_KIND: Final = r"(NEXT|SAME|NOT|DAG|LABEL|EMPTY|COUNT(?:-\d+)?)"
_DASHES: Final = "[-_\N{EN DASH}\N{EM DASH}]"
_ENDS: Final = r"(?:\s*\{\w*\})?"  # {LITERAL}, rightly written or not
_COMMENT: Final = re.compile(r"[\s/;#*]*(?:COM|RUN):")


@dataclass(frozen=True, slots=True)
class CheckFile:
    """The CHECK lines of a file: those of its prefixes."""

    name: str
    operations: Sequence[CheckOp]
    options: Options


def read_checks(name: str, text: str, prefixes: Sequence[str]) -> CheckFile:
    """The CHECK lines of a text. Raises `InputError` with its line for one that cannot be run, and
    where there are none: nothing would be checked."""
    # The package skips lines in which a comment prefix stands in front of CHECK, words among them:
    # with a colon they are LLVM's.
    options = Options(name, check_prefixes=list(prefixes), comment_prefixes=["COM:", "RUN:"])
    text = text.replace("\r\n", "\n")
    _refuse_misspelled(name, text, prefixes)
    _refuse_misspelled_prefix(name, text, prefixes)
    _refuse_nearly_written(name, text, prefixes)
    parser = Parser(options, io.StringIO(text), *pattern_for_opts(options))
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


def _refuse_misspelled(name: str, text: str, prefixes: Sequence[str]) -> None:
    """A directive that nearly is one would be passed over in silence."""
    heads = "|".join(map(re.escape, sorted(prefixes, key=len, reverse=True)))
    directive = re.compile(
        rf"(?:^|[^\w-])({heads})([-_ ])([A-Z][A-Z0-9-]*)(?:\{{LITERAL\}})?:", re.M
    )
    for found in directive.finditer(text):
        prefix, mark, kind = found.groups()
        if mark == "-" and (_KIND.fullmatch(kind) or f"{prefix}-{kind}" in prefixes):
            continue
        # CHECK-GPU: and CHECK-GPU-NEXT: are lines of another prefix.
        close = difflib.get_close_matches(kind.partition("-")[0], _KINDS, n=1)
        if close:
            line = text.count("\n", 0, found.start(1)) + 1
            wanted = f"{prefix}-{close[0]}{'-2' if close[0] == 'COUNT' else ''}:"
            raise InputError(
                f"{name}:{line}", f"no directive {prefix}{mark}{kind}:, did you mean {wanted}?"
            )


def _refuse_nearly_written(name: str, text: str, prefixes: Sequence[str]) -> None:
    """A line that begins as a directive does, in any case, but has a blank, a dash or a brace too
    many, or no colon; further on in a line, one with a colon."""
    heads = "|".join(map(re.escape, sorted(prefixes, key=len, reverse=True)))
    at_the_beginning = re.compile(
        rf"[\s/;#*]*(-*({heads})(?:{_DASHES}+{_NEAR_KIND}\b{_ENDS}(?:\s*:)?"
        rf"|\s*{_NEAR_KIND}{_ENDS}\s*:|S?\s*:))",
        re.IGNORECASE,
    )
    further_on = re.compile(
        rf"(?<![\w-])(-*({heads})(?:(?:{_DASHES}+|\s*)(?i:{_NEAR_KIND}){_ENDS}\s*:|\s+:))"
    )
    right = re.compile(rf"(?:{heads})(?:-(?:{_KIND.pattern}))?(?:\{{LITERAL\}})?:")
    for number, line in enumerate(text.split("\n"), 1):
        if _COMMENT.match(line):
            continue
        for found in filter(None, (at_the_beginning.match(line), *further_on.finditer(line))):
            written, prefix, *kinds = found.groups()
            kind = next(filter(None, kinds), "").upper()
            in_prose = not kind and written[-2] in "sS" and prefix not in prefixes  # checks:
            if right.fullmatch(written) or in_prose:
                continue
            wanted = next(one for one in prefixes if one.lower() == prefix.lower())
            wanted += f"-{kind}" if kind else ""
            wanted += "-2" if kind == "COUNT" else ""
            why = f"no directive {written}, did you mean {wanted}:?"
            raise InputError(f"{name}:{number}", why)


def _refuse_misspelled_prefix(name: str, text: str, prefixes: Sequence[str]) -> None:
    """`CEHCK:` or `CHEK-NEXT:` at the beginning of a line."""
    for number, line in enumerate(text.split("\n"), 1):
        found = _HEAD.match(line)
        if found is None or any(found[1].startswith(one) for one in prefixes):
            continue
        for prefix in (one for one in prefixes if len(one) > 3):
            head = found[1][: len(prefix)]
            transposed = sorted(head) == sorted(prefix)
            shorter = {prefix[:at] + prefix[at + 1 :] for at in range(1, len(prefix))}
            if transposed or found[1].partition("-")[0] in shorter:
                why = f"no directive {found[1]}:, did you mean {prefix}?"
                raise InputError(f"{name}:{number}", why)


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
