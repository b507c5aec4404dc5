"""The command `hlolens`, also as `python -m hlo_lens`."""

import sys


def main(argv: list[str] | None = None) -> int:
    """Run `hlolens` with `argv` (default: the command line) and return its exit code."""
    args = sys.argv[1:] if argv is None else argv
    if args == ["--version"]:  # answered before click is imported: prompts and scripts ask often
        from hlo_lens import __version__

        try:
            print(f"hlolens {__version__}", flush=True)
            return 0
        except OSError:
            pass  # a full disk, a closed pipe: told below
    from hlo_lens.cli import run

    return run(args)


if __name__ == "__main__":
    sys.exit(main())
