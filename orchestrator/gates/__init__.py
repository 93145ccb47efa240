"""Requirements that a run is held against: their grammar, and the verdicts on them."""
