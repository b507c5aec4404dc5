"""The gate: expectations about a program, judged on its tables."""
