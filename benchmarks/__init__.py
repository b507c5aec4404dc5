"""Speed and memory on one HLO text, against XLA's own parser: `python -m benchmarks [FILE]`."""
