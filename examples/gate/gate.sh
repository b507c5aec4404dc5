#!/bin/sh
# Judge a program in a build of any kind.
#
#     gate.sh PROGRAM [OPTIONS OF hlolens check]
#
# Exit code 1: the program is not as expected; fail the build. 2: it could not be judged (no file, a
# text that is cut off, a mistake in an expectation, no hlolens); nothing is said of the program, so
# a build may be run again or its owner be told, but it must not count as passed.
set -u

if ! command -v hlolens >/dev/null; then
  echo 'gate: hlolens is not installed: pip install hlo-lens' >&2
  exit 2
fi

code=0
hlolens check "$@" || code=$?
case $code in
  0) echo 'gate: as expected' ;;
  1) echo 'gate: NOT as expected; the rows are above' >&2 ;;
  *)
    echo "gate: could not be judged (hlolens said $code)" >&2
    code=2
    ;;
esac
exit "$code"
