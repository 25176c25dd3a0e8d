"""Images as files and as rows of Parquet: what is read, decoded and refused."""
