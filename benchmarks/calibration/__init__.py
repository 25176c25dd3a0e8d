"""Do the numbers keep their word? A thousand planted worlds whose truth is known exactly."""
