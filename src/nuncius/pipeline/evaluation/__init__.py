"""The evaluation of trace files: `traces` finds and reads them, `figures` computes, `report` shows."""
