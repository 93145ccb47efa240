"""Files of the page: hand-written, served as they stand."""
