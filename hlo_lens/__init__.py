"""hlo_lens: what XLA made of a JAX program, read from HLO text."""
