"""Reports for people: tables, live progress, plain lines."""
