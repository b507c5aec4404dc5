"""CHECK lines read and run by the `filecheck` package; what it prints is kept off the screen.

Only what runs them imports this: the package is an extra.
"""

from __future__ import annotations

import difflib
import io
import re
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field, replace
from typing import Final, NoReturn

from filecheck.compiler import UNESCAPED_BRACKETS, compile_uops
from filecheck.error import CheckError, ErrorOnMatch, ParseError
from filecheck.finput import FInput, InputRange
from filecheck.matcher import Matcher
from filecheck.ops import RE, Capture, CheckOp, Literal, Subst
from filecheck.options import Options
from filecheck.parser import Parser, pattern_for_opts

from hlo_lens.files import InputError

_KINDS: Final = ("NEXT", "SAME", "NOT", "DAG", "LABEL", "EMPTY", "COUNT")
_HEAD: Final = re.compile(r"[\s/;#]*([A-Z][A-Z0-9-]*):")
_KIND: Final = re.compile(r"NEXT|SAME|NOT|DAG|LABEL|EMPTY|COUNT-\d+")


@dataclass(frozen=True, slots=True)
class CheckFile:
    """The CHECK lines of a file: those of its prefixes."""

    name: str
    operations: Sequence[CheckOp]
    options: Options


@dataclass(frozen=True, slots=True)
class Failure:
    """The CHECK line that does not hold. line: where it stands in its file; kind: NEXT, NOT, …,
    CHECK; start: the offset in the text at which the search began; matched: the offset of what a
    CHECK-NOT found; near: (offset, whether it is all of the line, not only its beginning);
    variables: what it uses of what lines before it captured."""

    line: int
    kind: str
    written: str
    start: int
    matched: int | None = None
    near: tuple[int, bool] | None = None
    variables: Mapping[str, str] = field(default_factory=dict)


def read_checks(name: str, text: str, prefixes: Sequence[str]) -> CheckFile:
    """The CHECK lines of a text. Raises `InputError` with its line for one that cannot be run, and
    where there are none: nothing would be checked."""
    # The package skips lines in which a comment prefix stands in front of CHECK, words among them:
    # with a colon they are LLVM's.
    options = Options(name, check_prefixes=list(prefixes), comment_prefixes=["COM:", "RUN:"])
    text = text.replace("\r\n", "\n")
    _refuse_misspelled(name, text, prefixes)
    _refuse_misspelled_prefix(name, text, prefixes)
    parser = Parser(options, io.StringIO(text), *pattern_for_opts(options))
    operations: list[CheckOp] = []
    while True:
        try:
            operation = next(parser, None)
        except ParseError as problem:
            raise InputError(f"{name}:{problem.line_no}", problem.message) from None
        except (ValueError, IndexError) as problem:  # a class such as [:print:]
            raise InputError(f"{name}:{parser.line_no}", str(problem)) from None
        if operation is None:
            break
        operations.append(operation)
    if not operations:
        listed = ", ".join(f"{one}:" for one in prefixes)
        raise InputError(name, f"no line with {listed} in it: nothing would be checked")
    _refuse_unusable(name, operations, options)
    return CheckFile(name, operations, options)


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
                r"write a literal one as \( and no (?:",
            )


def _refuse(name: str, operation: CheckOp, why: str) -> NoReturn:
    raise InputError(f"{name}:{operation.source_line}", why)


def first_failure(checks: CheckFile, text: str) -> Failure | None:
    """The first CHECK line that does not hold of a text; None where all hold."""
    told = io.StringIO()
    matcher = _Matcher(checks.options, FInput("", text), iter(checks.operations))  # type: ignore[arg-type]
    matcher.stderr = told
    try:
        with redirect_stdout(told), redirect_stderr(told):
            code = matcher.run()
    except (AssertionError, RuntimeError, TypeError, ValueError, IndexError) as problem:
        # Of the package: a CHECK-NEXT behind the last line, a group that took no part.
        why = f"the package filecheck stopped: {problem or type(problem).__name__}"
        raise InputError(checks.name, why) from None
    if code and matcher.failure is None:
        why = f"the package filecheck stopped: {told.getvalue().strip()}"
        raise InputError(checks.name, why)
    return matcher.failure if code else None


@dataclass
class _Matcher(Matcher):
    """The package's matcher; it keeps what the package only prints."""

    failure: Failure | None = field(default=None, init=False)

    def check_not(self, op: CheckOp, search_range: InputRange) -> None:
        try:
            super().check_not(op, search_range)
        except ErrorOnMatch as problem:
            at = problem.match.start()
            self.failure = self._failure(op, search_range.start, matched=at)
            raise

    def find_prefix_match_for(self, op: CheckOp) -> re.Match[str] | None:
        """Called with the line that does not match, for what was meant perhaps."""
        start = self.file.range.start
        self.failure = self._failure(op, start, near=self._near(op))
        return None

    def _near(self, op: CheckOp) -> tuple[int, bool] | None:
        if op.name == "EMPTY" or any(
            isinstance(each, Subst) and each.variable not in self.ctx.live_variables
            for each in op.uops
        ):
            return None
        whole, _ = compile_uops(replace(op, name="CHECK"), self.ctx.live_variables, self.opts)
        content, start = self.file.content, self.file.range.start
        found = whole.search(content, start) or whole.search(content)
        if found is not None:
            return found.start(), True
        # The package leaves the last part away; with an empty one behind, it halves that first.
        searched = replace(op, name="CHECK", uops=[*op.uops, Literal("")])
        part = super().find_prefix_match_for(searched)
        return None if part is None else (part.start(), False)

    def _failure(
        self,
        op: CheckOp,
        start: int,
        *,
        matched: int | None = None,
        near: tuple[int, bool] | None = None,
    ) -> Failure:
        written = op.check_name.replace("-COUNT", "-COUNT-") + (f": {op.arg}" if op.arg else ":")
        variables = {
            each.variable: str(self.ctx.live_variables[each.variable])
            for each in op.uops
            if isinstance(each, Subst) and each.variable in self.ctx.live_variables
        }
        return Failure(op.source_line, op.name, written, start, matched, near, variables)
