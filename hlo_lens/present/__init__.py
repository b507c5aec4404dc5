"""How facts are put before a person: quantities, cells of rows, groups of rows, aligned lines."""
