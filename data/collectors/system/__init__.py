"""What the operating system and the devices report of themselves."""
