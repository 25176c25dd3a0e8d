"""From images and prompts to text: backends, sampling that belongs to the row, sharing, resuming, planning."""
