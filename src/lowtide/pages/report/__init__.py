"""report.html: one page that shows a step, its plan and what training with it did. It opens offline, by itself."""
