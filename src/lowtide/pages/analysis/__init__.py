"""docs/analysis.md, written from the records under reports/: no number in it is typed by hand."""
