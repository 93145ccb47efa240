"""Files and paths: small files, Parquet and Arrow, and the runs of other users."""
