"""The evaluation of trace files: `traces` reads them, `figures` computes, `report` writes the page."""
