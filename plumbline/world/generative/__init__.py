"""Tiny generative models of the planted world: what they were taught to say of whom, and how they were taught."""
