"""Tables of a report as files for papers and programs, one module a format."""
