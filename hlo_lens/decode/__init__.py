"""What needs jaxlib: each part says so in a sentence where jaxlib is not installed."""
