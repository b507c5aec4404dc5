"""Figures: a small part of a program, drawn from its text."""
