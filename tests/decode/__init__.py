"""Tests of what needs jaxlib, and of what is said where it is missing."""
