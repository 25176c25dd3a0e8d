"""Audits in memory: of a model or of vectors that a program holds, without a file, a store or a pipeline."""
