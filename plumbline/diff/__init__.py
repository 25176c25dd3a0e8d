"""What changed between two audits, or between two checkpoints of one."""
