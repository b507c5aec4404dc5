"""Tests of the command line: what a person types, sees and gets back as exit code."""
