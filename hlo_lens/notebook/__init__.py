"""What a Program gives a notebook: tables to filter, data frames, objects that show themselves."""

from hlo_lens.notebook.table import Columns, TableRow, Tables, TableView, findings, table

__all__ = ["Columns", "TableRow", "TableView", "Tables", "findings", "table"]
