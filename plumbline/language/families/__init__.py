"""What each family of language metrics is and promises."""
