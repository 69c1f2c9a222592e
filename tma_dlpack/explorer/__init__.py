"""A notebook panel that moves the options of a map and shows what follows."""
