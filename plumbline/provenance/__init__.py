"""Where a number comes from: explanations, diffs of audits, exports and their checksums."""
