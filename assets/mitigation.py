"""What helps, and at what cost: fits on a few labelled images, and every mitigation judged on the others."""
