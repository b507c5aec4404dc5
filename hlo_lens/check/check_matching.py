"""CHECK lines run on a text by the `filecheck` package, with the searches of LLVM's FileCheck.

Only what runs them imports this: the package is an extra. What it prints is kept off the screen.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field, replace
from itertools import pairwise

from filecheck.compiler import compile_uops
from filecheck.error import CheckError, ErrorOnMatch
from filecheck.finput import FInput, InputRange
from filecheck.matcher import Matcher
from filecheck.ops import CheckOp, CountOp, Literal, Subst

from hlo_lens.check.check_child import Failure
from hlo_lens.check.check_lines import CheckFile, stopped
from hlo_lens.files import InputError


def match(checks: CheckFile, text: str, at_line: Callable[[int], None]) -> Matching:
    """Run CHECK lines on a text; `at_line` is called with each line before it is run.

    Raises `InputError` with the line that the package cannot run.
    """
    last = 0

    def reached(operation: CheckOp) -> None:
        nonlocal last
        last = operation.source_line
        at_line(last)

    labels = (one for one in checks.operations if one.name == "LABEL")
    program = _Text("", text, labels=labels, reached=reached)
    matching = Matching(checks.options, program, iter(checks.operations), reached=reached)  # type: ignore[arg-type]
    told = matching.stderr = io.StringIO()
    matching.together = {
        id(one)
        for one, following in pairwise(checks.operations)
        if one.name == following.name == "DAG"
    }
    try:
        with redirect_stdout(told), redirect_stderr(told):
            code = matching.run()
    except Exception as problem:
        raise InputError(f"{checks.name}:{last}", stopped(problem)) from None
    if code and matching.failure is None:
        raise InputError(checks.name, f"the package filecheck stopped: {told.getvalue().strip()}")
    return matching


@dataclass
class _Text(FInput):
    """The text and the place in it. labels: those not yet searched for, which is done first."""

    labels: Iterator[CheckOp] = field(kw_only=True)
    reached: Callable[[CheckOp], None] = field(kw_only=True)

    def find_between(self, pattern: re.Pattern[str], irange: InputRange) -> re.Match[str] | None:
        label = next(self.labels, None)
        if label is not None:
            self.reached(label)
        return super().find_between(pattern, irange)

    def skip_to_end_of_line(self) -> None:
        """Of the last line in reach, too, and of the first, where nothing of it was taken."""
        end = min(self.range.end, len(self.content))
        newline = self.content.find("\n", self.range.start, end)
        self.move_to(end if newline < 0 else newline)


@dataclass
class Matching(Matcher):
    """The package's matcher; it keeps what the package only prints. failure: the first line that
    does not hold. together: CHECK-DAG lines, by identity, behind which another one follows."""

    reached: Callable[[CheckOp], None] = field(kw_only=True)
    together: set[int] = field(default_factory=set, init=False)
    failure: Failure | None = field(default=None, init=False)
    _failed: CheckOp | None = field(default=None, init=False)
    _match_start: int | None = field(default=None, init=False)
    _counted: int = field(default=0, init=False)

    def _pre_check(self, op: CheckOp) -> None:
        self.reached(op)
        super()._pre_check(op)

    def _post_check(self, op: CheckOp) -> None:
        """CHECK-NOT lines are about what lies in front of the next match; of CHECK-DAG lines, in
        front of the first match of all. The package takes in what is matched, too."""
        if op.name == "NOT" or id(op) in self.together:
            return
        in_any_order = self.file.is_discontigous()
        end = self.file.range.start if self._match_start is None else self._match_start
        if in_any_order:
            end = in_any_order.start_of_first_hole()
        start, waiting = self.ctx.negative_matches_start, self.ctx.negative_matches_stack
        self.ctx.negative_matches_start, self.ctx.negative_matches_stack = None, []
        self._match_start = None
        if start is not None:
            for each in waiting:
                self.check_not(each, InputRange(start, end))

    def check_count(self, op: CheckOp) -> None:
        """As the package does; it keeps no count."""
        assert isinstance(op, CountOp)
        self._counted = 0
        while self._counted < op.count:
            self.match_eventually(op)
            self._counted += 1

    def match_immediately(self, op: CheckOp) -> None:
        """A CHECK-NEXT, by its first match in the line; the package takes the last."""
        pattern, captures = compile_uops(
            replace(op, name="CHECK"), self.ctx.live_variables, self.opts
        )
        begin, end = self.file.range.start + 1, self.file.range.end
        found = pattern.search(self.file.content, begin, end)
        if found is None or "\n" in self.file.content[begin : found.start()]:
            raise CheckError(f'Couldn\'t match "{op.arg}".', op)
        self.file.move_to(found.end())
        self.capture_results(found, captures, op)

    def capture_results(
        self,
        match: re.Match[str],
        capture: dict[str, tuple[int, Callable[[str], int] | Callable[[str], str]]],
        op: CheckOp,
    ) -> None:
        """Called with each match but a CHECK-NOT's."""
        if self._match_start is None:
            self._match_start = match.start()
        super().capture_results(match, capture, op)

    def check_not(self, op: CheckOp, search_range: InputRange) -> None:
        self.reached(op)
        try:
            super().check_not(op, search_range)
        except ErrorOnMatch as problem:
            self.failure = self._failure(op, search_range.start, problem.match.start())
            raise

    def find_prefix_match_for(self, op: CheckOp) -> re.Match[str] | None:
        """Called with the line that does not match, for what was meant perhaps: see `near`."""
        if op.name == "LABEL" and self.file.ranges:  # searched for behind the label before it
            self.file.range = self.file.ranges[-1]
        self.failure, self._failed = self._failure(op, self.file.range.start), op
        return None

    def near(self) -> tuple[int, bool] | None:
        """(offset, whether it is all of the line) of what the line that does not match meant
        perhaps; None where nothing is like it."""
        op = self._failed
        if op is None or op.name == "EMPTY" or not self._known(op):
            return None
        whole, _ = compile_uops(replace(op, name="CHECK"), self.ctx.live_variables, self.opts)
        content, start = self.file.content, self.file.range.start
        found = whole.search(content, start) or whole.search(content)
        if found is not None:
            return None if self._is_counted(op, found.start()) else (found.start(), True)
        # The package leaves the last part away; with an empty one behind, it halves that first.
        searched = replace(op, name="CHECK", uops=[*op.uops, Literal("")])
        part = super().find_prefix_match_for(searched)
        return None if part is None else (part.start(), False)

    def _is_counted(self, op: CheckOp, at: int) -> bool:
        """Whether a CHECK-COUNT has counted what is there."""
        first, start = self._match_start, self.file.range.start
        return op.name == "COUNT" and first is not None and first <= at < start

    def _known(self, op: CheckOp) -> bool:
        """Whether all variables of a line are captured."""
        used = (each.variable for each in op.uops if isinstance(each, Subst))
        return all(one in self.ctx.live_variables for one in used)

    def _failure(self, op: CheckOp, start: int, matched: int | None = None) -> Failure:
        written = op.check_name.replace("-COUNT", "-COUNT-") + (f": {op.arg}" if op.arg else ":")
        variables = {
            each.variable: str(self.ctx.live_variables[each.variable])
            for each in op.uops
            if isinstance(each, Subst) and each.variable in self.ctx.live_variables
        }
        failure = Failure(op.source_line, op.name, written, start, matched, variables)
        if not isinstance(op, CountOp):
            return failure
        return replace(failure, counted=self._counted, count=op.count)
